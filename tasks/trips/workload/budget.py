"""The budget of a trips release: one rho over the measured levels, in exact fractions.

*Optimised shares* suit the tree's public shape. If every node is measured, the best linear unbiased
estimate of a node has a variance that depends on the noise of the levels and on the shape alone
(`tasks.solvers.level_split`, on a tree of the mean fan-outs). These shares minimise the product of
the variances of the levels below the root, so that a percent of accuracy counts the same at every
level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize

from ...solvers.level_split import RegularTree, thousandths
from .neighbors import Contribution, squared_sensitivity
from .tree import Tree

SMALLEST_SHARE = 1e-3


@dataclass(frozen=True)
class LevelBudget:
    """`rho` in total, of which `shares[level]` at each measured level; shares add to exactly 1.

    `squared_sensitivities` has an entry for the same levels. An infinite budget has `rho` None.
    """

    rho: Fraction | None
    shares: Mapping[int, Fraction]
    squared_sensitivities: Mapping[int, int]

    def sigma_squared(self, level: int) -> Fraction:
        """Of the level's discrete Gaussian: Delta^2 / (2 rho share); 0 for an infinite budget.

        A level at which neighbouring tables agree is exact.
        """
        if self.rho is None:
            return Fraction(0)
        return Fraction(self.squared_sensitivities[level]) / (2 * self.rho * self.shares[level])


def measured_levels(
    tree: Tree, contribution: Contribution, *, merges: bool = True
) -> tuple[int, ...]:
    """The levels that a top-down mechanism measures.

    All, less an invariant root and less levels with as many nodes as the level above: every node
    of these is an only child and has its parent's count, so that noise would buy nothing. Such
    levels are measured too unless `merges`, as version 0.1.0 did. The leaves are measured in any
    case if nothing else would be.
    """
    first = 1 if contribution.has_invariant_total else 0
    levels = tuple(
        level
        for level in range(first, tree.depth + 1)
        if not (merges and level and tree.n_nodes(level) == tree.n_nodes(level - 1))
    )
    return levels or (tree.depth,)


def level_budget(
    tree: Tree, contribution: Contribution, rho: Fraction | None, shares: Mapping[int, Fraction]
) -> LevelBudget:
    """The budget of a tree's levels with these shares; raises ValueError if they are not sound."""
    if any(share <= 0 for share in shares.values()) or sum(shares.values(), Fraction(0)) != 1:
        raise ValueError("the shares of the levels must be positive and add to exactly 1")
    return LevelBudget(
        rho,
        dict(shares),
        {level: squared_sensitivity(tree, level, contribution) for level in shares},
    )


def uniform_shares(levels: Sequence[int]) -> dict[int, Fraction]:
    """The same share for every level, as in [InfTDA2024]."""
    return dict.fromkeys(levels, Fraction(1, len(levels)))


def geometric_shares(levels: Sequence[int], ratio: Fraction) -> dict[int, Fraction]:
    """Each level's share is `ratio` times that of the level above.

    >>> geometric_shares([1, 2], Fraction(1, 2))
    {1: Fraction(2, 3), 2: Fraction(1, 3)}
    """
    weights = [ratio**i for i in range(len(levels))]
    return {level: weight / sum(weights) for level, weight in zip(levels, weights, strict=True)}


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
