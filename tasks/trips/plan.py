"""The plan of a trips run: its files, shares of the budget, and its measurements.

**Sensitivities** say how far one person's trips move the counts of a level. Neighbouring tables
differ in one person: changed (bounded) or added or removed (unbounded). A person makes m trips, or
up to m; at a level with counts a before and b after, a and b being the person's own counts, the
squared sensitivity is the largest |a - b|^2.

- Any trips: a person may put all m into one node, so |a - b|^2 <= m^2 unbounded, 2 m^2 bounded.
- Distinct trips, at most one a leaf: a node has at most as many of them as leaves. |a|^2 is largest
  if the m trips fill the nodes with most leaves one after the other; bounded neighbours reach at
  most twice that. At the leaves this is m, or 2 m; further up the trips of one person may all be in
  one node, so that the m^2 of the general case returns as soon as a node has m leaves.
- The root: a person who is added or removed moves it by up to m. Changing a person moves it only
  if the number of trips is free, by up to m; if everybody makes exactly m, the total is m times
  the number of persons and does not move.

**The stability histogram** has discrete Laplace noise on positive counts, and no counts below a
threshold. Only positive leaves get noise, of scale b = s / epsilon, with s the L1 sensitivity, and
a leaf is listed if its noisy count reaches an integer threshold t. Leaves that do not occur are
never listed, so the domain need not be enumerated, and t decides delta.

Let neighbours D, D' differ in one person, call a leaf exclusive to D if it is positive in D alone,
and let q = exp(-1 / b). A leaf of count c is listed with probability
P(c + Z >= t) = q^(t - c) / (1 + q) for t > c.

- Of the outcomes of D, those in which a leaf exclusive to D is listed have together at most
  probability delta_1, the sum of that chance over such leaves. One person's m trips fill them, so
  the sum is largest with m leaves of one trip or, unless trips are distinct, with one leaf of m
  (the chance is convex in c).
- On all other outcomes leaves exclusive to D say nothing. Those exclusive to D' are suppressed in
  D' with probability at least 1 - delta_1, and use up at least 1 of the sensitivity, so that the
  leaves in common have a ratio of at most exp(epsilon - 1 / b). If delta_1 <= 1 - q, the whole
  ratio is at most exp(epsilon).

Hence (epsilon, delta)-differential privacy if delta_1 <= min(delta, 1 - q). The threshold of
[StabilityHistogram2016], which [InfTDA2024] takes, divides delta by two for bounded neighbours; the
second point shows that one side is enough. For the same reason, where neighbours add or remove a
person at (epsilon, delta), changing a person costs (2 epsilon, delta).

**The budget** is one rho over the measured levels, in exact fractions.

*Optimised shares* suit the tree's public shape. If every node is measured, the best linear unbiased
estimate of a node has a variance that depends on the noise of the levels and on the shape alone
(`tasks.solvers.level_design`, on a tree of the mean fan-outs). These shares minimise the product of
the variances of the levels below the root, so that a percent of accuracy counts the same at every
level.

The plan of a run, `spine/trips/plan.json`, has mechanism, guarantee, and the shares and squared
sensitivities of the measured levels, or the scale and the threshold of the histogram. It is made
once, charged, and read by every step after that: optimised shares come out of floating-point
arithmetic that another version, or another machine, may round otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..ledger.accounting import PURE_DP, ZCDP, Guarantee
from ..ledger.plan import REPORT_DELTA, Measure, UniversePlan
from ..noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, Noise, exp_minus_bounds
from ..noise.quantiles import first_that
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import read_values, write_values
from ..solvers.level_design import RegularTree, thousandths
from .settings import FULL_INFORMATION, STABILITY_HISTOGRAM, TOP_DOWN, TripsPrivacy, TripsSettings
from .tree import Tree, read_tree

UNIVERSE = "trips"


def level_folder(level: int) -> str:
    """Name of a level in paths and stages."""
    return f"level_{level:02d}"


def measured_file(run: RunDirectory, level: int) -> Path:
    """Noisy counts of a level."""
    return run.dpqueries(UNIVERSE, level_folder(level))


def estimates_file(run: RunDirectory, level: int, kind: str = UNIVERSE) -> Path:
    """Estimates of a level."""
    return run.estimates(kind, level_folder(level))


def plan_file(run: RunDirectory) -> Path:
    """The plan: public."""
    return run.root / "spine" / "trips" / "plan.json"


def squared_sensitivity(tree: Tree, level: int, privacy: TripsPrivacy) -> int:
    """Upper bound on |a - b|^2 at a level, attained where the tree has room for it.

    It is 0 where neighbouring tables cannot differ: at an invariant root.
    """
    m = privacy.trips_per_person
    if level == 0:
        return 0 if privacy.has_invariant_total else m * m
    own = _filled_squares(largest_leaf_counts(tree, level, m), m)
    if not privacy.distinct_trips:
        own = m * m
    return 2 * own if privacy.is_bounded else own


def l1_sensitivity(privacy: TripsPrivacy) -> int:
    """The largest sum |a - b| at the leaves: m trips added or removed, or m of each."""
    return privacy.trips_per_person * (2 if privacy.is_bounded else 1)


def _filled_squares(capacities: list[int], trips: int) -> int:
    """The largest sum of squares of at most `trips` trips in nodes of these capacities."""
    squares = 0
    for capacity in capacities:
        inside = min(capacity, trips)
        squares += inside * inside
        trips -= inside
    return squares


def largest_leaf_counts(tree: Tree, level: int, n: int) -> list[int]:
    """The n largest numbers of leaves below nodes of a level, in descending order.

    A node's leaves are the product of its areas' leaves, so the largest products of two sorted
    lists are among the first n of each.
    """
    largest = np.ones(1, dtype=object)
    for dimension, depth in zip(tree.dimensions, tree.depths[level], strict=True):
        own = np.sort(dimension.n_leaves(depth))[::-1][:n].astype(object)
        largest = np.sort(np.multiply.outer(largest, own).ravel())[::-1][:n]
    return [int(count) for count in largest]


PRECISION = 256
"""Bits of the integer bounds on exponentials, far beyond the smallest delta."""


class StabilityHistogram(NamedTuple):
    """Scale of the noise and the smallest count that is listed."""

    scale: Fraction
    threshold: int


def stability_histogram(
    privacy: TripsPrivacy, epsilon: Fraction, delta: Fraction
) -> StabilityHistogram:
    """The histogram that is (epsilon, delta)-differentially private, with the least threshold.

    >>> stability_histogram(TripsPrivacy(dataset="d"), Fraction(1), Fraction(1, 10**8))
    StabilityHistogram(scale=Fraction(2, 1), threshold=37)
    """
    scale = l1_sensitivity(privacy) / epsilon
    allowed = min(delta, 1 - _exp_minus(1 / scale)[1])
    least = privacy.trips_per_person + 1
    above = first_that(lambda k: listing_bound(least + k, scale, privacy) <= allowed)
    return StabilityHistogram(scale, least + above)


def listing_bound(threshold: int, scale: Fraction, privacy: TripsPrivacy) -> Fraction:
    """Upper bound on delta_1 at a threshold above m, rounded up."""
    m = privacy.trips_per_person
    spread_out = m * _chance_bound(threshold - 1, scale)
    if privacy.distinct_trips:
        return spread_out
    return max(spread_out, _chance_bound(threshold - m, scale))


def _chance_bound(k: int, scale: Fraction) -> Fraction:
    """Upper bound on P(Z >= k) = q^k / (1 + q), for k >= 1."""
    return _exp_minus(k / scale)[1] / (1 + _exp_minus(1 / scale)[0])


def _exp_minus(x: Fraction) -> tuple[Fraction, Fraction]:
    """Lower and upper bound on exp(-x)."""
    low, high = exp_minus_bounds(x, PRECISION)
    return Fraction(low, 1 << PRECISION), Fraction(high, 1 << PRECISION)


SMALLEST_SHARE = 1e-3


def measured_levels(tree: Tree, privacy: TripsPrivacy) -> tuple[int, ...]:
    """The levels that a top-down mechanism measures.

    All, less an invariant root and less levels with as many nodes as the level above: every node of
    these is an only child and has its parent's count, so that noise would buy nothing. The leaves
    are measured in any case if no other level is.
    """
    first = 1 if privacy.has_invariant_total else 0
    levels = tuple(
        level
        for level in range(first, tree.depth + 1)
        if not level or tree.n_nodes(level) > tree.n_nodes(level - 1)
    )
    return levels or (tree.depth,)


def level_measures(
    tree: Tree, privacy: TripsPrivacy, rho: Fraction | None, shares: Mapping[int, Fraction]
) -> dict[int, Measure]:
    """The measured levels with these shares of rho, None without noise.

    Their discrete Gaussian noise has sigma^2 = Delta^2 / (2 rho share). Raises ValueError if the
    shares are not sound.
    """
    if any(share <= 0 for share in shares.values()) or sum(shares.values(), Fraction(0)) != 1:
        raise ValueError("the shares of the levels must be positive and add to exactly 1")
    found = {}
    for level, share in sorted(shares.items()):
        moved = squared_sensitivity(tree, level, privacy)
        noise = None if rho is None else Noise(DISCRETE_GAUSSIAN, moved / (2 * rho * share))
        found[level] = _measure(tree, level, noise, share, "counts", moved)
    return found


def _measure(
    tree: Tree, level: int, noise: Noise | None, share: Fraction, query: str, moved: int | None
) -> Measure:
    name, n = tree.level_name(level), tree.n_nodes(level)
    return Measure(level_folder(level), noise, share, name, query, moved=moved, areas=n)


def geometric_shares(levels: Sequence[int], ratio: Fraction = Fraction(1)) -> dict[int, Fraction]:
    """Compute shares by level, each `ratio` times that of the level above; by default all the same,
    as in [InfTDA2024].

    >>> geometric_shares([1, 2], Fraction(1, 2))
    {1: Fraction(2, 3), 2: Fraction(1, 3)}
    """
    weights = [ratio**i for i in range(len(levels))]
    return {level: weight / sum(weights) for level, weight in zip(levels, weights, strict=True)}


def mean_fanouts(tree: Tree) -> list[float]:
    """Mean number of children of the nodes of levels 0 to T - 1."""
    return [tree.n_nodes(level + 1) / tree.n_nodes(level) for level in range(tree.depth)]


def optimised_shares(
    tree: Tree, privacy: TripsPrivacy, levels: Sequence[int]
) -> dict[int, Fraction]:
    """Shares of the measured `levels`, thousandths that add to exactly 1."""
    fanouts = mean_fanouts(tree)
    # A level of only children that is not measured is the level above under another name.
    counted = [
        level for level, fanout in enumerate(fanouts, start=1) if fanout > 1 or level in levels
    ]
    squares = np.array([squared_sensitivity(tree, level, privacy) for level in levels])

    def shares_of(parameters: np.ndarray) -> np.ndarray:
        weights = np.exp(parameters - parameters.max())
        return SMALLEST_SHARE + (1 - SMALLEST_SHARE * len(levels)) * weights / weights.sum()

    regular = RegularTree(tuple(fanouts), privacy.has_invariant_total)

    def log_product(parameters: np.ndarray) -> float:
        precisions = np.zeros(tree.depth + 1)
        precisions[list(levels)] = shares_of(parameters) / squares
        found = regular.variances(precisions)
        return float(np.log(found[counted][found[counted] > 0]).sum())

    best = minimize(log_product, np.zeros(len(levels)), method="L-BFGS-B")
    return dict(zip(levels, thousandths(shares_of(best.x)), strict=True))


@dataclass(frozen=True, eq=False)
class TreelessPlan:
    """A mechanism, without its tree.

    measures : the measured levels, root first.
    threshold : the smallest count that the stability histogram lists; None for other mechanisms.
    measures_all : whether all nodes are measured, rather than children of nodes that were found
        positive.
    """

    mechanism: str
    guarantee: Guarantee | None
    measures: Mapping[int, Measure]
    threshold: int | None
    measures_all: bool


@dataclass(frozen=True, eq=False)
class Plan(TreelessPlan):
    """A mechanism on a tree."""

    tree: Tree

    @property
    def levels(self) -> tuple[int, ...]:
        """The measured levels, in the order in which they are measured."""
        return tuple(self.measures)

    @property
    def shares(self) -> dict[int, Fraction]:
        """The shares of the measured levels."""
        return {level: own.share for level, own in self.measures.items()}

    def parameter(self, level: int) -> Fraction:
        """sigma^2 of a measured level, or the stability histogram's scale; 0 without noise."""
        noise = self.measures[level].noise
        return Fraction(0) if noise is None else noise.parameter

    def universe(self, delta: Fraction = REPORT_DELTA) -> UniversePlan:
        """Measures and guarantee; epsilons of a rho are given at `delta`."""
        mechanism = DISCRETE_GAUSSIAN if self.threshold is None else DISCRETE_LAPLACE
        loss = None if self.guarantee is None else self.guarantee.parameter
        measures = tuple(self.measures.values())
        return UniversePlan(UNIVERSE, mechanism, self.guarantee, loss, measures, delta)

    @property
    def inferred(self) -> tuple[int, ...]:
        """Levels that a top-down mechanism knows without measuring them: an invariant root, and
        levels of only children, which have their parents' counts."""
        levels = range(self.tree.depth + 1) if self.is_top_down else ()
        return tuple(level for level in levels if level not in self.measures)

    @property
    def is_top_down(self) -> bool:
        """Whether estimates are consistent, not negative, and keep an invariant root."""
        return self.mechanism in TOP_DOWN

    @property
    def is_selected(self) -> bool:
        """Whether a first top-down pass decides the measurements, and all are combined after it."""
        return self.mechanism == FULL_INFORMATION and not self.measures_all


