"""Margins of sums of noise: against convolutions, exact single margins, and draws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.noise.distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    IntegerDistribution,
    Noise,
    distribution_of,
)
from spineflow.tasks.noise.quantiles import (
    COVERAGE,
    ERROR,
    loss_for_margin,
    margin,
    margin_of_sum,
    positive_parts,
    probabilities_of_sum,
)

NINETY_FIVE = Fraction(95, 100)


def probabilities(distribution: IntegerDistribution) -> np.ndarray:
    """P(x) from -reach to reach, summed one by one."""
    c, power = float(distribution.c), distribution.power
    reach = math.ceil((45 / c) ** (1 / power)) + 1
    weights = np.array([math.exp(-c * abs(x) ** power) for x in range(-reach, reach + 1)])
    return weights / math.fsum(weights)


def of_sum(distribution: IntegerDistribution, n: int) -> np.ndarray:
    one = probabilities(distribution)
    total = one
    for _ in range(n - 1):
        total = np.convolve(total, one)
    return total


def covered(total: np.ndarray, m: int) -> float:
    middle = len(total) // 2
    return math.fsum(total[max(0, middle - m) : middle + m + 1])


distributions = st.builds(
    IntegerDistribution,
    st.fractions(Fraction(1, 30), 12, max_denominator=100),
    st.sampled_from([1, 2]),
)


@settings(max_examples=40, deadline=None)
@given(distributions, st.integers(1, 8), st.integers(0, 90))
def test_probability_is_that_of_the_convolution(distribution, n: int, m: int) -> None:
    assert covered(probabilities_of_sum(distribution, n), m) == pytest.approx(
        covered(of_sum(distribution, n), m), abs=ERROR
    )


@settings(max_examples=40, deadline=None)
@given(distributions, st.integers(2, 8), st.sampled_from(["0.5", "0.9", "0.95", "0.999"]))
def test_margin_is_the_smallest_that_covers(distribution, n: int, coverage: str) -> None:
    found = margin_of_sum(((distribution, n),), Fraction(coverage))
    total = of_sum(distribution, n)
    assert covered(total, found) >= float(coverage)
    if found:
        assert covered(total, found - 1) < float(coverage) + 2 * ERROR


@settings(max_examples=40, deadline=None)
@given(distributions)
def test_a_single_draw_has_the_exact_margin(distribution) -> None:
    exact = margin(distribution, NINETY_FIVE)
    single = ((distribution, 1),)
    assert margin_of_sum(single, NINETY_FIVE) == exact
    assert margin_of_sum(single, NINETY_FIVE, are_cut=True) == exact
    of_one = probabilities_of_sum(distribution, 1)
    assert covered(of_one, exact) >= 0.95 - ERROR
    assert exact == 0 or covered(of_one, exact - 1) < 0.95 + ERROR


@pytest.mark.parametrize("n", [8, 18, 46])
def test_sums_of_wide_gaussians_are_nearly_normal(n: int) -> None:
    sigma = 1000
    noise = IntegerDistribution(Fraction(1, 2 * sigma**2), 2)
    found = margin_of_sum(((noise, n),), NINETY_FIVE)
    assert found == pytest.approx(1.959964 * sigma * math.sqrt(n), abs=1)


@settings(max_examples=30, deadline=None)
@given(distributions, st.integers(1, 8))
def test_positive_parts_are_those_of_the_convolution(distribution, n: int) -> None:
    one = probabilities(distribution)
    middle = len(one) // 2
    cut = np.concatenate([[one[: middle + 1].sum()], one[middle + 1 :]])
    total = cut
    for _ in range(n - 1):
        total = np.convolve(total, cut)
    found = positive_parts(distribution, n)
    size = min(len(found), len(total))
    assert found[:size] == pytest.approx(total[:size], abs=ERROR)
    assert total[size:].sum() < ERROR


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        IntegerDistribution, st.fractions(Fraction(1, 20), 2, max_denominator=40), st.just(2)
    ),
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.sampled_from(["0.8", "0.95"]),
)
def test_sums_of_cut_counts_are_within_their_margin(distribution, true, coverage: str) -> None:
    """Whatever the true counts are, by the distribution of the sum that is released."""
    one = probabilities(distribution)
    middle, total = len(one) // 2, np.ones(1)
    for count in true:
        released = np.zeros(count + middle + 1)
        np.add.at(released, np.maximum(0, count + np.arange(-middle, middle + 1)), one)
        total = np.convolve(total, released)
    parts = ((distribution, len(true)),)
    m = margin_of_sum(parts, Fraction(coverage), are_cut=True)
    whole = sum(true)
    assert total[max(0, whole - m) : whole + m + 1].sum() >= float(coverage) - 1e-9
    assert m >= margin_of_sum(parts, Fraction(coverage))


def test_no_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="a sum of 0 draws"):
        margin_of_sum(((IntegerDistribution(Fraction(1), 2), 0),), NINETY_FIVE)


@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
@pytest.mark.parametrize("target", [0, 1, 7, 60])
@pytest.mark.parametrize("now", [Fraction(1, 1000), Fraction(3)])
def test_the_loss_is_enough_and_a_little_less_is_not(
    mechanism: str, target: int, now: Fraction
) -> None:
    noise = Noise(mechanism, 40 / now)
    needed = loss_for_margin(noise, now, target)

    def margin_at(loss: Fraction) -> int:
        return margin(distribution_of(Noise(mechanism, noise.parameter * now / loss)), COVERAGE)

    assert margin_at(needed) <= target
    assert margin_at(needed * Fraction(998, 1000)) > target
    unit = Fraction(10) ** (math.ceil(math.log10(needed)) - 4)
    assert needed % unit == 0 and margin_at(needed - unit) > target


def test_the_answer_does_not_depend_on_the_present_loss() -> None:
    at = [
        loss_for_margin(Noise(DISCRETE_GAUSSIAN, Fraction(50) / loss), loss, 9)
        for loss in (Fraction(1, 7), Fraction(1), Fraction(200))
    ]
    assert len(set(at)) == 1


def test_a_negative_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        loss_for_margin(Noise(DISCRETE_LAPLACE, Fraction(1)), Fraction(1), -1)
