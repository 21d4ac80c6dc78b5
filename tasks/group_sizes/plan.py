"""The mechanisms for group sizes, and the plan of a run: its vectors, sensitivities and noise.

A mechanism measures one vector at every level and estimates the group sizes from all levels' noisy
vectors. Levels are disjoint queries on the same people, so their losses add; the regions of one
level hold disjoint groups, so a level is charged once. Noise is discrete Laplace, of the scale that
the L1 norm of a change needs for a share of epsilon, or discrete Gaussian, of the variance that its
squared L2 norm needs for a share of rho (zCDP).

Neighbouring datasets (`accounting.UNBOUNDED`): one person joins or leaves a group that is there
with and without the person, and changes its size by at most `quantity` q, which is 1 where every
person counts once. Groups neither appear nor vanish nor move to another region, which is why their
numbers may be invariants; where groups may be empty (size 0), this covers people who live alone
too. Bounded neighbours (`accounting.BOUNDED`): a person moves from one group to another. The
sensitivities below are of one level, and the tests confirm them over all neighbours of all small
datasets. A largest size that means "N or more" lowers sizes to N, after which a person still
changes a size by at most q: no sensitivity grows.

`group_sizes`
    n[r, s], the groups of size s in region r. A person who joins a group of size k in region r
    takes it out of n[r, k] and puts it into n[r, k + q]: two entries change by one, for any q. L1
    is 2, squared L2 is 2. A person who moves changes four entries: L1 is 4. Two of them may be the
    same entry and change by two, where both groups had, or have afterwards, the same size, but not
    both pairs at once, since then nothing would have changed: squared L2 is 4 + 1 + 1 = 6.
`cumulative_group_sizes`
    c[r, s] = n[r, 1] + ... + n[r, s]. In region r the entries k, ..., k + q - 1 fall by one, and no
    other: L1 and squared L2 are q, which is 1 for quantity 1 (Lemma 6 of [GroupSizes2021]). A
    person who moves raises q entries by one and lowers q by one; entries that do both stay. L1 and
    squared L2 are 2 q.
`chained_cumulative_group_sizes`
    C[s, r] sums n over all pairs up to (s, r), sizes first and regions within: the groups below
    size s of all regions, and those of size s of the first r regions. The group leaves at (k, r)
    and returns at (k + q, r), so that every entry in between falls by one, and there are q R of
    them, where R is the number of regions of the level: L1 and squared L2 are q R, and 2 q R for a
    person who moves. In L2 itself that is sqrt(R) where it is R in L1. The paper calibrates this
    vector to a sensitivity of 1 ("published"), which covers only levels of a single region.

The plan of a run is everything public that decides its measurements and estimates. It is written
once, before anything is drawn, so that a later version of the code with other choices still
interprets the measurements correctly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from ..ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, ZCDP, Guarantee
from ..ledger.plan import Measure, UniversePlan
from ..noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, Noise
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused

UNIVERSE = "groups"
"""The universe in the names of measurement and estimate folders."""


def regions_file(run: RunDirectory) -> Path:
    """The hierarchy: level, region, parent; public."""
    return run.root / "hierarchy" / "regions.parquet"


def plan_file(run: RunDirectory) -> Path:
    """The plan, which is written last by the ingest; public."""
    return run.root / "hierarchy" / "plan.json"


def exact_groups_file(run: RunDirectory) -> Path:
    """The public numbers of groups of the plan's exact level: region, groups."""
    return run.root / "hierarchy" / "exact_groups.parquet"


GROUP_SIZES = "group_sizes"
CUMULATIVE_GROUP_SIZES = "cumulative_group_sizes"
CHAINED_CUMULATIVE_GROUP_SIZES = "chained_cumulative_group_sizes"

HIERARCHICAL = "hierarchical"
HIERARCHICAL_DP = "hierarchical_dp"
CUMULATIVE = "cumulative"
CUMULATIVE_DP = "cumulative_dp"
CHAIN_DP = "chain_dp"
TOPDOWN = "topdown"

VECTOR_OF: Mapping[str, str] = {
    HIERARCHICAL: GROUP_SIZES,
    HIERARCHICAL_DP: GROUP_SIZES,
    CUMULATIVE: CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_DP: CUMULATIVE_GROUP_SIZES,
    CHAIN_DP: CHAINED_CUMULATIVE_GROUP_SIZES,
    TOPDOWN: GROUP_SIZES,
}
"""The vector that each mechanism measures."""

RELAXED = (HIERARCHICAL, CUMULATIVE)
"""Baselines that round a relaxed program: their counts need not add up."""

KEEP_ROWS = (HIERARCHICAL_DP, CUMULATIVE_DP)
"""Mechanisms that can keep public numbers of groups by region."""

PROVEN: Final = "proven"
PUBLISHED: Final = "published"
"""Calibrations: to the sensitivities above, or to the paper's."""


