"""Quantiles of the noise, decided by exact comparisons.

Thresholds and margins of error are published and decide which rows are released, so they are found
as the distributions are sampled: from integer enclosures of the probabilities, narrowed until the
comparison with the given fraction is certain. Where the enclosures cannot separate two values, more
bits are computed; a probability that equals the fraction exactly would not end, and no probability
does, since exp(-c) is transcendental for a rational c > 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from .distributions import IntegerDistribution, exp_minus_bounds, tail_bounds

_GUARD_BITS = 64

SMALLEST_GAUSSIAN_RATE = Fraction(1, 10**10)
"""Smallest c = 1 / (2 sigma^2): for wider noise the sums would have millions of terms."""


def is_too_wide(distribution: IntegerDistribution) -> bool:
    """Whether a distribution is a Gaussian too wide for its quantiles to be computed."""
    return distribution.power == 2 and distribution.c < SMALLEST_GAUSSIAN_RATE


@lru_cache(maxsize=4096)
def inverse_cdf(distribution: IntegerDistribution, probability: Fraction) -> int:
    """The smallest integer k with P(X <= k) >= probability, for a symmetric distribution.

    The median is 0. Above it k is the first with P(X > k) <= 1 - probability; below it
    P(X <= -j - 1) = P(X > j), and k = -j - 1 for the last j with P(X > j) >= probability.

    Raises ValueError unless 0 < probability < 1, for a one-sided distribution, and for a discrete
    Gaussian wider than `SMALLEST_GAUSSIAN_RATE`.

    >>> inverse_cdf(IntegerDistribution(Fraction(1, 1250), power=2), Fraction("0.9999"))
    93
    """
    if distribution.one_sided:
        raise ValueError("quantiles need a distribution on all integers")
    if not 0 < probability < 1:
        raise ValueError(f"a probability of {probability} has no quantile")
    if is_too_wide(distribution):
        raise ValueError("the noise is too wide for its quantiles to be computed")
    if 2 * probability > 1:
        return _first_tail_at_most(distribution, 1 - probability)
    return -_first_tail_at_most(distribution, probability)


@lru_cache(maxsize=4096)
def margin(distribution: IntegerDistribution, coverage: Fraction) -> int:
    """The smallest integer m with P(-m <= X <= m) >= coverage.

    P(|X| > m) = 2 P(X > m), so that m is the (1 + coverage) / 2 quantile.

    >>> margin(IntegerDistribution(Fraction(1, 1250), power=2), Fraction("0.95"))
    49
    """
    return inverse_cdf(distribution, (1 + coverage) / 2)


def _first_tail_at_most(
    distribution: IntegerDistribution, probability: Fraction, bits: int = 0
) -> int:
    """The first k >= 0 with P(X > k) <= probability, at most 1/2; by more bits if these are few."""
    bits = bits or _GUARD_BITS + probability.denominator.bit_length()
    bounds, limit = _tails(distribution, bits), probability * (1 << bits)
    k = first_that(lambda j: bounds(j)[1] <= limit)
    if k == 0 or bounds(k - 1)[0] > limit:
        return k
    return _first_tail_at_most(distribution, probability, 2 * bits)


def _tails(distribution: IntegerDistribution, bits: int) -> Callable[[int], tuple[int, int]]:
    """Bounds on 2**bits P(X > k) as a function of k >= 0.

    The discrete Laplace's tail is r^(k + 1) / (1 + r) with r = exp(-c); the discrete Gaussian's is
    summed, and past its table is between 0 and the last entry.
    """
    if distribution.power == 1:
        one = 1 << bits
        ratio_low, ratio_high = exp_minus_bounds(distribution.c, bits)

        def laplace(k: int) -> tuple[int, int]:
            low, high = exp_minus_bounds(distribution.c * (k + 1), bits)
            return (low << bits) // (one + ratio_high), -(-(high << bits) // (one + ratio_low))

        return laplace
    lows, highs = tail_bounds(distribution, bits)
    return lambda k: (lows[k], highs[k]) if k < len(lows) else (0, highs[-1])


def first_that(holds: Callable[[int], bool]) -> int:
    """The first k >= 0 from which on a condition holds."""
    if holds(0):
        return 0
    end = 1
    while not holds(end):
        end *= 2
    return bisect_left(range(end), True, key=holds)
