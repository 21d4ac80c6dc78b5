"""Was this person in the data: the best test there is on noisy answers, and what bounds it.

A guarantee bounds every test of one person's record, by whoever knows all others.
`GaussianTradeoff` is exact for Gaussian noise [GaussianDP2022].
Methods without a guarantee have measured rates alone, with Clopper-Pearson intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, mannwhitneyu, norm


@dataclass(frozen=True)
class GaussianTradeoff:
    """mu-GDP: no test does better than telling N(0, 1) from N(mu, 1)."""

    mu: float

    @classmethod
    def of_rho(cls, rho: float) -> GaussianTradeoff:
        """rho-zCDP by Gaussian noise is mu-GDP with mu = sqrt(2 rho)."""
        return cls(math.sqrt(2 * rho))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Phi(mu - z), z the upper quantile of the false positive rate."""
        return float(norm.cdf(self.mu - norm.isf(false_positive_rate)))

    @property
    def accuracy(self) -> float:
        """Phi(mu / 2), at even odds."""
        return float(norm.cdf(self.mu / 2))

    @property
    def area_under_curve(self) -> float:
        """Phi(mu / sqrt 2)."""
        return float(norm.cdf(self.mu / math.sqrt(2)))


def optimal_statistic(
    answers: np.ndarray, difference: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """The sum over queries of <difference, noisy answer> / variance, one number a draw.

    `answers` has shape `(draws, answers)`; `difference` is what the person's record changes in each
    answer. For Gaussian noise no test beats a threshold on it (Neyman and Pearson); its standard
    deviation is mu = sqrt(sum difference^2 / variance), and so is the shift that the person makes.
    """
    return np.asarray(answers) @ (np.asarray(difference) / np.asarray(variance))


@dataclass(frozen=True)
class Rate:
    """A measured share with its Clopper-Pearson interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, trials: int, alpha: float = 0.05) -> Rate:
    """The share of successes, and bounds that each fail with chance alpha / 2 at most.

    Without trials the share is NaN and the interval everything.
    """
    if trials == 0:
        return Rate(float("nan"), 0.0, 1.0)
    low = beta.ppf(alpha / 2, successes, trials - successes + 1) if successes else 0.0
    failures = trials - successes
    high = beta.isf(alpha / 2, successes + 1, failures) if failures else 1.0
    return Rate(successes / trials, float(low), float(high))


@dataclass(frozen=True)
class MeasuredTest:
    """How well a statistic tells draws with the person from draws without."""

    true_positive: Rate
    false_positive: Rate
    accuracy: Rate
    area_under_curve: float


def measured_test(
    inside: np.ndarray, outside: np.ndarray, false_positive_rate: float, *, alpha: float = 0.05
) -> MeasuredTest:
    """Rates of the test "above a threshold", from statistics of draws with and without the person.

    Thresholds are set on every other draw and rates measured on the rest, so that the intervals
    hold: one for the true positive rate at the false positive rate asked, one for the best
    accuracy at even odds. The area under the curve (Mann and Whitney) is of all draws.
    """
    learned = np.asarray(inside)[::2], np.asarray(outside)[::2]
    tested = np.asarray(inside)[1::2], np.asarray(outside)[1::2]
    threshold = np.quantile(learned[1], 1 - false_positive_rate)
    even = _best_threshold(*learned)
    right = int((tested[0] > even).sum() + (tested[1] <= even).sum())
    pairs = mannwhitneyu(inside, outside, method="asymptotic").statistic
    return MeasuredTest(
        clopper_pearson(int((tested[0] > threshold).sum()), len(tested[0]), alpha),
        clopper_pearson(int((tested[1] > threshold).sum()), len(tested[1]), alpha),
        clopper_pearson(right, len(tested[0]) + len(tested[1]), alpha),
        float(pairs / (len(inside) * len(outside))),
    )


def _best_threshold(inside: np.ndarray, outside: np.ndarray) -> float:
    """Where the share above, inside, less the share above, outside, is greatest."""
    values = np.unique(np.concatenate([inside, outside]))
    above = [
        1 - np.searchsorted(np.sort(part), values, side="right") / len(part)
        for part in (inside, outside)
    ]
    return float(values[np.argmax(above[0] - above[1])])
