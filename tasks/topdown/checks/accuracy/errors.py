"""Statistics of the errors of a release, and the redistricting criterion.

An error is a released count less the true one. Statistics run over pairs of an entity and an
answer; pairs whose count is known to be zero by what is declared (a type of group quarters without
facility) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    def where(self, mask: np.ndarray) -> Pairs:
        """Those of a mask."""
        return Pairs(self.truth[mask], self.released[mask], self.predicted_variance[mask])


def statistics(pairs: Pairs) -> dict[str, float]:
    """Figures of some pairs; NaN where no pair gives one.

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
    error = pairs.released - pairs.truth
    absolute = np.abs(error)
    has_any = pairs.truth > 0
    percent = 100 * absolute[has_any] / pairs.truth[has_any]
    figures = {
        "pairs": len(error),
        "mean_absolute_error": _mean(absolute),
        "root_mean_square_error": float(np.sqrt(_mean(error.astype(np.float64) ** 2))),
        "predicted_standard_deviation": float(np.sqrt(_mean(pairs.predicted_variance))),
        "bias": _mean(error),
        "mean_absolute_percent_error": _mean(percent),
        "largest": float(absolute.max(initial=0)) if len(error) else np.nan,
    }
    figures |= _quantiles("absolute", absolute, ABSOLUTE_QUANTILES)
    figures |= _quantiles("error", error, ERROR_QUANTILES)
    figures |= {f"beyond_{limit}": _mean(absolute > limit) for limit in ABSOLUTE_THRESHOLDS}
    figures |= {f"beyond_{limit}_percent": _mean(percent > limit) for limit in PERCENT_THRESHOLDS}
    figures["false_zeros"] = _mean(pairs.released[has_any] == 0)
    figures["false_positives"] = _mean(pairs.released[~has_any] > 0)
    return figures


def redistricting_criterion(truth: np.ndarray, released: np.ndarray) -> dict[str, float | bool]:
    """Whether the largest group's share of a population is accurate enough for redistricting.

    Over entities whose true population is 500 or more, the released share of the group that is
    truly largest must be within 5 percentage points of its true share for 95 percent of them. An
    entity whose released population is 0 fails.

    Args:
        truth, released: (n_entities, n_groups) counts of groups that partition the population.

    Returns:
        entities (of that size), share_within (NaN without any), difference_q95 (the points within
        which 95 percent of them are), met (true without any).
    """
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
    share_within = _mean(is_within)
    return {
        "entities": len(truth),
        "share_within": share_within,
        "difference_q95": float(np.quantile(points, CRITERION_SHARE, method="inverted_cdf"))
        if len(points)
        else np.nan,
        "met": bool(len(truth) == 0 or share_within >= CRITERION_SHARE),
    }


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else np.nan


def _quantiles(name: str, values: np.ndarray, quantiles: tuple[float, ...]) -> Mapping[str, float]:
    found = np.quantile(values, quantiles) if len(values) else [np.nan] * len(quantiles)
    return {
        f"{name}_q{round(100 * q):02d}": float(value)
        for q, value in zip(quantiles, found, strict=True)
    }
