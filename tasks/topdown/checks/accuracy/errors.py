"""Statistics of the errors of a release, and the redistricting criterion.

An error is a released count less the true one. Statistics run over pairs of an entity and an
answer; pairs whose count is known to be zero by what is declared (a type of group quarters without
facility) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SIZE_LIMITS = (1, 10, 100, 500, 1_000, 5_000, 10_000, 100_000)
"""Where size classes begin, after the class of size 0."""
ALL_SIZES = "all"
ALL_ANSWERS = "all"

ABSOLUTE_QUANTILES = (0.5, 0.9, 0.95, 0.99)
ERROR_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ABSOLUTE_THRESHOLDS = (1, 5, 10, 50)
PERCENT_THRESHOLDS = (5, 10)

CRITERION_SIZE = 500
CRITERION_POINTS = 5
CRITERION_SHARE = 0.95


def size_class_names() -> tuple[str, ...]:
    """Names of the size classes, ascending.

    >>> size_class_names()[:3]
    ('0', '1 to 9', '10 to 99')
    """
    limits = (0, *SIZE_LIMITS)
    names = [
        str(low) if high == low + 1 else f"{low:,} to {high - 1:,}"
        for low, high in zip(limits, limits[1:], strict=False)
    ]
    return (*names, f"{limits[-1]:,} and more")


def size_classes(size: np.ndarray) -> np.ndarray:
    """(n,) number of each entity's size class."""
    return np.searchsorted(SIZE_LIMITS, size, side="right")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of an entity and an answer, (n,) each."""

    truth: np.ndarray
    released: np.ndarray
    predicted_variance: np.ndarray

    def where(self, mask: np.ndarray | tuple[np.ndarray, int]) -> Pairs:
        """Those of a mask, or of positions."""
        return Pairs(self.truth[mask], self.released[mask], self.predicted_variance[mask])


@dataclass(frozen=True, eq=False)
class Tally:
    """What the figures of some pairs are made of; those of more pairs are made of several.

    The errors are told by how many pairs have each.
    """

    errors: np.ndarray
    """(n,) the distinct errors, ascending."""
    counts: np.ndarray
    """(n,) how many pairs have them."""
    n_with_any: int
    """Pairs whose true count is not 0."""
    percent: float
    """Absolute errors of these in percent of the true count, added up."""
    beyond_percent: tuple[int, ...]
    false_zeros: int
    false_positives: int
    variance: float
    """Predicted variances, added up."""

    @classmethod
    def of(cls, pairs: Pairs) -> Tally:
        """Of pairs."""
        errors, counts = np.unique(pairs.released - pairs.truth, return_counts=True)
        has_any = pairs.truth > 0
        truth, released = pairs.truth[has_any], pairs.released[has_any]
        percent = 100 * np.abs(released - truth) / truth
        return cls(
            errors,
            counts,
            len(truth),
            float(percent.sum()),
            tuple(int((percent > limit).sum()) for limit in PERCENT_THRESHOLDS),
            int((released == 0).sum()),
            int((pairs.released[~has_any] > 0).sum()),
            float(pairs.predicted_variance.sum()),
        )


def figures_of(tallies: Sequence[Tally]) -> dict[str, float]:
    """Statistics of all pairs of some tallies; NaN where no pair gives one.

    pairs : how many there are.
    mean_absolute_error, root_mean_square_error, bias : in counts; bias is the mean error.
    predicted_standard_deviation : root mean of the predicted variances.
    mean_absolute_percent_error : over pairs whose true count is not 0, in percent of it.
    absolute_q50, ..., largest : quantiles of the absolute error.
    error_q05, ... : quantiles of the error.
    beyond_5, ... : share of the pairs whose absolute error is larger.
    beyond_5_percent, ... : share of those with a true count whose error is larger.
    false_zeros : share of the true counts above 0 that are released as 0.
    false_positives : share of the true counts of 0 that are released as more.
    """
    errors, where = np.unique(np.concatenate([own.errors for own in tallies]), return_inverse=True)
    counts = np.bincount(
        where, np.concatenate([own.counts for own in tallies]), minlength=len(errors)
    ).astype(np.int64)
    n, n_with_any = int(counts.sum()), sum(own.n_with_any for own in tallies)
    absolute, where = np.unique(np.abs(errors), return_inverse=True)
    of_absolute = np.bincount(where, counts, minlength=len(absolute)).astype(np.int64)
    variance = sum(own.variance for own in tallies)
    squares = float((counts * errors.astype(np.float64) ** 2).sum())
    figures = {
        "pairs": n,
        "mean_absolute_error": _share(int((of_absolute * absolute).sum()), n),
        "root_mean_square_error": float(np.sqrt(_share(squares, n))),
        "predicted_standard_deviation": float(np.sqrt(_share(variance, n))),
        "bias": _share(int((counts * errors).sum()), n),
        "mean_absolute_percent_error": _share(sum(own.percent for own in tallies), n_with_any),
        "largest": float(absolute[-1]) if n else np.nan,
    }
    figures |= _quantiles("absolute", absolute, of_absolute, ABSOLUTE_QUANTILES)
    figures |= _quantiles("error", errors, counts, ERROR_QUANTILES)
    for limit in ABSOLUTE_THRESHOLDS:
        figures[f"beyond_{limit}"] = _share(int(of_absolute[absolute > limit].sum()), n)
    for i, limit in enumerate(PERCENT_THRESHOLDS):
        beyond = sum(own.beyond_percent[i] for own in tallies)
        figures[f"beyond_{limit}_percent"] = _share(beyond, n_with_any)
    figures["false_zeros"] = _share(sum(own.false_zeros for own in tallies), n_with_any)
    positives = sum(own.false_positives for own in tallies)
    figures["false_positives"] = _share(positives, n - n_with_any)
    return figures


@dataclass(frozen=True, eq=False)
class LargestGroups:
    """Of entities whose true population is large: by how many points the share of the group that
    is truly largest is missed, and whether that is within the criterion, `(n,)` each."""

    points: np.ndarray
    is_within: np.ndarray

    @classmethod
    def of(cls, truth: np.ndarray, released: np.ndarray) -> LargestGroups:
        """From counts `(n_entities, n_groups)` of groups that partition the population."""
        population = truth.sum(axis=1)
        is_large = population >= CRITERION_SIZE
        truth, released, population = truth[is_large], released[is_large], population[is_large]
        row, largest = np.arange(len(truth)), truth.argmax(axis=1)
        of_largest, of_truth = released[row, largest], truth[row, largest]
        released_population = released.sum(axis=1)
        # Crosswise products keep the comparison in integers.
        difference = np.abs(of_largest * population - of_truth * released_population)
        whole = released_population * population
        is_within = (100 * difference <= CRITERION_POINTS * whole) & (released_population > 0)
        points = np.full(len(truth), np.inf)
        np.divide(100 * difference, whole, out=points, where=whole > 0)
        return cls(points, is_within)


def criterion_of(parts: Sequence[LargestGroups]) -> dict[str, float | bool]:
    """Whether the largest group's share of a population is accurate enough for redistricting.

    Over entities whose true population is 500 or more, the released share of the group that is
    truly largest must be within 5 percentage points of its true share for 95 percent of them. An
    entity whose released population is 0 fails.

    Returns:
        entities (of that size), share_within (NaN without any), difference_q95 (the points within
        which 95 percent of them are), met (true without any).
    """
    points = np.concatenate([part.points for part in parts])
    is_within = np.concatenate([part.is_within for part in parts])
    share_within = _share(int(is_within.sum()), len(is_within))
    return {
        "entities": len(points),
        "share_within": share_within,
        "difference_q95": float(np.quantile(points, CRITERION_SHARE, method="inverted_cdf"))
        if len(points)
        else np.nan,
        "met": bool(len(points) == 0 or share_within >= CRITERION_SHARE),
    }


def _share(total: float, n: int) -> float:
    return float(total / n) if n else np.nan


def _quantiles(
    name: str, values: np.ndarray, counts: np.ndarray, quantiles: tuple[float, ...]
) -> Mapping[str, float]:
    """Quantiles, between the values where they fall between two, of ascending values that stand
    `counts` times each."""
    names = [f"{name}_q{round(100 * quantile):02d}" for quantile in quantiles]
    if not len(values):
        return dict.fromkeys(names, np.nan)
    ends = np.cumsum(counts)
    place = np.array(quantiles) * (ends[-1] - 1)
    below = np.floor(place).astype(np.int64)
    at = np.minimum([below, below + 1], ends[-1] - 1)
    low, high = values[np.searchsorted(ends, at, side="right")].astype(np.float64)
    return dict(zip(names, (low + (high - low) * (place - below)).tolist(), strict=True))
