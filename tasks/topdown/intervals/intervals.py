"""Confidence intervals from estimates, their variances, and the range of counts.

An estimate mostly adds up a great many independent noises, so that its error is normal for all
purposes: of level p, z = the normal quantile of (1 + p) / 2, the interval is estimate +- z sd.
Where it rests on one answer alone its error is that answer's noise, a whole number: the interval
then reaches to the quantile of this noise, the smallest whole k with P(|X| <= k) >= p, if that is
farther: at 90 % and a variance of 0.5 to 1, although 1.645 deviations are 1.16.

The truth is a whole number. Taking an interval to the whole numbers inside it loses nothing that
could be true, and so keeps the coverage; the same applies to cutting at a lower or upper bound. It
holds for the difference of two answers.

Intervals of published cells: any answers, such as a table's variables, of any areas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import ndtr, ndtri

from ...noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ..estimation.spine_estimates import GroupedEstimates
from .answers import AnswerCovariances, ProductAnswers, covariances_of, estimates_of
from .areas import BlockAreas, area_covariances, area_estimates
from .run_posterior import LevelBounds, RunPosterior

ROUNDING = 1e-7
"""Distance, in records, by which a whole number may miss an interval and count as inside."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of n_answers answers: lower and upper from the estimates alone, and bounded_lower
    and bounded_upper with known bounds of the counts; all whole numbers."""

    lower: np.ndarray
    upper: np.ndarray
    bounded_lower: np.ndarray
    bounded_upper: np.ndarray


def intervals_of(
    estimate: np.ndarray,
    variance: np.ndarray,
    level: float,
    at_least: np.ndarray,
    at_most: np.ndarray,
    mechanism: str = DISCRETE_GAUSSIAN,
) -> Intervals:
    """Intervals that hold the truth with probability `level` at least.

    The bounded kind is the other one's whole numbers that also lie between `at_least` and
    `at_most`, which the truth does in any case: it covers exactly as often, and is never longer.
    Where an interval contains no whole number, the nearest to the estimate replaces it.

    mechanism : noise distribution of the measurements.

    Example: 3.6 with variance 1 at 90 %, counts from 3: from 2 to 5, and from 3 to 5.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval is a number between 0 and 1, such as 0.9")
    reach = float(ndtri(0.5 + level / 2)) * np.sqrt(variance)
    if mechanism == DISCRETE_LAPLACE:
        farther = _laplace_quantiles(variance, level)
    else:
        largest = _largest_variances(level)
        is_wide = variance > largest[-1]
        farther = np.where(is_wide, np.ceil(reach - 0.5), np.searchsorted(largest, variance))
    reach = np.maximum(reach, farther)
    lower, upper = np.ceil(estimate - reach - ROUNDING), np.floor(estimate + reach + ROUNDING)
    has_none = lower > upper
    lower, upper = (np.where(has_none, np.rint(estimate), end) for end in (lower, upper))
    ends = lower, upper, *(np.clip(end, at_least, at_most) for end in (lower, upper))
    return Intervals(*(end.astype(np.int64) for end in ends))


def _laplace_quantiles(variance: np.ndarray, level: float) -> np.ndarray:
    """The smallest whole k with P(|X| <= k) >= level for discrete Laplace noise X of these
    variances."""
    some = np.where(variance > 0, variance, 1.0)
    rate = some / (some + 1.0 + np.sqrt(2.0 * some + 1.0))
    k = np.ceil(np.log((1.0 - level) * (1.0 + rate) / 2.0) / np.log(rate) - 1.0 - 1e-12)
    return np.where(variance > 0, np.maximum(k, 0.0), 0.0)


WIDE_VARIANCE = 400.0
"""Variance up to which quantiles of discrete Gaussian noise are computed; beyond, the quantiles of
a rounded normal are the same."""


NEAR = 2.0
"""Most distance of the logarithm of sigma^2 from its value where (k + 1/2) / z equals sigma."""
HALVINGS = 50
"""Halvings of that interval, after which its ends are neighbouring doubles."""


