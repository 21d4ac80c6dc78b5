"""The budget of a trips release: one rho over the measured levels, in exact fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .neighbors import Contribution, squared_sensitivity
from .tree import Tree


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
    tree: Tree,
    contribution: Contribution,
    rho: Fraction | None,
    shares: Mapping[int, Fraction],
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
