from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.topdown.intervals.intervals import differences, intervals_of, ratios, shares

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


@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_estimates_of_one_answer_are_covered_as_often_as_they_say(mechanism, level):
    """Exactly, from the probabilities of the noise: whole errors of any variance; and a normal
    quantile alone covers less often somewhere, which this test would see."""
    x = np.arange(-400, 401)
    falls_short = False
    for size in np.geomspace(0.05, 25.0, 60):
        is_gaussian = mechanism == DISCRETE_GAUSSIAN
        weight = np.exp(-(x**2) / (2 * size**2) if is_gaussian else -np.abs(x) / size)
        weight /= weight.sum()
        variance = np.full(x.size, weight @ x**2)
        far = np.full(x.size, 1e6)
        found = intervals_of(x.astype(float), variance, level, -far, far, mechanism)
        assert weight[(found.lower <= 0) & (found.upper >= 0)].sum() >= level - 1e-9
        reach = norm.ppf(0.5 + level / 2) * np.sqrt(variance[0])
        falls_short |= weight[np.abs(x) <= reach].sum() < level - 0.05
        assert (found.upper - x <= reach + 1.5 + 0.15 * np.sqrt(variance[0])).all()
    assert falls_short or mechanism == DISCRETE_LAPLACE


def test_an_interval_without_whole_numbers_is_the_nearest():
    none, most = np.zeros(2), np.full(2, 100)
    found = intervals_of(np.array([3.4, 7.0]), np.array([0.01, 0.0]), 0.9, none, most)
    assert found.lower.tolist() == found.upper.tolist() == [3, 7]
    with pytest.raises(ValueError, match="between 0 and 1"):
        intervals_of(none, none, 90.0, none, most)


COVARIANCE = np.array([[9.0, 4.0], [4.0, 16.0]])


def parts(draws: np.ndarray):
    """Draws (n, 2) as the arguments of a comparison."""
    ones = np.ones(len(draws))
    return draws[:, 0], draws[:, 1], (9.0 * ones, 16.0 * ones), 4.0 * ones, 0.9


def test_differences_and_ratios_cover_as_often_as_they_say():
    """20,000 draws: a share of 0.9 within four standard errors, which 0.89 is not."""
    rng = np.random.default_rng(1)
    draws = rng.multivariate_normal([60.0, 80.0], COVARIANCE, 20000)
    difference, _ = differences(*parts(draws))
    ratio, share = ratios(*parts(draws)), shares(*parts(draws))
    # A difference reaches to whole numbers: up to half a record farther, of four that it deviates.
    for found, truth, more in ((difference, -20.0, 0.015), (ratio, 0.75, 0.0), (share, 0.75, 0.0)):
        hits = (found.lower <= truth) & (truth <= found.upper)
        error = 4 * np.sqrt(0.09 / 20000)
        assert 0.9 - error < hits.mean() < 0.9 + error + more
    assert np.isclose(ratio.std_dev.mean(), ratio.estimate.std(), rtol=0.03)
    assert (share.upper <= 1).all() and (share.upper - share.lower <= ratio.upper).all()
    assert (difference.lower == np.rint(difference.lower)).all()


def test_the_test_of_sign_is_exact():
    rng = np.random.default_rng(2)
    draws = rng.multivariate_normal([50.0, 50.0], COVARIANCE, 5000)
    counts, _ = np.histogram(differences(*parts(draws))[1], bins=10, range=(0, 1))
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # 99.9 % of chi-square with 9 degrees
    exact = np.zeros(2)
    _, p_value = differences(np.array([5.0, 5.0]), np.array([5.0, 4.0]), (exact, exact), exact, 0.9)
    assert p_value.tolist() == [1.0, 0.0]
