"""Bounds against the published figures; the best test attains its bound."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.evidence.attacks.membership import (
    GaussianTradeoff,
    MeasuredTest,
    measured_test,
    optimal_statistic,
)
from spineflow.tasks.evidence.attacks.release import clopper_pearson
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, SeededRandom
from spineflow.tasks.noise.sampler import draw_noise

GAUSSIAN_ROWS = """
.1      .447  .624  .589  .030 .004
1       1.414 .841  .760  .181 .047
2.6312  2.294 .948  .874  .487 .213
15.29   5.530 1.000 .997  .999 .993
"""
"""rho, mu, area under the curve, accuracy, true positive rate at 1 % and at .1 %."""


@pytest.mark.parametrize("row", GAUSSIAN_ROWS.split("\n")[1:-1])
def test_gaussian_tradeoffs(row: str) -> None:
    rho, *expected = map(float, row.split())
    bound = GaussianTradeoff.of_rho(rho)
    found = (bound.mu, bound.area_under_curve, bound.accuracy)
    rates = (bound.true_positive_rate(0.01), bound.true_positive_rate(0.001))
    assert [*found, *rates] == pytest.approx(expected, abs=0.0006)


def measured(noise: float, seed: int) -> tuple[MeasuredTest, GaussianTradeoff]:
    """The best test on three queries, and the bound if noise were what it is said to be."""
    draws = np.random.default_rng(seed)
    exact, difference = np.array([5.0, 9, 2, 0, 7, 3]), np.array([1.0, -1, 0, 1, -1, 1])
    variance = np.array([4.0, 4, 4, 6, 6, 2])
    bound = GaussianTradeoff(float(np.sqrt((difference**2 / variance).sum())))
    statistics = [
        optimal_statistic(
            people + draws.normal(0, noise * np.sqrt(variance), (150_000, 6)), difference, variance
        )
        for people in (exact + difference, exact)
    ]
    return measured_test(*statistics, 0.01, alpha=0.001), bound


def is_attained(found: MeasuredTest, bound: GaussianTradeoff) -> bool:
    """At the false positive rates of the interval the bound meets the interval of the true ones."""
    allowed = [
        bound.true_positive_rate(rate)
        for rate in (found.false_positive.low, found.false_positive.high)
    ]
    meets = found.true_positive.low <= allowed[1] and found.true_positive.high >= allowed[0]
    return meets and found.accuracy.low <= bound.accuracy <= found.accuracy.high


def test_the_best_test_attains_the_gaussian_bound() -> None:
    found, bound = measured(1.0, 1)
    assert is_attained(found, bound)
    assert found.area_under_curve == pytest.approx(bound.area_under_curve, abs=0.006)


def test_noise_a_tenth_too_small_is_shown() -> None:
    found, bound = measured(0.9, 1)
    assert not is_attained(found, bound)
    assert found.accuracy.low > bound.accuracy
    assert found.true_positive.low > bound.true_positive_rate(found.false_positive.high)


PL94_RHO = Fraction(293_764, 114_921) + Fraction(75, 1000)
"""Persons and housing units of the redistricting product of 2020, about 2.6312."""


def measured_on_a_path(noise: Fraction, seed: int) -> tuple[MeasuredTest, GaussianTradeoff]:
    """The best test on all noisy answers of one record's path, with the product's own sampler.

    A changed record moves one unit between two cells of every query of six geolevels; noise has
    the variance 1 / (rho x geolevel's share x query's share), times `noise` squared.
    """
    source, n_draws = SeededRandom(seed), 40_000
    levels = [Fraction(part, 40) for part in (2, 11, 7, 6, 13, 1)]
    queries = [Fraction(part, 20) for part in (12, 5, 3)]
    statistics = np.zeros((2, n_draws))
    for share in (level * query for level in levels for query in queries):
        variance = 1 / (PL94_RHO * share)
        difference = np.array([1.0, -1.0])
        for place, present in enumerate((1, 0)):
            drawn = draw_noise(DISCRETE_GAUSSIAN, noise**2 * variance, 2 * n_draws, source).reshape(
                -1, 2
            )
            answers = np.array([4, 7]) + present * difference + drawn
            statistics[place] += optimal_statistic(answers, difference, np.full(2, float(variance)))
    found = measured_test(statistics[0], statistics[1], 0.01, alpha=0.001)
    return found, GaussianTradeoff.of_rho(float(PL94_RHO))


@pytest.mark.slow
def test_noise_of_the_product_attains_its_bound_and_a_tenth_less_is_shown() -> None:
    found, bound = measured_on_a_path(Fraction(1), 2)
    assert bound.true_positive_rate(0.01) == pytest.approx(0.487, abs=0.002)
    assert is_attained(found, bound)
    weak, _ = measured_on_a_path(Fraction(9, 10), 2)
    assert not is_attained(weak, bound)
    assert weak.accuracy.low > bound.accuracy


def test_clopper_pearson_covers_as_it_says() -> None:
    from scipy.stats import binom

    for chance in (0.03, 0.5, 0.9):
        rates = [clopper_pearson(k, 40) for k in range(41)]
        covers = [rate.low <= chance <= rate.high for rate in rates]
        assert binom.pmf(np.arange(41), 40, chance)[covers].sum() >= 0.95
    assert clopper_pearson(0, 40).low == 0
    assert clopper_pearson(40, 40).high == 1
    assert clopper_pearson(0, 0).high == 1
