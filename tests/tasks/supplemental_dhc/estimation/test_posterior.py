"""Posteriors of counts and averages, against closed forms, brute force and samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import truncnorm
from spineflow.tasks.supplemental_dhc.estimation import (
    LEVEL,
    average_estimate,
    condition_on_presence,
    count_posterior,
)

HOUSEHOLD, FAMILY = (1.0, 10.0), (2.0, 10.0)


@pytest.mark.parametrize("noisy", [-100, -40, -3, 0, 7, 90, 5000])
@pytest.mark.parametrize("sigma", [12.16, 41.3, 121.6])
def test_wide_noise_gives_the_truncated_normal(noisy: int, sigma: float) -> None:
    """Whose moments are known; whole numbers differ from it by part of one."""
    posterior = count_posterior(noisy, sigma**2)
    law = truncnorm(-noisy / sigma, math.inf, noisy, sigma)
    assert posterior.mean == pytest.approx(law.mean(), abs=0.55)
    assert posterior.deviation == pytest.approx(law.std(), rel=0.02, abs=0.15)
    found = posterior.estimate()
    inside = law.cdf(found.high + 0.5) - law.cdf(max(found.low - 0.5, 0.0))
    assert inside == pytest.approx(LEVEL, abs=0.02 if posterior.deviation > 10 else 0.07)


@given(st.integers(-30, 60), st.floats(0.05, 60.0))
@settings(max_examples=70)
def test_a_posterior_is_the_likelihood_on_what_is_possible(noisy: int, variance: float) -> None:
    """By brute force in whole numbers; and no interval of as much probability is shorter."""
    posterior = count_posterior(noisy, variance)
    counts = np.arange(0, 400)
    logarithms = -((counts - noisy) ** 2) / (2 * variance)
    weight = np.exp(logarithms - logarithms.max())
    weight /= weight.sum()
    own = np.zeros(400)
    own[posterior.first : posterior.first + len(posterior.probability)] = posterior.probability
    assert np.abs(own - weight).max() < 1e-12
    found = posterior.estimate()
    width = int(found.high - found.low)
    assert own[int(found.low) : int(found.high) + 1].sum() >= LEVEL - 1e-9
    shorter = np.convolve(weight, np.ones(max(width, 1)), "valid")
    assert width == 0 or shorter.max() < LEVEL + 1e-9
    assert found.low <= found.value + 1 and found.value <= found.high + 1


def sampled(
    counted: tuple[float, float],
    rest: tuple[float, float] | None,
    households: tuple[float, float],
    bounds: tuple[float, float],
    seed: int,
    n: int = 400_000,
) -> np.ndarray:
    """Averages from the posterior, by throwing away normal draws that are not possible."""
    rng = np.random.default_rng(seed)
    persons = rng.normal(*counted, n)
    others = np.zeros(n) if rest is None else rng.normal(*rest, n)
    number = rng.normal(*households, n)
    whole = persons + others
    possible = (persons >= 0) & (others >= 0) & (number >= 1)
    possible &= (whole >= bounds[0] * number) & (whole <= bounds[1] * number)
    assert possible.sum() > 2000
    return (persons / number)[possible]


@pytest.mark.parametrize(
    ("counted", "rest", "households", "bounds"),
    [
        ((25_000, 304.0), None, (9_800, 304.0), HOUSEHOLD),
        ((400, 121.6), None, (60, 121.6), HOUSEHOLD),
        ((40, 41.3), None, (10, 41.3), FAMILY),
        ((300, 41.3), (800, 41.3), (410, 41.3), HOUSEHOLD),
        ((20, 41.3), (60, 41.3), (12, 41.3), FAMILY),
        ((-30, 41.3), (90, 41.3), (20, 41.3), HOUSEHOLD),
        ((9_000_000, 304.0), (21_000_000, 304.0), (12_000_000, 304.0), HOUSEHOLD),
        ((100, 20.0), None, (120, 20.0), HOUSEHOLD),
        ((900, 20.0), None, (80, 20.0), HOUSEHOLD),
    ],
)
def test_averages_are_those_of_samples(counted, rest, households, bounds) -> None:
    draws = sampled(counted, rest, households, bounds, seed=4)
    found = average_estimate(
        count_posterior(counted[0], counted[1] ** 2),
        condition_on_presence(count_posterior(households[0], households[1] ** 2)),
        bounds,
        None if rest is None else count_posterior(rest[0], rest[1] ** 2),
    )
    error = draws.std() / math.sqrt(len(draws))
    assert found.value == pytest.approx(draws.mean(), abs=5 * error + 0.02 * draws.std())
    share = ((draws >= found.low) & (draws <= found.high)).mean()
    assert share == pytest.approx(LEVEL, abs=0.02)
    low, high = np.quantile(draws, [0.05, 0.95])
    assert found.high - found.low <= 1.03 * (high - low)
    assert bounds[0] - 1e-9 <= found.low or rest is not None
    assert 0 <= found.low < found.high <= bounds[1] + 1e-9


def test_parts_of_an_average_add_up() -> None:
    """Persons by age are averaged over the same households."""
    young, old = count_posterior(300, 41.3**2), count_posterior(800, 41.3**2)
    households = count_posterior(410, 41.3**2)
    parts = [
        average_estimate(young, households, HOUSEHOLD, old).value,
        average_estimate(old, households, HOUSEHOLD, young).value,
    ]
    whole = count_posterior(1100, 2 * 41.3**2)
    assert sum(parts) == pytest.approx(
        average_estimate(whole, households, HOUSEHOLD).value, rel=0.01
    )


@example(-1635, 0, -134, 5.0, HOUSEHOLD, True)
@example(-963, 524, 1, 12.2, HOUSEHOLD, False)
@example(143, 143, -822, 5.0, HOUSEHOLD, False)
@example(45, 241, -823, 5.0, HOUSEHOLD, False)
@given(
    st.integers(-2000, 100_000),
    st.integers(-2000, 50_000),
    st.integers(-2000, 50_000),
    st.sampled_from([5.0, 12.2, 41.3, 304.0]),
    st.sampled_from([HOUSEHOLD, FAMILY]),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_no_average_is_impossible(
    persons: int,
    others: int,
    number: int,
    sigma: float,
    bounds: tuple[float, float],
    is_whole: bool,
) -> None:
    """Whatever the noise is, as far as it may be from what is possible."""
    found = average_estimate(
        count_posterior(persons, sigma**2),
        condition_on_presence(count_posterior(number, sigma**2)),
        bounds,
        None if is_whole else count_posterior(others, sigma**2),
    )
    least = bounds[0] if is_whole else 0.0
    assert least - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value <= found.high + 1e-9 <= bounds[1] + 2e-9
