"""The plan of a run: everything public that decides what is measured and how it is estimated.

It is written once, before anything is drawn, so that a later version of the code that would choose
otherwise still reads the measurements for what they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...noise.draws import Noise
from ...noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from .mechanisms import (
    PUBLISHED,
    PUBLISHED_SENSITIVITY,
    VECTOR_OF,
    default_mechanism,
    level_weights,
    sensitivity,
    squared_sensitivity,
)

LARGEST_NOISE_IN_SCALES = 64
"""A draw beyond this many scales has a probability below 1e-27."""
LARGEST_SUM = 1 << 59


class ImpossiblePlan(ValueError):
    """Noise of such a scale would leave 64-bit integers."""


@dataclass(frozen=True)
class LevelPlan:
    """What one level is measured with.

    `sensitivity` is the L1 norm of the largest change and `scale` that of discrete Laplace noise,
    or `sensitivity` is the squared L2 norm and `sigma_squared` the parameter of discrete Gaussian
    noise. A level that is not measured has neither, and a share and a weight of 0; `same_as` then
    names the measured level above that has the same regions, or is None if the settings give the
    level no share.
    """

    level: str
    n_regions: int
    share: Fraction
    sensitivity: int
    scale: Fraction | None
    weight: int
    sigma_squared: Fraction | None = None
    same_as: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the level has a share of the budget."""
        return self.share > 0

    def noise_of(self, mechanism: str) -> Noise | None:
        """The level's noise, None without noise."""
        parameter = self.scale if self.sigma_squared is None else self.sigma_squared
        return None if parameter is None else Noise(mechanism, parameter)


@dataclass(frozen=True)
class Plan:
    """The plan of a run; `groups` is the public total, sizes run from smallest to largest.

    `epsilon` or `rho` is what the run costs, neither without noise. `is_top_coded` says that the
    largest size stands for itself and all above. `exact_level` names the level whose regions have
    public numbers of groups; None if only the total is public.
    """

    mechanism: str
    calibration: str
    bounded: bool
    quantity: int
    epsilon: Fraction | None
    smallest_size: int
    largest_size: int
    groups: int
    levels: tuple[LevelPlan, ...]
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
        """What the run costs: rho or epsilon, None without noise."""
        return self.epsilon if self.rho is None else self.rho

    @property
    def n_sizes(self) -> int:
        """Number of sizes."""
        return self.largest_size - self.smallest_size + 1

    @property
    def measured(self) -> tuple[int, ...]:
        """Positions of the measured levels."""
        return tuple(depth for depth, level in enumerate(self.levels) if level.is_measured)

    @property
    def measured_levels(self) -> tuple[LevelPlan, ...]:
        """The measured levels."""
        return tuple(level for level in self.levels if level.is_measured)

    @property
    def weights(self) -> tuple[int, ...]:
        """Weight of the squared distances of each level, 0 where nothing is measured."""
        return tuple(level.weight for level in self.levels)


def make_plan(
    *,
    names: Sequence[str],
    n_regions: Sequence[int],
    sizes: tuple[int, int],
    groups: int,
    epsilon: Fraction | None,
    rho: Fraction | None = None,
    shares: Sequence[Fraction] | None = None,
    mechanism: str | None = None,
    calibration: str = "proven",
    bounded: bool = False,
    quantity: int = 1,
    is_top_coded: bool = False,
    exact_level: str | None = None,
) -> Plan:
    """Choose the mechanism if none is named, and calibrate every level.

    Args:
        names, n_regions: the levels, root first.
        sizes: the smallest and the largest size.
        groups: the public total.
        epsilon, rho: one of them, for discrete Laplace or Gaussian noise; neither switches it off.
        shares: of the budget, for each level, the finest positive; by default equal among the
            levels that differ in their regions. A level of the same regions as the one above is
            measured with that one, which gets the shares of both.
        exact_level: the level whose regions have public numbers of groups.

    A level's noise has the scale sensitivity / (epsilon share), or as sigma^2 the squared
    sensitivity / (2 rho share). Without noise all levels count alike, as they do with any noise.

    Raises ImpossiblePlan if sums of noisy counts could leave 64 bits.
    """
    same_as = merged_levels(n_regions)
    shares = _merged_shares(shares, same_as)
    mechanism = mechanism or default_mechanism(n_regions, quantity=quantity)
    vector = VECTOR_OF[mechanism]
    if calibration == PUBLISHED:
        changes = [PUBLISHED_SENSITIVITY[vector]] * len(names)
    else:
        norm = sensitivity if rho is None else squared_sensitivity
        changes = [norm(vector, n, bounded=bounded, quantity=quantity) for n in n_regions]
    loss = 2 * rho if rho is not None else epsilon or Fraction(1)
    parameters = [
        change / (loss * share) if share else None
        for change, share in zip(changes, shares, strict=True)
    ]
    power = 2 if rho is None else 1
    variances = [None if parameter is None else parameter**power for parameter in parameters]
    weights = level_weights(variances)
    levels = tuple(
        LevelPlan(
            name,
            n_regions[depth],
            shares[depth],
            changes[depth],
            scale=parameters[depth] if rho is None and epsilon is not None else None,
            weight=weights[depth],
            sigma_squared=None if rho is None else parameters[depth],
            same_as=None if same_as[depth] == depth else names[same_as[depth]],
        )
        for depth, name in enumerate(names)
    )
    plan = Plan(
        mechanism,
        calibration,
        bounded,
        quantity,
        epsilon,
        *sizes,
        groups,
        levels,
        rho,
        is_top_coded,
        exact_level,
    )
    _refuse_overflow(plan, max(variance for variance in variances if variance is not None))
    return plan


def merged_levels(n_regions: Sequence[int]) -> tuple[int, ...]:
    """For each level the position of the first one that has the same regions.

    Every region has regions below it, so that two levels with as many regions have the same ones.

    >>> merged_levels([1, 1, 5, 5])
    (0, 0, 2, 2)
    """
    return tuple(n_regions.index(n) for n in n_regions)


def _merged_shares(
    shares: Sequence[Fraction] | None, same_as: Sequence[int]
) -> tuple[Fraction, ...]:
    """The shares of the levels that are measured; those of merged levels are added up."""
    distinct = sorted(set(same_as))
    if shares is None:
        shares = [Fraction(int(i in distinct), len(distinct)) for i in range(len(same_as))]
    merged = [Fraction(0)] * len(same_as)
    for first, share in zip(same_as, shares, strict=True):
        merged[first] += share
    return tuple(merged)


def _refuse_overflow(plan: Plan, variance: Fraction) -> None:
    largest = plan.groups + LARGEST_NOISE_IN_SCALES * (math.isqrt(math.ceil(variance)) + 1)
    n_values = sum(level.n_regions * level.weight for level in plan.levels) * plan.n_sizes
    if largest * max(n_values, 16 * sum(plan.weights)) >= LARGEST_SUM:
        raise ImpossiblePlan
