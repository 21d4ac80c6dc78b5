from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from spineflow.tasks.topdown.intervals.intervals import difference, intervals_of, ratio

NUMBERS = st.floats(-1e4, 1e4, allow_nan=False)


@given(NUMBERS, st.floats(0, 1e6), st.floats(0.01, 0.99), st.integers(-20, 20), st.integers(0, 40))
def test_whole_numbers_and_bounds_lose_nothing_that_can_be_true(
    estimate, variance, level, at_least, width
):
    at_most = at_least + width
    found = intervals_of(
        np.array([estimate]), np.array([variance]), level, np.array([at_least]), np.array([at_most])
    )
    reach = norm.ppf(0.5 + level / 2) * np.sqrt(variance)
    inside = np.arange(np.floor(estimate - reach) - 1, np.ceil(estimate + reach) + 2)
    inside = inside[np.abs(inside - estimate) <= reach]
    if inside.size < 1e5:
        assert ((found.lower <= inside) & (inside <= found.upper)).all()
        possible = inside[(inside >= at_least) & (inside <= at_most)]
        assert ((found.bounded_lower <= possible) & (possible <= found.bounded_upper)).all()
    assert found.lower <= found.upper and found.bounded_lower <= found.bounded_upper
    assert found.bounded_upper - found.bounded_lower <= found.upper - found.lower
    assert at_least <= found.bounded_lower and found.bounded_upper <= at_most


def test_an_interval_without_whole_numbers_is_the_nearest():
    none, most = np.zeros(2), np.full(2, 100)
    found = intervals_of(np.array([3.4, 7.0]), np.array([0.01, 0.0]), 0.9, none, most)
    assert found.lower.tolist() == found.upper.tolist() == [3, 7]
    with pytest.raises(ValueError, match="between 0 and 1"):
        intervals_of(none, none, 90.0, none, most)


def test_differences_and_ratios_cover_as_often_as_they_say():
    """20,000 draws: a share of 0.9 within four standard errors, which 0.89 is not."""
    rng = np.random.default_rng(1)
    covariance = np.array([[9.0, 4.0], [4.0, 16.0]])
    truth = np.array([60.0, 80.0])
    draws = rng.multivariate_normal(truth, covariance, 20000)
    hits = np.zeros((20000, 2), dtype=bool)
    for row, pair in enumerate(draws):
        found, _ = difference(tuple(pair), covariance, 0.9)
        hits[row, 0] = found.lower <= -20.0 <= found.upper
        share = ratio(tuple(pair), covariance, 0.9)
        hits[row, 1] = share.lower <= 0.75 <= share.upper
    assert np.abs(hits.mean(axis=0) - 0.9).max() < 4 * np.sqrt(0.09 / 20000)
    spread = [ratio(tuple(pair), covariance, 0.9) for pair in draws[:2000]]
    estimates = np.array([found.estimate for found in spread])
    assert np.isclose(np.mean([found.std_dev for found in spread]), estimates.std(), rtol=0.06)


def test_the_test_of_sign_is_exact():
    rng = np.random.default_rng(2)
    covariance = np.array([[9.0, 4.0], [4.0, 16.0]])
    draws = rng.multivariate_normal([50.0, 50.0], covariance, 5000)
    p_values = np.array([difference(tuple(pair), covariance, 0.9)[1] for pair in draws])
    counts, _ = np.histogram(p_values, bins=10, range=(0, 1))
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # 99.9 % of chi-square with 9 degrees
    assert difference((5.0, 5.0), np.zeros((2, 2)), 0.9)[1] == 1.0
    assert difference((5.0, 4.0), np.zeros((2, 2)), 0.9)[1] == 0.0


def test_nothing_is_divided_by_what_cannot_be_told_from_zero():
    assert ratio((5.0, 1.0), np.eye(2), 0.9) is None
