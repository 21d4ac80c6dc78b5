"""Enclosures against decimal interval arithmetic, which shares no code and no precision."""

from __future__ import annotations

import decimal
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.noise.distributions import (
    IntegerDistribution,
    exp_minus_bounds,
    threshold_bounds,
)
from spineflow.tasks.noise.inversion import LAST_WORD, build_table, certain_thresholds

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
@pytest.mark.parametrize("precision", [64, 190])
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
