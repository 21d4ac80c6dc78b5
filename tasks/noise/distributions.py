"""Discrete distributions bounded in integer arithmetic, for exact inversion.

A distribution here has weights w(x) = exp(-c |x|^power) for a positive rational c: power 2 is the
discrete Gaussian with c = 1 / (2 sigma^2), power 1 the discrete Laplace with c = 1 / scale. It
lives on all integers or, one-sided, on 0, 1, 2, ...

Probabilities are enclosed between integers: every routine returns a lower and an upper bound on
2**precision times the quantity, from additions, multiplications and divisions of Python integers
that round the lower bound down and the upper bound up. No floating-point number is involved, so
the enclosures are theorems rather than estimates, at any precision.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from .draws import RandomSource, random_integer


@dataclass(frozen=True)
class IntegerDistribution:
    """P(x) proportional to exp(-c |x|^power) on the integers, or on 0, 1, ... if one-sided."""

    c: Fraction
    power: int
    one_sided: bool = False


def exp_minus_bounds(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers lo <= 2**precision * exp(-x) <= hi, for rational x > 0.

    exp(-x) = (1 / exp(x / 2^j))^(2^j), with j such that x / 2^j <= 1/2; the Taylor series of the
    positive exponential is cut where its remainder, at most twice the next term, is below one
    unit, and the reciprocal is squared j times.
    """
    halvings = max(0, (2 * x.numerator // x.denominator).bit_length())
    numerator, denominator = x.numerator, x.denominator << halvings
    one = 1 << precision
    low = high = term_low = term_high = one
    n = 0
    while term_high > 1:
        n += 1
        term_low = term_low * numerator // (denominator * n)
        term_high = -(-term_high * numerator // (denominator * n))
        low += term_low
        high += term_high
    high += 2
    low, high = (one << precision) // high, -(-(one << precision) // low)
    for _ in range(halvings):
        low, high = low * low >> precision, (high * high >> precision) + 1
    return low, high


def weight_bounds(distribution: IntegerDistribution, precision: int) -> list[tuple[int, int]]:
    """Bounds on 2**precision * w(x) for x = 0, 1, ..., up to where the lower bound reaches 0.

    w(x + 1) = w(x) r(x), with r(x) = exp(-c) for power 1, and r(0) = exp(-c),
    r(x + 1) = r(x) exp(-2c) for power 2.
    """
    low = high = 1 << precision
    ratio_low, ratio_high = exp_minus_bounds(distribution.c, precision)
    if distribution.power == 2:
        step_low, step_high = exp_minus_bounds(2 * distribution.c, precision)
    bounds = [(low, high)]
    while low > 0:
        low = low * ratio_low >> precision
        high = (high * ratio_high >> precision) + 1
        bounds.append((low, high))
        if distribution.power == 2:
            ratio_low = ratio_low * step_low >> precision
            ratio_high = (ratio_high * step_high >> precision) + 1
    return bounds


def tail_bounds(distribution: IntegerDistribution, precision: int) -> tuple[list[int], list[int]]:
    """Lists of bounds on 2**precision * P(X > k), for k = 0, 1, ..., K.

    K is where the weights vanish at a working precision 64 bits finer. Beyond it, weights fall at
    least as fast as a geometric series with ratio r(K), which bounds the rest of the sum.
    """
    working = precision + 64
    weights = weight_bounds(distribution, working)
    one = 1 << working
    ratio_high = _last_ratio_high(distribution, len(weights) - 1, working)
    rest_high = -(-(weights[-1][1] << working) // (one - ratio_high))
    sums_low = list(accumulate((low for low, _ in reversed(weights[1:-1])), initial=0))[::-1]
    sums_high = list(accumulate((high for _, high in reversed(weights[1:-1])), initial=rest_high))
    sums_high.reverse()
    sides = 1 if distribution.one_sided else 2
    total_low = one + sides * sums_low[0]
    total_high = one + sides * sums_high[0]
    return (
        [(low << precision) // total_high for low in sums_low],
        [-(-(high << precision) // total_low) for high in sums_high],
    )


def _last_ratio_high(distribution: IntegerDistribution, x: int, precision: int) -> int:
    """Upper bound on 2**precision * w(x + 1) / w(x)."""
    factor = 2 * x + 1 if distribution.power == 2 else 1
    return exp_minus_bounds(distribution.c * factor, precision)[1]


def threshold_bounds(
    distribution: IntegerDistribution, precision: int
) -> tuple[int, list[int], list[int]]:
    """The first value k, and bounds on 2**precision * P(X <= k), P(X <= k + 1), ...

    On the integers the thresholds are symmetric: P(X <= -k - 1) = P(X > k) = 1 - P(X <= k).
    """
    low, high = tail_bounds(distribution, precision)
    one = 1 << precision
    upper_low, upper_high = [one - h for h in high], [one - x for x in low]
    if distribution.one_sided:
        return 0, upper_low, upper_high
    return -len(low), low[::-1] + upper_low, high[::-1] + upper_high


def continue_inversion(
    distribution: IntegerDistribution, word: int, n_bits: int, source: RandomSource
) -> int:
    """Finish an inversion that the first `n_bits` bits of a uniform U leave undecided.

    U is in [word, word + 1) / 2**n_bits. Further bits of U are drawn, 64 at a time, until the
    interval is between two neighbouring thresholds, whose enclosures are computed to more bits than
    U has; then X = min {k : U < P(X <= k)}. Each round fails with a chance of about 2**-64, or
    because U is beyond the last tabulated threshold, and then the next round's table reaches
    further out: no value is out of reach.
    """
    while True:
        word, n_bits = (word << 64) | random_integer(source, 64), n_bits + 64
        guard = 64
        first, low, high = threshold_bounds(distribution, n_bits + guard)
        n_passed = bisect_right(high, word << guard)
        n_not_above = bisect_left(low, (word + 1) << guard)
        starts_inside = distribution.one_sided or n_passed > 0
        if n_passed == n_not_above < len(low) and starts_inside:
            return first + n_passed