@lru_cache(maxsize=16)
def _largest_variances(level: float) -> np.ndarray:
    """For each k, the largest variance of discrete Gaussian noise with P(|X| <= k) >= level, up to
    the first beyond `WIDE_VARIANCE`.

    P falls as sigma grows: the sigma of each k, at which it is `level`, is enclosed by halving.
    """
    z = float(ndtri(0.5 + level / 2))
    k = np.arange(math.ceil(z * math.sqrt(WIDE_VARIANCE)) + 2)
    low = 2.0 * np.log((k + 0.5) / z) - NEAR
    high = low + 2.0 * NEAR
    x = np.arange(2 + math.ceil(12.0 * math.exp(high[-1] / 2.0)))
    times = np.where(x > 0, 2.0, 1.0)

    def masses(log_sigma_squared: np.ndarray) -> np.ndarray:
        weight = np.exp(-x * x / (2.0 * np.exp(log_sigma_squared)[:, None])) * times
        return weight / weight.sum(axis=1, keepdims=True)

    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        is_wide = np.where(x <= k[:, None], masses(middle), 0.0).sum(axis=1) < level
        low, high = np.where(is_wide, low, middle), np.where(is_wide, middle, high)
    variances = masses(low) @ (x * x).astype(np.float64)
    return variances[: np.searchsorted(variances, WIDE_VARIANCE) + 1]


class ComparedAnswers(NamedTuple):
    """Functions of two answers each, arrays of one shape: estimates, standard deviations, and the
    ends of intervals; not a number where undetermined."""

    estimate: np.ndarray
    std_dev: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def differences(
    first: np.ndarray,
    second: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
    covariance: np.ndarray,
    level: float,
    mechanism: str = DISCRETE_GAUSSIAN,
) -> tuple[ComparedAnswers, np.ndarray]:
    """The first answers less the second, and the probability of a difference as large in size if
    there were none: the two-sided test of its sign, exact for normal errors.

    A difference of counts is a whole number, and so are the ends of its interval.

    variances, covariance : of the two answers' errors. Example: 7 less 4 with variances of 1 and a
    covariance of 0 is 3 with a deviation of 1.41, from 1 to 5 at 90 %, and p = 0.034.
    """
    estimate = np.asarray(first - second, dtype=np.float64)
    variance = variances[0] + variances[1] - 2.0 * covariance
    variance = np.where(variance > ROUNDING * ROUNDING, variance, 0.0)
    nowhere = np.full(estimate.shape, np.inf)
    found = intervals_of(estimate, variance, level, -nowhere, nowhere, mechanism)
    sd = np.sqrt(variance)
    scaled = np.abs(estimate) / np.where(sd > 0, sd, 1.0)
    is_nothing = np.abs(estimate) <= ROUNDING
    p_value = np.where(sd > 0, 2.0 * ndtr(-scaled), is_nothing.astype(np.float64))
    return ComparedAnswers(estimate, sd, found.lower, found.upper), p_value


def ratios(
    first: np.ndarray,
    second: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
    covariance: np.ndarray,
    level: float,
) -> ComparedAnswers:
    """The first answers over the second; not a number where the second may be zero.

    The standard deviation is by the delta method. The interval is Fieller's: the ratios r for which
    the difference of the first and r times the second is not significant, which is exact for normal
    errors. A share of a whole is the ratio of a part to it.
    """
    z = float(ndtri(0.5 + level / 2))
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    xx, yy = variances
    xy = covariance
    a = y * y - z * z * yy
    is_defined = (a > 0) & (np.abs(y) > ROUNDING)
    y, a = np.where(is_defined, y, 1.0), np.where(is_defined, a, 1.0)
    b, c = x * y - z * z * xy, x * x - z * z * xx
    value = x / y
    sd = np.sqrt(np.maximum(xx - 2 * value * xy + value**2 * yy, 0.0)) / np.abs(y)
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    ends = value, sd, (b - root) / a, (b + root) / a
    return ComparedAnswers(*(np.where(is_defined, end, np.nan) for end in ends))


def shares(
    part: np.ndarray,
    whole: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
    covariance: np.ndarray,
    level: float,
) -> ComparedAnswers:
    """Ratios of parts to their wholes, which lie between 0 and 1: the ends of their intervals too.

    The removed part cannot be true, so that the intervals cover as often as `ratios`.
    """
    found = ratios(part, whole, variances, covariance, level)
    return found._replace(lower=found.lower.clip(0.0, 1.0), upper=found.upper.clip(0.0, 1.0))


AREAS_AT_ONCE = 1 << 10
AREAS_TOGETHER = 1 << 12
"""Areas of a run, which are answered either all as single blocks or not."""


