"""Shares of the levels that suit a tree's public shape, by its variances of least squares.

If every node is measured, the best linear unbiased estimate of a node has a variance that depends
on the noise of the levels and on the shape alone (`tasks.solvers.level_split`, on a tree of the
mean fan-outs).

The shares minimise the product of the V_l over the levels below the root, so that a percent of
accuracy counts the same at every level.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize

from ...solvers.level_split import RegularTree, thousandths
from .neighbors import Contribution, squared_sensitivity
from .tree import Tree

SMALLEST_SHARE = 1e-3


def mean_fanouts(tree: Tree) -> list[float]:
    """Mean number of children of the nodes of levels 0 to T - 1."""
    return [tree.n_nodes(level + 1) / tree.n_nodes(level) for level in range(tree.depth)]


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

    regular = RegularTree(tuple(fanouts), contribution.has_invariant_total)

    def log_product(parameters: np.ndarray) -> float:
        precisions = np.zeros(tree.depth + 1)
        precisions[list(levels)] = shares_of(parameters) / squares
        found = regular.variances(precisions)
        return float(np.log(found[counted][found[counted] > 0]).sum())

    best = minimize(log_product, np.zeros(len(levels)), method="L-BFGS-B")
    return dict(zip(levels, thousandths(shares_of(best.x)), strict=True))
