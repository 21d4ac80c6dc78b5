"""What a run will measure, resolved from its settings and the public shape of its tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ...ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, ZCDP, Guarantee
from ...noise.draws import Noise
from ...noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ...runs.errors import InputRefused
from ..settings import TripsSettings
from .budget import (
    LevelBudget,
    geometric_shares,
    level_budget,
    measured_levels,
    optimised_shares,
    uniform_shares,
)
from .mechanisms import FULL_INFORMATION, GAUSSIAN_LEAVES, STABILITY_HISTOGRAM, TOP_DOWN
from .stability import StabilityHistogram, stability_histogram
from .tree import Tree


@dataclass(frozen=True, eq=False)
class TreelessPlan:
    """A mechanism, but for the tree that it is for.

    `budget` is that of a zCDP mechanism, `histogram` that of the stability histogram; the other
    is None. `measures_all` tells whether the nodes to measure are known beforehand: all of them,
    rather than children of nodes that were found positive.
    """

    mechanism: str
    guarantee: Guarantee | None
    budget: LevelBudget | None
    histogram: StabilityHistogram | None
    measures_all: bool


@dataclass(frozen=True, eq=False)
class Plan(TreelessPlan):
    """A mechanism on a tree."""

    tree: Tree

    @property
    def level_budget(self) -> LevelBudget:
        """The budget of a zCDP mechanism; raises ValueError for the stability histogram."""
        if self.budget is None:
            raise ValueError(f"{self.mechanism} shares no budget among levels")
        return self.budget

    @property
    def stability(self) -> StabilityHistogram:
        """The stability histogram; raises ValueError for other mechanisms."""
        if self.histogram is None:
            raise ValueError(f"{self.mechanism} has no stability histogram")
        return self.histogram

    @property
    def levels(self) -> tuple[int, ...]:
        """The measured levels, in the order in which they are measured."""
        return (self.tree.depth,) if self.budget is None else tuple(sorted(self.budget.shares))

    @property
    def noise(self) -> dict[int, Fraction]:
        """sigma^2 of each measured level, or the stability histogram's scale; 0 without noise."""
        if self.budget is None:
            return {self.tree.depth: self.stability.scale or Fraction(0)}
        return {level: self.budget.sigma_squared(level) for level in self.levels}

    @property
    def noise_mechanism(self) -> str:
        """Name of the distribution of all noise."""
        return DISCRETE_LAPLACE if self.budget is None else DISCRETE_GAUSSIAN

    def noise_of(self, level: int) -> Noise | None:
        """The noise of a measured level, None without noise."""
        parameter = self.noise[level]
        return Noise(self.noise_mechanism, parameter) if parameter else None

    def weight_variance(self, level: int) -> float:
        """Variance that least squares give a measured level; without noise all count alike."""
        return float(self.level_budget.sigma_squared(level)) or 1.0

    @property
    def inferred(self) -> tuple[int, ...]:
        """Levels that a top-down mechanism knows without measuring them: an invariant root, and
        levels of only children, which have their parents' counts."""
        return tuple(
            level
            for level in range(self.tree.depth + 1)
            if self.is_top_down and level not in self.level_budget.shares
        )

    @property
    def is_top_down(self) -> bool:
        """Whether estimates are consistent, not negative, and keep an invariant root."""
        return self.mechanism in TOP_DOWN

    @property
    def is_selected(self) -> bool:
        """Whether a first top-down pass decides what is measured, and all is combined after it."""
        return self.mechanism == FULL_INFORMATION and not self.measures_all


def make_plan(settings: TripsSettings, tree: Tree, *, merges: bool = True) -> Plan:
    """The plan of a run; raises InputRefused for shares that do not fit the tree.

    `merges` is that of `measured_levels`.
    """
    name, contribution = settings.mechanism.name, settings.contribution
    neighbors = BOUNDED if contribution.is_bounded else UNBOUNDED
    if name == STABILITY_HISTOGRAM:
        if settings.privacy.infinite:
            return Plan(name, None, None, StabilityHistogram(None, 1), True, tree)
        epsilon, delta = settings.privacy.epsilon_and_delta
        return Plan(
            name,
            Guarantee(PURE_DP, epsilon, neighbors, delta),
            None,
            stability_histogram(epsilon, delta, contribution),
            True,
            tree,
        )
    rho = settings.rho
    shares: Mapping[int, Fraction]
    if name == GAUSSIAN_LEAVES:
        shares = {tree.depth: Fraction(1)}
        measures_all = True
    else:
        shares = _shares(settings, tree, merges)
        n_nodes = sum(tree.n_nodes(level) for level in range(tree.depth + 1))
        measures_all = name == FULL_INFORMATION and n_nodes <= settings.mechanism.most_nodes
    return Plan(
        name,
        None if rho is None else Guarantee(ZCDP, rho, neighbors),
        level_budget(tree, contribution, rho, shares),
        None,
        measures_all,
        tree,
    )


def _shares(settings: TripsSettings, tree: Tree, merges: bool) -> Mapping[int, Fraction]:
    levels = measured_levels(tree, settings.contribution, merges=merges)
    given = settings.mechanism.shares
    if isinstance(given, str):
        if given == "uniform":
            return uniform_shares(levels)
        if given == "geometric":
            return geometric_shares(levels, settings.mechanism.share_ratio)
        return optimised_shares(tree, settings.contribution, levels)
    if len(given) != len(levels):
        raise InputRefused(
            f"mechanism.shares lists {len(given)} shares, but {len(levels)} levels are measured "
            f"({', '.join(tree.level_name(level) for level in levels)}); list one for each."
        )
    return dict(zip(levels, given, strict=True))