@dataclass(frozen=True, eq=False)
class CellAnswers:
    """Estimates, variances, and whether the measurements determine them, (N, a) each, of N geounits
    or areas, with the bounds (N, a) that every histogram meets.

    covariances : of the answers of one geounit or area; None where nothing asks for them.
    """

    estimate: np.ndarray
    variance: np.ndarray
    is_known: np.ndarray
    at_least: np.ndarray
    at_most: np.ndarray
    mechanism: str
    covariances: AnswerCovariances | None = None

    @classmethod
    def of_geounits(
        cls,
        found: RunPosterior,
        answers: ProductAnswers,
        depth: int,
        level: GroupedEstimates,
        rows: np.ndarray,
    ) -> CellAnswers:
        """Answers of geounits `rows` (N,) of the geolevel at a depth, whose estimates are given."""
        covariances = covariances_of(level, answers, rows)
        estimate = estimates_of(level, answers, rows)
        return cls._of(found, estimate, covariances, found.bounds[depth].part(rows))

    @classmethod
    def of_areas(
        cls, found: RunPosterior, answers: ProductAnswers, areas: BlockAreas
    ) -> CellAnswers:
        """Answers of areas that are lists of blocks."""
        covariances = area_covariances(found.posterior, answers, areas)
        estimate = area_estimates(found.blocks, answers, areas)
        return cls._of(found, estimate, covariances, found.bounds[-1].summed(areas))

    @classmethod
    def _of(
        cls,
        found: RunPosterior,
        estimate: np.ndarray,
        covariances: AnswerCovariances,
        declared: LevelBounds,
    ) -> CellAnswers:
        bounds = found.bounds_of(declared, covariances.answers.counted)
        known = covariances.is_known()
        return cls(estimate, covariances.variances(), known, *bounds, found.mechanism, covariances)

    def intervals(self, level: float) -> Intervals:
        """Intervals that hold the truth with probability `level` at least."""
        bounds = self.at_least, self.at_most
        return intervals_of(self.estimate, self.variance, level, *bounds, self.mechanism)


@dataclass(frozen=True, eq=False)
class PublishedCells:
    """Published answers of many areas.

    counted : (a, n_cells) 0/1 matrix, the cells of each answer, each a product of sets of levels.
    """

    found: RunPosterior
    counted: sparse.csr_array

    def of_areas(self, areas: BlockAreas) -> Iterator[tuple[int, CellAnswers]]:
        """Answers of runs of areas: the number of the first, and their estimates.

        Raises ValueError for an answer that counts no product of sets.
        """
        found = self.found
        for first in range(0, areas.n_areas, AREAS_TOGETHER):
            run = areas.part(first, min(first + AREAS_TOGETHER, areas.n_areas))
            are_blocks = np.bincount(run.area, minlength=run.n_areas).max(initial=0) <= 1
            shape = run.n_areas, self.counted.shape[0]
            estimate, variance = np.zeros(shape), np.zeros(shape)
            is_known = np.ones(shape, dtype=bool)
            for start in range(0, run.n_areas, AREAS_AT_ONCE):
                part = run.part(start, min(start + AREAS_AT_ONCE, run.n_areas))
                # Areas without blocks have nothing.
                rows = start + (part.area if are_blocks else np.arange(part.n_areas))
                for numbers, answers in self._kinds:
                    at = np.ix_(rows, numbers)
                    if are_blocks:
                        covariances = covariances_of(found.blocks, answers, part.block)
                        estimate[at] = estimates_of(found.blocks, answers, part.block)
                    else:
                        covariances = area_covariances(found.posterior, answers, part)
                        estimate[at] = area_estimates(found.blocks, answers, part)
                    variance[at], is_known[at] = covariances.variances(), covariances.is_known()
            bounds = found.bounds_of(found.bounds[-1].summed(run), self.counted)
            yield first, CellAnswers(estimate, variance, is_known, *bounds, found.mechanism)

    @cached_property
    def _kinds(self) -> list[tuple[np.ndarray, ProductAnswers]]:
        """The answers that sum over all free attributes, and the others, with their numbers: the
        first see one component, whatever they count of the core."""
        algebra = self.found.algebra
        answers = ProductAnswers.of(algebra, self.counted)
        sums = np.ones(answers.n_answers, dtype=bool)
        for sets, numbers in zip(answers.free, answers.free_of_answer, strict=True):
            sums &= np.asarray(sets.all(axis=1))[numbers]
        return [
            (np.flatnonzero(chosen), ProductAnswers.of(algebra, self.counted[chosen]))
            for chosen in (sums, ~sums)
            if chosen.any()
        ]
