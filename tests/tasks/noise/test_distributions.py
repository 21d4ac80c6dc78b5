"""Enclosures against decimal interval arithmetic, which shares no code and no precision."""

from __future__ import annotations

import decimal
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.noise.distributions import (
    IntegerDistribution,
    exp_minus_bounds,
    threshold_bounds,
)
from spineflow.tasks.noise.quantiles import inverse_cdf, margin
from spineflow.tasks.noise.sampler import LAST_WORD, build_table, certain_thresholds

DOWN = decimal.Context(prec=90, rounding=ROUND_FLOOR, Emin=-(10**9), Emax=10**9)
UP = decimal.Context(prec=90, rounding=ROUND_CEILING, Emin=-(10**9), Emax=10**9)

DISTRIBUTIONS = [
    IntegerDistribution(Fraction(500), 2),
    IntegerDistribution(Fraction(1), 2),
    IntegerDistribution(Fraction(1, 2), 2),
    IntegerDistribution(Fraction(1, 20), 2),
    IntegerDistribution(Fraction(37, 22801), 2),
    IntegerDistribution(Fraction(1, 20000), 2),
    IntegerDistribution(Fraction(1000), 1),
    IntegerDistribution(Fraction(2), 1),
    IntegerDistribution(Fraction(7, 61), 1),
    IntegerDistribution(Fraction(1, 40), 1),
    IntegerDistribution(Fraction(1, 200), 2, one_sided=True),
    IntegerDistribution(Fraction(1, 3), 1, one_sided=True),
]


def weight(distribution: IntegerDistribution, x: int, context: decimal.Context) -> Decimal:
    """exp(-c x^power) rounded outward: Decimal's exp is correct to one unit in the last place."""
    exponent = distribution.c * x**distribution.power
    opposite = UP if context is DOWN else DOWN
    value = opposite.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    rounded = context.exp(value.copy_negate())
    return rounded.next_minus(context) if context is DOWN else rounded.next_plus(context)


def tails(distribution: IntegerDistribution, n: int) -> tuple[list[Decimal], list[Decimal]]:
    """Bounds on P(X > k) for k = 0 .. n - 1, every weight computed on its own."""
    n_terms = n
    while weight(distribution, n_terms, UP) > Decimal("1e-80"):
        n_terms += 1
    sums = []
    for context in (DOWN, UP):
        rest = Decimal(0) if context is DOWN else Decimal("1e-70")
        reversed_sums = [rest]
        for x in range(n_terms, 0, -1):
            rest = context.add(rest, weight(distribution, x, context))
            reversed_sums.append(rest)
        sums.append(reversed_sums[::-1])
    sides = Decimal(1 if distribution.one_sided else 2)
    total_low = DOWN.add(1, DOWN.multiply(sides, sums[0][0]))
    total_high = UP.add(1, UP.multiply(sides, sums[1][0]))
    return (
        [DOWN.divide(x, total_high) for x in sums[0][:n]],
        [UP.divide(x, total_low) for x in sums[1][:n]],
    )


def probability_bounds(
    distribution: IntegerDistribution, n: int
) -> dict[int, tuple[Decimal, Decimal]]:
    """Bounds on P(X <= k) for |k| up to n - 1."""
    low, high = tails(distribution, n)
    bounds = {k: (DOWN.subtract(1, high[k]), UP.subtract(1, low[k])) for k in range(n)}
    if not distribution.one_sided:
        bounds |= {-k - 1: (low[k], high[k]) for k in range(n)}
    return bounds


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_every_threshold_of_the_table_is_the_floor_that_decimal_intervals_give(distribution):
    table = build_table(distribution)
    values = range(table.first_value, table.first_value + table.thresholds.size)
    bounds = probability_bounds(distribution, max(values) + 2)
    for value, threshold in zip(values, table.thresholds.tolist(), strict=True):
        low, high = bounds[value]
        scale = Decimal(2**64)
        assert int(DOWN.multiply(low, scale)) == threshold
        assert min(int(UP.multiply(high, scale)), LAST_WORD) == threshold


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("precision", [64, pytest.param(190, marks=pytest.mark.soak(1))])
def test_enclosures_hold_what_decimal_intervals_hold(distribution, precision):
    first, low, high = threshold_bounds(distribution, precision)
    n = max(first + len(low), 1)
    bounds = probability_bounds(distribution, n)
    for position in range(0, len(low), max(1, len(low) // 60)):
        decimal_low, decimal_high = bounds[first + position]
        scale = Decimal(2**precision)
        assert low[position] <= UP.multiply(decimal_high, scale)
        assert DOWN.multiply(decimal_low, scale) <= high[position]
        assert high[position] - low[position] <= 2


def test_thresholds_reach_both_ends_of_the_words():
    for distribution in DISTRIBUTIONS:
        thresholds = build_table(distribution).thresholds
        assert thresholds[-1] == LAST_WORD
        assert distribution.one_sided or thresholds[0] == 0
        assert (thresholds[1:] >= thresholds[:-1]).all()


def test_an_enclosure_that_is_too_wide_is_not_taken_for_certain():
    distribution = IntegerDistribution(Fraction(1, 20), 2)
    assert all(certain_thresholds(distribution, guard)[1] for guard in (32, 64))
    assert certain_thresholds(distribution, 0)[1] is None


@settings(deadline=None, max_examples=60)
@given(
    st.fractions(min_value=Fraction(1, 10**12), max_value=2000),
    st.sampled_from([64, 128, 250]),
)
def test_exp_minus_is_enclosed(x, precision):
    if x == 0:
        return
    low, high = exp_minus_bounds(x, precision)
    with decimal.localcontext(UP):
        argument = Decimal(x.numerator) / Decimal(x.denominator)
        value = Decimal(2**precision) * (-argument).exp()
        slack = value * Decimal("1e-80")
        assert low <= value + slack
        assert value - slack <= high
    assert high - low < 64


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
