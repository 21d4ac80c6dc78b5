"""Quantiles and margins of noise and of sums of it, and the loss that a margin needs.

Thresholds and margins of error are published and decide which rows are released, so they are found
as the distributions are sampled: from integer enclosures of the probabilities, narrowed until the
comparison with the given fraction is certain. Where the enclosures cannot separate two values, more
bits are computed; a probability that equals the fraction exactly would not end, and no probability
does, since exp(-c) is transcendental for a rational c > 0.

Sums of independent noise, for sums of noisy counts, have as their discrete Fourier transform the
product of the transforms, modulo a period N that P(|S| > N / 2), by Chernoff's bound, makes as good
as none. The remaining error is rounding, far below `ERROR`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce

import numpy as np

from .distributions import (
    IntegerDistribution,
    Noise,
    distribution_of,
    exp_minus_bounds,
    tail_bounds,
)

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


ERROR = 1e-10
"""Upper bound, by a wide margin, of the error of a probability computed here."""

_SMALL = 1e-12
"""Probability that may be lost outside the period."""


@lru_cache(maxsize=2048)
def margin_of_sum(
    parts: tuple[tuple[IntegerDistribution, int], ...], coverage: Fraction, *, are_cut: bool = False
) -> int:
    """A margin of a sum of noisy counts.

    For a single draw this is `margin`, by exact comparisons. For more, a probability within `ERROR`
    of the coverage counts as below it, so that the margin surely holds.

    If the counts were cut: with a true count x >= 0 and noise e, the cut count is off by
    max(e, -x), which is between e and max(e, 0). The error of the sum is between S, the sum of the
    draws, and T, the sum of their positive parts, for any true counts. The margin of a single count
    is that of its noise, which cutting does not make larger.

    Args:
        parts: distributions, and how many independent draws of each are added.
        coverage: the probability with which the margin holds.
        are_cut: negative counts became 0 before they were added.

    Returns:
        The smallest m with P(S < -m) + P(S > m) <= 1 - coverage, or P(S < -m) + P(T > m) if the
        counts were cut.

    Raises ValueError unless every number of draws is positive, and as `margin`.

    >>> ages = ((IntegerDistribution(Fraction(1, 1250), power=2), 8),)
    >>> margin_of_sum(ages, Fraction("0.95")), margin_of_sum(ages, Fraction("0.95"), are_cut=True)
    (139, 161)
    """
    n_draws = [n for _, n in parts]
    if min(n_draws) < 1:
        raise ValueError(f"a sum of {min(n_draws)} draws has no margin")
    single, *_ = (margin(distribution, coverage) for distribution, _ in parts)
    if n_draws == [1]:
        return single
    of_sum = reduce(np.convolve, (probabilities_of_sum(*part) for part in parts))
    of_parts = of_sum[len(of_sum) // 2 :]
    if are_cut:
        of_parts = reduce(np.convolve, (positive_parts(*part) for part in parts))
    return _least_margin(of_sum, of_parts, coverage)


def _least_margin(of_sum: np.ndarray, of_parts: np.ndarray, coverage: Fraction) -> int:
    """The smallest m with P(S < -m) + P(T > m) <= 1 - coverage, given the probabilities of S from
    -reach to reach and of T from 0.
    """
    allowed = max(1 - float(coverage) - ERROR, 0.0)
    # P(S < -m) and P(T > m) for m = 0, 1, ...
    below, above = (
        np.cumsum(own[::-1])[::-1] for own in (of_sum[len(of_sum) // 2 + 1 :], of_parts[1:])
    )
    missed = np.zeros(max(len(below), len(above)) + 1)
    missed[: len(below)] += below
    missed[: len(above)] += above
    return int(np.argmax(missed <= allowed))


def positive_parts(distribution: IntegerDistribution, n: int) -> np.ndarray:
    """P(T = t) for t = 0, 1, ..., T being the sum of max(X, 0) of n draws, to 1e-14 each.

    E exp(t max(X, 0)) <= 2 E exp(t X), so that Chernoff's bound is the bound of the sum with n
    log(2) more; the probability beyond is less than 1e-12.
    """
    one = _half(distribution, _reach(distribution, n, math.log(2)))
    one[0] = (1 + one[0]) / 2
    return _added(np.pad(one, (0, len(one) - 2)), n)[: len(one)]


def probabilities_of_sum(distribution: IntegerDistribution, n: int) -> np.ndarray:
    """P(S = s) for s from -reach to reach, shape (2 reach + 1,), each with an error below 1e-14.

    |S| passes the reach with a probability of at most 1e-12.
    """
    half = _half(distribution, _reach(distribution, n))
    return np.roll(_added(np.concatenate([half, half[:0:-1]]), n), len(half) - 1)


def _half(distribution: IntegerDistribution, reach: int) -> np.ndarray:
    """P(X = x) for x = 0, 1, ..., reach, beyond which hardly anything is."""
    x = np.arange(reach + 1, dtype=float)
    weights = np.exp(-float(distribution.c) * x**distribution.power)
    return weights / (2 * weights.sum() - weights[0])


def _added(one: np.ndarray, n: int) -> np.ndarray:
    """Probabilities `(period,)` of the sum of n draws, modulo the period, from those of one."""
    period = len(one)
    return np.maximum(np.fft.irfft(np.fft.rfft(one) ** n, period), 0.0)


def _reach(distribution: IntegerDistribution, n: int, log_more: float = 0.0) -> int:
    """A number that |S| reaches with a probability of at most `_SMALL`, by Chernoff's bound; or a
    sum of variables with moments that are exp(log_more) times larger.

    E exp(t X) <= exp(t^2 sigma^2 / 2) for the discrete Gaussian ([DiscreteGaussian2020]); for the
    discrete Laplace it is (1 - r)^2 / ((1 - r exp(t)) (1 - r exp(-t))), here at t = c / 2.
    """
    c, rest = float(distribution.c), math.log(2 / _SMALL) + n * log_more
    if distribution.power == 2:
        return math.ceil(math.sqrt(n * rest / c)) + 1
    log_moment = (
        2 * math.log(-math.expm1(-c))
        - math.log(-math.expm1(-c / 2))
        - math.log(-math.expm1(-3 * c / 2))
    )
    return math.ceil((n * log_moment + rest) * 2 / c) + 1


COVERAGE = Fraction(95, 100)
"""Default probability of margins of error."""


def loss_for_margin(
    noise: Noise, loss: Fraction, target: int, *, coverage: Fraction = COVERAGE, digits: int = 4
) -> Fraction:
    """The smallest loss, to some significant digits, whose noise stays within a margin.

    Sigma^2 and scale are in proportion to one over the loss (rho or epsilon), so that `noise` at
    `loss` determines those at any other. The margin holds with the probability `coverage` at least,
    by exact quantiles; noise that is too wide for these counts as beyond it. Raises ValueError for
    a negative target.

    >>> from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN
    >>> loss_for_margin(Noise(DISCRETE_GAUSSIAN, Fraction(625)), Fraction(1), 49)
    Fraction(4899, 5000)
    """
    if target < 0:
        raise ValueError("a margin of error cannot be negative")

    def meets(tried: Fraction) -> bool:
        at = Noise(noise.mechanism, noise.parameter * loss / tried)
        distribution = distribution_of(at)
        return not is_too_wide(distribution) and margin(distribution, coverage) <= target

    high = Fraction(10) ** round(math.log10(loss))
    while not meets(high):
        high *= 10
    while meets(high / 10):
        high /= 10
    unit, numbers = high / 10**digits, range(10 ** (digits - 1), 10**digits)
    found = bisect_left(numbers, True, key=lambda n: meets(n * unit))
    return (numbers.start + found) * unit