def sensitivity(
    vector: str,
    n_regions: int,
    *,
    bounded: bool = False,
    quantity: int = 1,
    is_squared: bool = False,
) -> int:
    """L1 sensitivity of a vector at a level of `n_regions` regions, or its squared L2 sensitivity;
    see the module's docstring.

    `bounded` takes datasets in which a person moves between groups as neighbours. `quantity` is the
    most by which one person changes the size of a group. Cumulative entries change by one at most,
    so that both are the same there.

    >>> sensitivity(CHAINED_CUMULATIVE_GROUP_SIZES, 52)
    52
    >>> sensitivity(GROUP_SIZES, 52, bounded=True, is_squared=True)
    6
    """
    if vector == GROUP_SIZES:
        return 2 if not bounded else 6 if is_squared else 4
    entries = quantity * (n_regions if vector == CHAINED_CUMULATIVE_GROUP_SIZES else 1)
    return 2 * entries if bounded else entries


def level_weights(
    variances: Sequence[Fraction | None], *, resolution: int = 4, most: int = 1 << 18
) -> tuple[int, ...]:
    """Integer weights of the levels' squared distances, in proportion to 1 / variance.

    They are all 1 for equal variances, and 0 for a level that is not measured. Otherwise the
    noisiest level gets `resolution`, and ratios are rounded to multiples of 1 / resolution and cut
    at `most` / resolution. Any weights give a private and consistent result; these are nearly those
    of maximum likelihood.

    >>> level_weights([Fraction(1), Fraction(4), Fraction(4), None])
    (16, 4, 4, 0)
    """
    measured = [variance for variance in variances if variance is not None]
    noisiest = max(measured)
    if min(measured) == noisiest:
        return tuple(int(variance is not None) for variance in variances)
    return tuple(
        0 if variance is None else min(most, round(resolution * noisiest / variance))
        for variance in variances
    )


def default_mechanism(n_regions: Sequence[int], *, quantity: int = 1) -> str:
    """The mechanism for these numbers of regions per level, from public sizes alone.

    That whose noise is least in a single count of the finest level, as a standard deviation in
    units of sqrt(2) levels / epsilon: the sensitivity, times sqrt(2) where a count is a difference
    of two cumulative ones. Neither N nor epsilon changes the order, and with Gaussian noise it is
    the same: there `cumulative_dp` and `hierarchical_dp` tie where a person counts once, and
    monotone counts were nearer to the truth wherever both were tried. Where a person counts once
    this is `cumulative_dp`, or `chain_dp` where no level has more than one region, because its
    single program is then as quiet and exact; if a person may count twice and more,
    `hierarchical_dp`.

    >>> default_mechanism([1, 52, 3144]), default_mechanism([1])
    ('cumulative_dp', 'chain_dp')
    """
    finest = n_regions[-1]
    variance = {
        CHAIN_DP: 2 * sensitivity(CHAINED_CUMULATIVE_GROUP_SIZES, finest, quantity=quantity) ** 2,
        CUMULATIVE_DP: 2 * sensitivity(CUMULATIVE_GROUP_SIZES, finest, quantity=quantity) ** 2,
        HIERARCHICAL_DP: sensitivity(GROUP_SIZES, finest, quantity=quantity) ** 2,
    }
    return min(variance, key=variance.__getitem__)


