"""Quantiles against sums in 60-digit decimals, and where floating point would go wrong."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.noise.quantiles import inverse_cdf, margin


def decimal_of(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def quantile_by_sum(c: Fraction, power: int, probability: Fraction) -> int:
    """The first k with P(X <= k) >= probability, by adding up weights."""
    with localcontext() as context:
        context.prec = 60
        reach = int((130 / c) ** (1 / power)) + 2
        weights = [(-decimal_of(c) * abs(x) ** power).exp() for x in range(-reach, reach + 1)]
        due, below = decimal_of(probability) * sum(weights), Decimal(0)
        for x, weight in enumerate(weights, start=-reach):
            below += weight
            if below >= due:
                return x
    raise AssertionError


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.fractions(min_value=Fraction(1, 12), max_value=4, max_denominator=12),
    st.sampled_from([1, 2]),
    st.fractions(min_value=0, max_value=1, max_denominator=10**6).filter(lambda p: 0 < p < 1),
)
def test_quantiles_are_those_of_the_summed_weights(c, power, probability) -> None:
    found = inverse_cdf(IntegerDistribution(c, power), probability)
    assert found == quantile_by_sum(c, power, probability)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("k", [-3, 0, 1, 7])
def test_probabilities_that_doubles_cannot_tell_apart(power: int, k: int) -> None:
    """Either side of P(X <= k) by 1e-40, the quantile is k and k + 1."""
    c = Fraction(1, 9)
    with localcontext() as context:
        context.prec = 60
        weights = {x: (-decimal_of(c) * abs(x) ** power).exp() for x in range(-1200, 1201)}
        up_to_k = sum(w for x, w in weights.items() if x <= k) / sum(weights.values())
        shift = Decimal("1e-40")
        below, above = Fraction(up_to_k - shift), Fraction(up_to_k + shift)
    noise = IntegerDistribution(c, power)
    assert inverse_cdf(noise, below) == k
    assert inverse_cdf(noise, above) == k + 1


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    st.fractions(min_value=Fraction(1, 20), max_value=2, max_denominator=20),
    st.sampled_from([1, 2]),
    st.sampled_from([Fraction("0.5"), Fraction("0.9"), Fraction("0.95"), Fraction("0.999")]),
)
def test_margin_is_the_smallest_interval_with_the_coverage(c, power, coverage) -> None:
    noise = IntegerDistribution(c, power)
    m = margin(noise, coverage)
    assert m == quantile_by_sum(c, power, (1 + coverage) / 2) >= 0


def test_far_tails_are_reached() -> None:
    noise = IntegerDistribution(Fraction(1, 200), power=2)
    far = inverse_cdf(noise, 1 - Fraction(1, 10**300))
    assert 350 < far < 380
    assert inverse_cdf(noise, Fraction(1, 10**300)) == -far
    assert inverse_cdf(IntegerDistribution(Fraction(1, 10**9), 1), Fraction("0.9999")) == 8517193191


@pytest.mark.parametrize("probability", [Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(2)])
def test_what_is_no_probability_has_no_quantile(probability: Fraction) -> None:
    with pytest.raises(ValueError, match="has no quantile"):
        inverse_cdf(IntegerDistribution(Fraction(1), 2), probability)
    with pytest.raises(ValueError, match="all integers"):
        inverse_cdf(IntegerDistribution(Fraction(1), 1, one_sided=True), Fraction(1, 2))
    with pytest.raises(ValueError, match="too wide"):
        inverse_cdf(IntegerDistribution(Fraction(1, 10**11), 2), Fraction(1, 2))
