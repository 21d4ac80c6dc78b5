"""Shares of the levels that suit a tree's public shape, by its variances of least squares.

If every node is measured, with variance s_l at level l, the best linear unbiased estimate of a
node has a variance that depends on the shape alone. On a tree where every node of level l - 1 has
b_l children (their mean number in the real tree):

    v_T = s_T,   1 / v_l = 1 / s_l + 1 / (b_(l+1) v_(l+1))     from the subtree of a node,
    V_0 = 0 or v_0,   V_l = v_l (1 - 1 / b_l) + V_(l-1) / b_l^2   from the whole tree.

The shares minimise the product of the V_l over the levels below the root, so that a percent of
accuracy counts the same at every level.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize
from spineflow.tasks.trips.workload.neighbors import Contribution, squared_sensitivity
from spineflow.tasks.trips.workload.tree import Tree

DENOMINATOR = 1000
"""Shares are whole thousandths: readable, and the same on machines that round differently."""

SMALLEST_SHARE = 1e-3


def mean_fanouts(tree: Tree) -> list[float]:
    """Mean number of children of the nodes of levels 0 to T - 1."""
    return [tree.n_nodes(level + 1) / tree.n_nodes(level) for level in range(tree.depth)]


def regular_tree_variances(
    variances: Sequence[float] | np.ndarray, fanouts: Sequence[float], *, is_root_exact: bool
) -> np.ndarray:
    """V_0, ..., V_T of the best linear unbiased estimates, measurements having `variances`.

    An infinite variance is a level that is not measured; V_0 = 0 with an exact root.
    """
    upward = list(variances)
    for level in range(len(fanouts) - 1, -1, -1):
        below = fanouts[level] * upward[level + 1]
        upward[level] = 1 / (1 / variances[level] + 1 / below)
    whole = [0.0 if is_root_exact else upward[0]]
    for level, fanout in enumerate(fanouts, start=1):
        # An only child has its parent's count, whether it is measured or not.
        own = upward[level] * (1 - 1 / fanout) if fanout > 1 else 0.0
        whole.append(own + whole[-1] / fanout**2)
    return np.array(whole)


def optimised_shares(
    tree: Tree, contribution: Contribution, levels: Sequence[int]
) -> dict[int, Fraction]:
    """Shares of the measured `levels`, thousandths that add to exactly 1."""
    fanouts = mean_fanouts(tree)
    # A level of only children that is not measured is the level above under another name.
    counted = [
        level for level, fanout in enumerate(fanouts, start=1) if fanout > 1 or level in levels
    ]
    squares = np.array([squared_sensitivity(tree, level, contribution) for level in levels])

    def shares_of(parameters: np.ndarray) -> np.ndarray:
        weights = np.exp(parameters - parameters.max())
        return SMALLEST_SHARE + (1 - SMALLEST_SHARE * len(levels)) * weights / weights.sum()

    def log_product(parameters: np.ndarray) -> float:
        variances = np.full(tree.depth + 1, np.inf)
        variances[list(levels)] = squares / shares_of(parameters)
        found = regular_tree_variances(
            variances, fanouts, is_root_exact=contribution.has_invariant_total
        )
        return float(np.log(found[counted][found[counted] > 0]).sum())

    best = minimize(log_product, np.zeros(len(levels)), method="L-BFGS-B")
    return dict(zip(levels, _thousandths(shares_of(best.x)), strict=True))


def _thousandths(shares: np.ndarray) -> list[Fraction]:
    """Whole positive thousandths nearest to the shares, the largest remainders rounded up."""
    exact = shares * DENOMINATOR
    whole = np.maximum(1, np.floor(exact)).astype(int)
    while whole.sum() != DENOMINATOR:
        step = 1 if whole.sum() < DENOMINATOR else -1
        whole[np.argmax(step * (exact - whole))] += step
    return [Fraction(int(count), DENOMINATOR) for count in whole]
