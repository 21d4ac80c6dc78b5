"""Confidence intervals from estimates, their variances, and what counts can be.

An estimate is a sum of a great many independent discrete noises, so that its error is normal for
all purposes: of level p, z = the normal quantile of (1 + p) / 2, the interval is estimate +- z sd.
The truth is a whole number. Taking an interval to the whole numbers inside it loses nothing that
could be true, and so keeps the coverage; likewise for what is below a bound or above one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

ROUNDING = 1e-7
"""Distance, in records, by which a whole number may miss an interval and count as inside."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Of n_answers each: lower and upper from the estimates alone, and bounded_lower and
    bounded_upper with what is known of the counts; all whole numbers."""

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
) -> Intervals:
    """Intervals that hold the truth with probability `level` at least.

    The bounded kind is the other one's whole numbers that also lie between `at_least` and
    `at_most`, which the truth does in any case: it covers exactly as often, and is never longer.
    Where an interval holds no whole number, the nearest to the estimate stands for it.

    Example: 3.6 with variance 1 at 90 %, counts from 3: from 2 to 5, and from 3 to 5.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval is a number between 0 and 1, such as 0.9")
    reach = ndtri(0.5 + level / 2) * np.sqrt(variance)
    lower = np.ceil(estimate - reach - ROUNDING)
    upper = np.floor(estimate + reach + ROUNDING)
    nearest = np.rint(estimate)
    is_empty = lower > upper
    lower, upper = np.where(is_empty, nearest, lower), np.where(is_empty, nearest, upper)
    within = [np.clip(end, at_least, at_most) for end in (lower, upper)]
    return Intervals(*(end.astype(np.int64) for end in (lower, upper, *within)))


@dataclass(frozen=True)
class Combined:
    """A function of two answers: its estimate, standard deviation and interval."""

    estimate: float
    std_dev: float
    lower: float
    upper: float


def difference(
    estimates: tuple[float, float], covariance: np.ndarray, level: float
) -> tuple[Combined, float]:
    """The first answer less the second, and the probability of a difference as large in size if
    there were none: the test of its sign, exact for normal errors.

    covariance : (2, 2) of the two answers.
    """
    contrast = np.array([1.0, -1.0])
    value = float(contrast @ np.asarray(estimates))
    sd = float(np.sqrt(max(contrast @ covariance @ contrast, 0.0)))
    reach = float(ndtri(0.5 + level / 2)) * sd
    p_value = float(2.0 * ndtri_tail(abs(value) / sd)) if sd > 0 else float(value == 0.0)
    return Combined(value, sd, value - reach, value + reach), p_value


def ratio(estimates: tuple[float, float], covariance: np.ndarray, level: float) -> Combined | None:
    """The first answer over the second; None where the second cannot be told from zero.

    The standard deviation is that of the delta method. The interval is Fieller's: the ratios r for
    which the difference of the first and r times the second is not significant, which is exact for
    normal errors. A share of a whole is the ratio of a part to it.
    """
    (x, y), z = estimates, float(ndtri(0.5 + level / 2))
    (xx, xy), (_, yy) = np.asarray(covariance)
    if y * y <= z * z * yy:
        return None
    value = x / y
    sd = float(np.sqrt(max(xx - 2 * value * xy + value**2 * yy, 0.0)) / abs(y))
    a, b, c = y * y - z * z * yy, x * y - z * z * xy, x * x - z * z * xx
    root = float(np.sqrt(max(b * b - a * c, 0.0)))
    return Combined(value, sd, (b - root) / a, (b + root) / a)


def ndtri_tail(z: float) -> float:
    """Probability that a standard normal exceeds z."""
    from scipy.special import ndtr

    return float(ndtr(-z))