def make_plan(settings: TripsSettings, tree: Tree) -> Plan:
    """The plan of a run; raises InputRefused for shares that do not fit the tree."""
    name, privacy = settings.mechanism.name, settings.privacy
    if name == STABILITY_HISTOGRAM:
        noise, guarantee, threshold, moved = None, None, 1, None
        if not privacy.infinite:
            epsilon, delta = privacy.epsilon_and_delta
            scale, threshold = stability_histogram(privacy, epsilon, delta)
            noise, moved = Noise(DISCRETE_LAPLACE, scale), l1_sensitivity(privacy)
            guarantee = Guarantee(PURE_DP, epsilon, privacy.neighbors, delta)
        leaves = _measure(tree, tree.depth, noise, Fraction(1), "positive counts", moved)
        return Plan(name, guarantee, {tree.depth: leaves}, threshold, True, tree)
    shares: Mapping[int, Fraction] = {tree.depth: Fraction(1)}
    measures_all = True
    if name in TOP_DOWN:
        shares = _shares(settings, tree)
        n_nodes = sum(tree.n_nodes(level) for level in range(tree.depth + 1))
        measures_all = name == FULL_INFORMATION and n_nodes <= settings.mechanism.most_nodes
    rho = settings.rho
    return Plan(
        name,
        None if rho is None else Guarantee(ZCDP, rho, privacy.neighbors),
        level_measures(tree, privacy, rho, shares),
        None,
        measures_all,
        tree,
    )


def _shares(settings: TripsSettings, tree: Tree) -> Mapping[int, Fraction]:
    levels = measured_levels(tree, settings.privacy)
    given = settings.mechanism.shares
    if isinstance(given, str):
        if given == "optimised":
            return optimised_shares(tree, settings.privacy, levels)
        return geometric_shares(levels, settings.mechanism.share_ratio)
    if len(given) != len(levels):
        raise InputRefused(
            f"mechanism.shares lists {len(given)} shares, but {len(levels)} levels are measured "
            f"({', '.join(tree.level_name(level) for level in levels)}); list one for each."
        )
    return dict(zip(levels, given, strict=True))


def write_plan(run: RunDirectory, plan: Plan) -> None:
    """Write a plan in one step, but for its tree, which has files of its own."""
    facts = {name: value for name, value in vars(plan).items() if name != "tree"}
    write_values(plan_file(run), TreelessPlan(**facts))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run, which its ingest has written."""
    return Plan(**vars(read_values(plan_file(run), TreelessPlan)), tree=read_tree(run).tree)
