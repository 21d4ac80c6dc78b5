"""Noise, the right to draw it, random bits, and distributions bounded in integer arithmetic.

A distribution here has weights w(x) = exp(-c |x|^power) for a positive rational c: power 2 is the
discrete Gaussian with c = 1 / (2 sigma^2), power 1 the discrete Laplace with c = 1 / scale. It
lives on all integers or, one-sided, on 0, 1, 2, ...

Probabilities are enclosed between integers: every routine returns a lower and an upper bound on
2**precision times the quantity, from additions, multiplications and divisions of Python integers
that round the lower bound down and the upper bound up. No floating-point number is involved, so
the enclosures are theorems rather than estimates, at any precision.

`SystemRandom` is the source of every private run. It keeps no state in the process: each request
goes to the operating system's cryptographic generator (`getrandom` on Linux), so there is nothing
that a fork could duplicate, that two threads could share, or that a memory image could replay.
`SeededRandom` is repeatable and therefore not private; it exists for tests and for runs that are
stamped as not private.

Every measurement requests noise through `NoiseDraws`. In a private run that is the charge in the
ledger (`tasks.ledger.charging.Claim`), and it draws the charged noise and nothing else. Runs
that are not private, and studies, draw through `UnchargedNoise`.
"""

from __future__ import annotations

import hashlib
import math
import os
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final, Protocol

import numpy as np

DISCRETE_GAUSSIAN: Final = "discrete_gaussian"
DISCRETE_LAPLACE: Final = "discrete_laplace"

EXACT_VARIANCE_SIGMA_SQUARED = 8
"""From here the variance is sigma^2 to within exp(-2 pi^2 8), far below a float's resolution."""


@lru_cache(maxsize=1024)
def noise_variance(mechanism: str, parameter: Fraction) -> float:
    """Exact variance of the noise, as the nearest float up to rounding in the last digits.

    The discrete Gaussian's is sum x^2 w(x) / sum w(x), which falls visibly short of sigma^2 only
    below sigma^2 of about 2; the discrete Laplace's is 1 / (cosh(1 / scale) - 1).
    """
    if mechanism == DISCRETE_LAPLACE:
        half_inverse = float(1 / (2 * parameter))
        return 1 / (2 * math.sinh(half_inverse) ** 2) if half_inverse < 350 else 0.0
    if parameter >= EXACT_VARIANCE_SIGMA_SQUARED:
        return float(parameter)
    # Quotients of integers are rounded as a fraction is, and cost a tenth.
    above, below = parameter.denominator, 2 * parameter.numerator
    weights = [math.exp(-(x * x * above / below)) for x in range(1, 200)]
    second_moment = math.fsum(x * x * w for x, w in enumerate(weights, 1))
    return 2 * second_moment / (1 + 2 * math.fsum(weights))


class RandomSource(Protocol):
    """Anything that hands out independent uniform bytes."""

    def read(self, n_bytes: int) -> bytes:
        """Return `n_bytes` fresh bytes, never handed out before."""
        ...


class SystemRandom:
    """The operating system's cryptographic generator; safe across threads, processes and forks."""

    def read(self, n_bytes: int) -> bytes:
        """Return `n_bytes` fresh bytes from `os.urandom`, which releases the GIL meanwhile."""
        return os.urandom(n_bytes)


class SeededRandom:
    """A repeatable stream for testing only: Philox keyed with SHA-256 of the seed and labels.

    Streams with different labels are independent, so that each shard of a repeatable run can own
    one for any order of measuring the shards. An instance belongs to one thread.

    >>> SeededRandom(1, "persons", "Block", "0").read(8) == SeededRandom(1).read(8)
    False
    """

    def __init__(self, seed: int, *labels: str) -> None:
        key = hashlib.sha256(repr((seed, labels)).encode()).digest()
        self._generator = np.random.Philox(key=np.frombuffer(key[:16], dtype="<u8"))

    def read(self, n_bytes: int) -> bytes:
        """Return the next `n_bytes` of the stream (whole 64-bit words are consumed)."""
        words = self._generator.random_raw(-(-n_bytes // 8))
        return np.asarray(words, dtype="<u8").tobytes()[:n_bytes]


def random_words(source: RandomSource, n_words: int) -> np.ndarray:
    """`n_words` uniform 64-bit words, shape `(n_words,)`, uint64."""
    return np.frombuffer(source.read(8 * n_words), dtype="<u8").astype(np.uint64, copy=False)


def random_half_words(source: RandomSource, n_words: int) -> np.ndarray:
    """`n_words` uniform 16-bit words, shape `(n_words,)`, uint16."""
    return np.frombuffer(source.read(2 * n_words), dtype="<u2").astype(np.uint16, copy=False)


def random_integer(source: RandomSource, n_bits: int) -> int:
    """A uniform integer of `n_bits` bits, a multiple of 8."""
    return int.from_bytes(source.read(n_bits // 8), "big")


@dataclass(frozen=True)
class IntegerDistribution:
    """P(x) proportional to exp(-c |x|^power) on the integers, or on 0, 1, ... if one-sided."""

    c: Fraction
    power: int
    one_sided: bool = False


@dataclass(frozen=True)
class Noise:
    """A distribution of noise: the mechanism, and its exact sigma^2 or scale."""

    mechanism: str
    parameter: Fraction

    @cached_property
    def variance(self) -> float:
        """Exact variance, as the nearest float."""
        return noise_variance(self.mechanism, self.parameter)


def distribution_of(noise: Noise) -> IntegerDistribution:
    """The distribution of noise, P(x) proportional to exp(-c |x|^power)."""
    if noise.mechanism == DISCRETE_LAPLACE:
        return IntegerDistribution(1 / noise.parameter, power=1)
    return IntegerDistribution(1 / (2 * noise.parameter), power=2)


class NoiseDraws(Protocol):
    """Whoever hands out noise for one file of measurements."""

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64; `part` is the level, with query or stage."""
        ...


def sum_that_fits(counts: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """counts + noise for counts >= 0; raises OverflowError rather than wrap."""
    total = counts + noise
    if (total < noise).any():
        raise OverflowError("a noisy answer does not fit 64 bits; use a larger share or budget")
    return total


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
    steps = 2 * len(weights) - 1 if distribution.power == 2 else 1
    ratio_high = exp_minus_bounds(distribution.c * steps, working)[1]  # w(K + 1) / w(K).
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