LARGEST_NOISE_IN_SCALES = 64
"""A draw beyond this many scales has a probability below 1e-27."""
LARGEST_SUM = 1 << 59


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run; `groups` is the public total, sizes run from smallest to largest.

    `epsilon` or `rho` is the run's cost, neither without noise. `is_top_coded` means that the
    largest size includes all larger ones. `exact_level` names the level whose regions have public
    numbers of groups; None if only the total is public. `levels` have a measure each, root first; a
    level that is not measured has a share of 0 and no noise.
    """

    mechanism: str
    calibration: str = PROVEN
    bounded: bool = False
    quantity: int = 1
    epsilon: Fraction | None = None
    smallest_size: int
    largest_size: int
    groups: int
    levels: tuple[Measure, ...] = ()
    rho: Fraction | None = None
    is_top_coded: bool = False
    exact_level: str | None = None

    @property
    def vector(self) -> str:
        """The vector that is measured at every level."""
        return VECTOR_OF[self.mechanism]

    @property
    def noise(self) -> str:
        """The mechanism that noise comes from; discrete Laplace also where it is switched off."""
        return DISCRETE_LAPLACE if self.rho is None else DISCRETE_GAUSSIAN

    @property
    def loss(self) -> Fraction | None:
        """Cost of the run: rho or epsilon, None without noise."""
        return self.epsilon if self.rho is None else self.rho

    @property
    def n_sizes(self) -> int:
        """Number of sizes."""
        return self.largest_size - self.smallest_size + 1

    @property
    def universe(self) -> UniversePlan:
        """The noise of all levels and its guarantee: epsilon of pure differential privacy, or rho
        of zCDP; neither without noise, or with the published scale.

        The levels' parts add up. The noise is calibrated to the neighbours of the plan: bounded,
        where a person moves between groups, or unbounded, where one joins or leaves a group; an
        unbounded rho is charged as four times itself in bounded zCDP, by group privacy.
        """
        guarantee = None
        if self.loss is not None and self.calibration == PROVEN:
            neighbors = BOUNDED if self.bounded else UNBOUNDED
            guarantee = Guarantee(PURE_DP if self.rho is None else ZCDP, self.loss, neighbors)
        return UniversePlan(UNIVERSE, self.noise, guarantee, self.loss, self.levels)

    @property
    def measured(self) -> tuple[int, ...]:
        """Positions of the measured levels."""
        return tuple(depth for depth, level in enumerate(self.levels) if level.share)

    @property
    def repeated(self) -> dict[str, str]:
        """The levels with the regions of a level above, which is measured for both."""
        first = merged_levels([level.areas for level in self.levels])
        return {
            level.level: self.levels[own].level
            for depth, (level, own) in enumerate(zip(self.levels, first, strict=True))
            if own != depth
        }

    @property
    def weights(self) -> tuple[int, ...]:
        """Weight of the squared distances of each level, 0 where nothing is measured.

        Without noise they are those of any noise.
        """
        return level_weights([_variance(self, own, Fraction(1)) for own in self.levels])


def _variance(plan: Plan, level: Measure, loss: Fraction) -> Fraction | None:
    """Squared scale or sigma^2 of a level at a loss, up to a constant; None if not measured."""
    if not level.share:
        return None
    return ((level.moved or 0) / (loss * level.share)) ** (2 if plan.rho is None else 1)


def calibrate(
    plan: Plan,
    names: Sequence[str],
    n_regions: Sequence[int],
    shares: Sequence[Fraction] | None = None,
) -> Plan:
    """A plan with its levels, their noise calibrated to their shares.

    Args:
        plan: the plan without levels; epsilon or rho, for discrete Laplace or Gaussian noise,
            neither to switch it off.
        names, n_regions: the levels, root first.
        shares: of the budget, for each level, the finest positive; by default equal among the
            levels that differ in their regions. A level of the same regions as the one above is
            measured with that one, which gets the shares of both.

    A level's noise has the scale sensitivity / (epsilon share), or as sigma^2 the squared
    sensitivity / (2 rho share).

    Raises InputRefused if sums of noisy counts could leave 64 bits.
    """
    is_squared = plan.rho is not None
    loss = plan.loss if plan.rho is None else 2 * plan.rho
    levels = []
    for name, n, share in zip(names, n_regions, merged_shares(shares, n_regions), strict=True):
        # The published scale is that of one region, and of a person who counts once.
        moved = sensitivity(plan.vector, 1)
        if plan.calibration == PROVEN:
            moved = sensitivity(
                plan.vector, n, bounded=plan.bounded, quantity=plan.quantity, is_squared=is_squared
            )
        noise = Noise(plan.noise, moved / (loss * share)) if loss and share else None
        answers = n * plan.n_sizes
        own = Measure(name, noise, share, name, plan.vector, moved, areas=n, answers=answers)
        levels.append(own)
    plan = replace(plan, levels=tuple(levels))
    _refuse_overflow(plan, loss or Fraction(1))
    return plan


def merged_levels(n_regions: Sequence[int | None]) -> tuple[int, ...]:
    """For each level the position of the first one that has the same regions.

    Every region has regions below it, so that two levels with as many regions have the same ones.

    >>> merged_levels([1, 1, 5, 5])
    (0, 0, 2, 2)
    """
    return tuple(n_regions.index(n) for n in n_regions)


def merged_shares(shares: Sequence[Fraction] | None, n_regions: Sequence[int]) -> list[Fraction]:
    """The shares of the measured levels; those of merged levels are added up."""
    same_as = merged_levels(n_regions)
    distinct = sorted(set(same_as))
    if shares is None:
        shares = [Fraction(int(i in distinct), len(distinct)) for i in range(len(same_as))]
    merged = [Fraction(0)] * len(same_as)
    for first, share in zip(same_as, shares, strict=True):
        merged[first] += share
    return merged


def _refuse_overflow(plan: Plan, loss: Fraction) -> None:
    variance = max(_variance(plan, plan.levels[depth], loss) or 0 for depth in plan.measured)
    largest = plan.groups + LARGEST_NOISE_IN_SCALES * (math.isqrt(math.ceil(variance)) + 1)
    weights = plan.weights
    n_values = sum(
        (level.answers or 0) * weight for level, weight in zip(plan.levels, weights, strict=True)
    )
    if largest * max(n_values, 16 * sum(weights)) >= LARGEST_SUM:
        raise InputRefused(
            "The noise would not fit 64-bit integers: spend more, or choose another mechanism, "
            "fewer regions or a smaller mechanism.largest_size."
        )
