"""What a run will measure, resolved from its settings and the public shape of its tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from spineflow.tasks.ledger.accounting import (
    BOUNDED,
    PURE_DP,
    UNBOUNDED,
    ZCDP,
    Guarantee,
    epsilon_simple,
    epsilon_tight,
)
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.trips.measurement.stability import StabilityHistogram, stability_histogram
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.budget import (
    LevelBudget,
    geometric_shares,
    level_budget,
    measured_levels,
    uniform_shares,
)
from spineflow.tasks.trips.workload.mechanisms import (
    FULL_INFORMATION,
    GAUSSIAN_LEAVES,
    STABILITY_HISTOGRAM,
    TOP_DOWN,
)
from spineflow.tasks.trips.workload.optimal_shares import optimised_shares
from spineflow.tasks.trips.workload.tree import Tree


@dataclass(frozen=True, eq=False)
class Plan:
    """A mechanism on a tree.

    `budget` is that of a zCDP mechanism, `histogram` that of the stability histogram; the other
    is None. `measures_all` tells whether the nodes to measure are known beforehand: all of them,
    rather than children of nodes that were found positive.
    """

    mechanism: str
    tree: Tree
    guarantee: Guarantee | None
    budget: LevelBudget | None
    histogram: StabilityHistogram | None
    measures_all: bool

    @property
    def levels(self) -> tuple[int, ...]:
        """The measured levels, in the order in which they are measured."""
        return (self.tree.depth,) if self.budget is None else tuple(sorted(self.budget.shares))

    @property
    def noise(self) -> dict[int, Fraction]:
        """sigma^2 of each measured level, or the stability histogram's scale; 0 without noise."""
        if self.budget is None:
            return {self.tree.depth: self.histogram.scale or Fraction(0)}
        return {level: self.budget.sigma_squared(level) for level in self.levels}

    def weight_variance(self, level: int) -> float:
        """Variance that least squares give a measured level; without noise all count alike."""
        return float(self.budget.sigma_squared(level)) or 1.0

    @property
    def is_top_down(self) -> bool:
        """Whether estimates are consistent, not negative, and keep an invariant root."""
        return self.mechanism in TOP_DOWN

    @property
    def is_selected(self) -> bool:
        """Whether a first top-down pass decides what is measured, and all is combined after it."""
        return self.mechanism == FULL_INFORMATION and not self.measures_all


def make_plan(settings: TripsSettings, tree: Tree) -> Plan:
    """The plan of a run; raises InputRefused for shares that do not fit the tree."""
    name, contribution = settings.mechanism.name, settings.contribution
    neighbors = BOUNDED if contribution.is_bounded else UNBOUNDED
    if name == STABILITY_HISTOGRAM:
        if settings.privacy.infinite:
            return Plan(name, tree, None, None, StabilityHistogram(None, 1), True)
        epsilon, delta = settings.privacy.epsilon, settings.privacy.delta
        return Plan(
            name,
            tree,
            Guarantee(PURE_DP, epsilon, neighbors, delta),
            None,
            stability_histogram(epsilon, delta, contribution),
            True,
        )
    rho = settings.rho
    if name == GAUSSIAN_LEAVES:
        shares = {tree.depth: Fraction(1)}
        measures_all = True
    else:
        shares = _shares(settings, tree)
        n_nodes = sum(tree.n_nodes(level) for level in range(tree.depth + 1))
        measures_all = name == FULL_INFORMATION and n_nodes <= settings.mechanism.most_nodes
    return Plan(
        name,
        tree,
        None if rho is None else Guarantee(ZCDP, rho, neighbors),
        level_budget(tree, contribution, rho, shares),
        None,
        measures_all,
    )


def _shares(settings: TripsSettings, tree: Tree) -> Mapping[int, Fraction]:
    levels = measured_levels(tree, settings.contribution)
    given = settings.mechanism.shares
    if given == "uniform":
        return uniform_shares(levels)
    if given == "geometric":
        return geometric_shares(levels, settings.mechanism.share_ratio)
    if given == "optimised":
        return optimised_shares(tree, settings.contribution, levels)
    if len(given) != len(levels):
        raise InputRefused(
            f"mechanism.shares lists {len(given)} shares, but {len(levels)} levels are measured "
            f"({', '.join(tree.level_name(level) for level in levels)}); list one for each."
        )
    return dict(zip(levels, given, strict=True))


def budget_report(plan: Plan, delta: Fraction) -> dict:
    """What `spineflow budget --json` prints; fractions as strings, epsilon by zCDP at `delta`.

    `rho` is the composed figure, of bounded zCDP per person. `block_within` is what protects a
    trip's leaf from somebody who knows its node at a level.
    """
    guarantee, budget = plan.guarantee, plan.budget
    return {
        "universe": "trips",
        "mechanism": DISCRETE_LAPLACE if budget is None else DISCRETE_GAUSSIAN,
        "neighbors": BOUNDED if guarantee is None else guarantee.neighbors,
        "rho": "inf" if guarantee is None else str(guarantee.bounded_rho),
        "native_rho": None if guarantee is None or budget is None else str(guarantee.parameter),
        "delta": str(delta if guarantee is None or not guarantee.delta else guarantee.delta),
        "epsilon": _epsilons(plan, Fraction(1), delta),
        "attributes": {},
        "block_within": _within(plan, delta),
        "queries": _queries(plan),
    }


def _epsilons(plan: Plan, share: Fraction, delta: Fraction) -> dict[str, float | str]:
    """Epsilon of a share of the budget, in the terms of the plan's own neighbours."""
    if plan.guarantee is None:
        return {"tight": "inf", "simple": "inf"}
    if plan.budget is None:
        epsilon = float(plan.guarantee.parameter)
        return {"tight": epsilon, "simple": epsilon}
    rho = plan.guarantee.parameter * share
    return {"tight": epsilon_tight(rho, delta), "simple": epsilon_simple(rho, delta)}


def _within(plan: Plan, delta: Fraction) -> dict[str, float | str]:
    """Epsilon of all that is measured below each level, by the level's name."""
    if plan.budget is None:
        return {}
    shares = plan.budget.shares
    return {
        plan.tree.level_name(level): _epsilons(
            plan, sum((shares[below] for below in plan.levels if below > level), Fraction(0)), delta
        )["tight"]
        for level in plan.levels[:-1]
    }


def _queries(plan: Plan) -> list[dict]:
    if plan.budget is None:
        return [
            {
                "geolevel": plan.tree.level_name(plan.tree.depth),
                "query": "positive counts",
                "share": "1",
                "sigma_squared": None,
                "scale": None if plan.histogram.scale is None else str(plan.histogram.scale),
                "threshold": plan.histogram.threshold,
            }
        ]
    return [
        {
            "geolevel": plan.tree.level_name(level),
            "query": "counts",
            "share": str(plan.budget.shares[level]),
            "sigma_squared": str(plan.budget.sigma_squared(level)),
            "squared_sensitivity": plan.budget.squared_sensitivities[level],
        }
        for level in plan.levels
    ]
