"""Exact discrete Gaussian and discrete Laplace noise, vectorised.

Both distributions are sampled exactly, not to within floating-point error, for any positive
rational parameter, with randomness from a `RandomSource`: at small and moderate scales by
`InversionTable`, which takes the system's random bits two bytes a draw, and at large scales by
`CoarseFineSampler`. Every comparison is between integers whose bounds are rigorous, and where 64
bits do not decide, more bits of the same uniform are drawn until they do. The reference is
[DiscreteGaussian2020], whose rejection sampler has the same distribution.

The kernels release the GIL. No state survives a call except immutable tables, so calls are safe
in any mixture of threads, processes and forks. The time of a call depends on the values drawn,
slightly and for a whole vector at a time.

*Inversion by table.* A uniform U in [0, 1) is read as an infinite string of bits, and X = min {k :
U < P(X <= k)} has the distribution exactly. Bits of U are looked at only as far as they are needed:

1. The first 16 bits place U in one of 65,536 buckets. A bucket that no threshold P(X <= k) cuts
   gives the value at once.
2. Otherwise 48 further bits make a 64-bit word W, U in [W, W + 1) / 2^64. With
   t_k = floor(2^64 P(X <= k)), known with certainty, U is above the threshold if W > t_k and
   below it if W < t_k. A binary search among the thresholds gives the value.
3. Where W equals some t_k (the words 0 and 2^64 - 1, beyond which the tails lie, included), the
   interval of U holds a threshold, and `continue_inversion` draws further bits. The chance is
   about (number of thresholds) / 2^64 per draw.

Nothing is truncated and no float is used, so the output distribution is the target itself.

*A coarse part, fine bits, rejection.* A table of every threshold grows with the scale, so beyond a
limit a magnitude is written y = m h + l with m a power of two and 0 <= l < m. With weights w(y) =
exp(-c y^power):

1. h is drawn by exact inversion from weights w(m h) on 0, 1, 2, ...; l and a sign are uniform.
2. The attempt is accepted with probability w(m h + l) / w(m h) = exp(-gamma), where
   gamma = c l (2 m h + l) for power 2 and gamma = c l for power 1. A negative zero is rejected.

The accepted signed values have weights w(y) exactly. One standard deviation or scale holds 64 to
128 values of h, so fewer than 1 % of the attempts are rejected.

Step 2 is Algorithm 1 of [DiscreteGaussian2020]: for gamma <= 1, draw Bernoulli(gamma / k) for
k = 1, 2, ... up to the first failure, and accept if that k is odd. The kernel compares the first
64 bits of a uniform U with integer bounds on 2^64 gamma / k. Where the bounds do not decide, or
gamma >= 1, Python's integers finish the attempt: they read further bits of the same U until the
exact fraction decides. No float is used, and every integer can be drawn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from .distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    IntegerDistribution,
    Noise,
    RandomSource,
    continue_inversion,
    distribution_of,
    random_half_words,
    random_integer,
    random_words,
    threshold_bounds,
)

N_BUCKETS = 1 << 16
LAST_WORD = (1 << 64) - 1
UNDECIDED = np.iinfo(np.int16).min
"""Entry of a bucket that a threshold cuts, or whose value does not fit 16 bits."""

DRAWS_PER_BLOCK = 1 << 18
"""Draws per request to the random source, so that buffers stay in the processor's cache."""


@dataclass(frozen=True)
class InversionTable:
    """The thresholds of a distribution and the tables that look words up among them.

    `thresholds[j]` is floor(2^64 P(X <= first_value + j)), shape `(n,)`, uint64, ascending, up to
    the first that equals 2^64 - 1. `value_of_bucket[b]` is the value of the 16-bit word b, or
    `UNDECIDED`, shape `(65536,)`, int16.
    """

    distribution: IntegerDistribution
    first_value: int
    thresholds: np.ndarray
    value_of_bucket: np.ndarray

    def draw(self, size: int, source: RandomSource) -> np.ndarray:
        """Independent exact draws, shape `(size,)`, int64.

        Raises OverflowError if a draw does not fit 64 bits, rather than wrap it.
        """
        values = np.empty(size, dtype=np.int64)
        for start in range(0, size, DRAWS_PER_BLOCK):
            block = values[start : start + DRAWS_PER_BLOCK]
            for position, value in self.draw_block(block, source).items():
                block[position] = value
        return values

    def draw_block(self, values: np.ndarray, source: RandomSource) -> dict[int, int]:
        """Fill `values` with draws; those decided beyond 64 bits are returned by position."""
        half_words = random_half_words(source, values.size)
        undecided = np.empty(values.size, dtype=np.int32)
        n_undecided = _look_up_buckets(half_words, self.value_of_bucket, values, undecided)
        undecided = undecided[:n_undecided]
        words = random_words(source, n_undecided)
        ties = np.empty(n_undecided, dtype=np.int32)
        n_ties = _search_thresholds(
            half_words, words, undecided, self.thresholds, self.first_value, values, ties
        )
        return {
            int(undecided[tie]): continue_inversion(
                self.distribution,
                (int(half_words[undecided[tie]]) << 48) | (int(words[tie]) >> 16),
                64,
                source,
            )
            for tie in ties[:n_ties]
        }


def build_table(distribution: IntegerDistribution) -> InversionTable:
    """Tabulate a distribution; the enclosures are narrowed until every threshold is certain."""
    guard = 32
    first_value, floors = certain_thresholds(distribution, guard)
    while floors is None:
        guard *= 2
        first_value, floors = certain_thresholds(distribution, guard)
    thresholds = np.array(floors, dtype=np.uint64)
    starts = np.arange(N_BUCKETS, dtype=np.uint64) << np.uint64(48)
    n_below = np.searchsorted(thresholds, starts, side="left")
    n_up_to_end = np.searchsorted(thresholds, starts | np.uint64((1 << 48) - 1), side="right")
    values = first_value + n_below
    is_decided = (n_below == n_up_to_end) & (np.abs(values) <= np.iinfo(np.int16).max)
    value_of_bucket = np.where(is_decided, values, UNDECIDED).astype(np.int16)
    return InversionTable(distribution, first_value, thresholds, value_of_bucket)


def certain_thresholds(
    distribution: IntegerDistribution, guard: int
) -> tuple[int, list[int] | None]:
    """First value k, and floor(2^64 P(X <= k)), floor(2^64 P(X <= k + 1)), ... up to 2^64 - 1.

    On the integers the list starts at the last threshold whose floor is 0. As every P(X <= k) is
    below 1, an upper bound above 2^64 - 1 is lowered to it. The list is None if `guard` bits
    beyond 64 leave some floor uncertain.
    """
    first, low, high = threshold_bounds(distribution, 64 + guard)
    floors = [x >> guard for x in low]
    floors_high = [min(x >> guard, LAST_WORD) for x in high]
    start = 0 if distribution.one_sided else bisect_right(floors_high, 0) - 1
    end = bisect_left(floors, LAST_WORD)
    kept = slice(max(start, 0), end + 1)
    is_certain = start >= 0 and end < len(floors) and floors[kept] == floors_high[kept]
    return first + kept.start, floors[kept] if is_certain else None


@njit(nogil=True, cache=True)
def _look_up_buckets(
    half_words: np.ndarray, value_of_bucket: np.ndarray, values: np.ndarray, undecided: np.ndarray
) -> int:
    n_undecided = 0
    for i in range(half_words.size):
        value = value_of_bucket[half_words[i]]
        values[i] = value
        # Written in any case, and kept if the number rises: no branch to be guessed wrong.
        undecided[n_undecided] = i
        n_undecided += value == UNDECIDED
    return n_undecided


@njit(nogil=True, cache=True)
def _search_thresholds(
    half_words: np.ndarray,
    words: np.ndarray,
    undecided: np.ndarray,
    thresholds: np.ndarray,
    first_value: int,
    values: np.ndarray,
    ties: np.ndarray,
) -> int:
    n_ties = 0
    for j in range(undecided.size):
        i = undecided[j]
        word = (np.uint64(half_words[i]) << np.uint64(48)) | (words[j] >> np.uint64(16))
        low, high = 0, thresholds.size
        while low < high:
            middle = (low + high) // 2
            if thresholds[middle] < word:
                low = middle + 1
            else:
                high = middle
        values[i] = first_value + low
        # A word that is the floor of a threshold is below or above it depending on the bits after
        # 64.
        if low < thresholds.size and thresholds[low] == word:
            ties[n_ties] = j
            n_ties += 1
    return n_ties


COARSE_VALUES_PER_SCALE = 64
MAX_ROUNDS = 16
"""Most Bernoulli(gamma / k) draws of an attempt in the kernel; more are needed with probability
below 1/16!."""

MAX_KERNEL_FINE_BITS = 24
"""Largest log2(m) in the kernel: c is above 2^-63, so that its shift is below 64, and
l (2 m h + l) fits 64 bits for every tabulated h."""


class PendingAttempt(NamedTuple):
    """An attempt that the kernel leaves undecided.

    slot : position among the values to fill.
    attempt : number of the attempt in its block, by which its coarse value is found.
    sign_and_fine : word with the sign and the fine bits.
    k : round of the rejection step, 0 if the step has not begun.
    word : first 64 bits of the round's uniform.
    """

    slot: int
    attempt: int
    sign_and_fine: int
    k: int
    word: int


PENDING = np.dtype([(name, np.uint64) for name in PendingAttempt._fields])
"""Undecided attempts as the kernel writes them."""


@dataclass(frozen=True)
class CoarseFineSampler:
    """Draws from weights exp(-c |x|^power) on the integers; m = 2**fine_bits."""

    distribution: IntegerDistribution
    fine_bits: int
    coarse: InversionTable

    def draw(self, size: int, source: RandomSource) -> np.ndarray:
        """Independent exact draws, shape `(size,)`, int64.

        Raises OverflowError if a draw does not fit 64 bits, rather than wrap it.
        """
        values = np.empty(size, dtype=np.int64)
        if self.fine_bits > MAX_KERNEL_FINE_BITS:
            for position in range(size):
                values[position] = self._draw_one(source)
            return values
        n_filled = 0
        while n_filled < size:
            n_filled += self._fill(values[n_filled : n_filled + DRAWS_PER_BLOCK], source)
        return values

    def _fill(self, values: np.ndarray, source: RandomSource) -> int:
        """Fill the beginning of `values`; returns how many were filled."""
        coarse = np.empty(values.size, dtype=np.int64)
        far_coarse = self.coarse.draw_block(coarse, source)
        coarse[list(far_coarse)] = -1  # Values beyond the table are left to Python's integers.
        words = random_words(source, 2 * values.size + values.size // 8 + 2 * MAX_ROUNDS)
        shift = _leading_zeros(self.distribution.c)
        multiplier = (self.distribution.c.numerator << (64 + shift)) // (
            self.distribution.c.denominator
        )
        pending = np.empty(values.size, dtype=PENDING)
        n_filled, n_pending = _attempt_all(
            coarse,
            words,
            self.fine_bits,
            self.distribution.power,
            np.uint64(multiplier),
            np.uint64(shift),
            values,
            pending,
        )
        for row in pending[:n_pending].tolist():
            undecided = PendingAttempt(*row)
            h = far_coarse.get(undecided.attempt, int(coarse[undecided.attempt]))
            value = self._finish(h, undecided.sign_and_fine, undecided.k, undecided.word, source)
            values[undecided.slot] = self._draw_one(source) if value is None else value
        return n_filled

    def _draw_one(self, source: RandomSource) -> int:
        """One exact draw in Python's integers, of any size."""
        value = None
        while value is None:
            block = np.empty(1, dtype=np.int64)
            h = self.coarse.draw_block(block, source).get(0, int(block[0]))
            n_bits = -(-(self.fine_bits + 1) // 8) * 8
            value = self._finish(h, random_integer(source, n_bits), 0, 0, source)
        return value

    def _finish(
        self, h: int, sign_and_fine: int, k: int, word: int, source: RandomSource
    ) -> int | None:
        """Finish an attempt: the value, or None if it is rejected.

        With k = 0 the rejection step has not begun. Otherwise Bernoulli(gamma / k) is being drawn
        from a uniform whose first 64 bits are `word`.
        """
        m = 1 << self.fine_bits
        fine = (sign_and_fine >> 1) & (m - 1)
        magnitude = m * h + fine
        if sign_and_fine & 1 and magnitude == 0:
            return None
        exponent = fine * (2 * m * h + fine) if self.distribution.power == 2 else fine
        if not _bernoulli_exp(self.distribution.c * exponent, k, word, source):
            return None
        return -magnitude if sign_and_fine & 1 else magnitude


def build_coarse_fine(
    distribution: IntegerDistribution, scale_squared: Fraction
) -> CoarseFineSampler:
    """The sampler with the largest m that leaves 64 coarse values within one scale."""
    scale_in_coarse_values = scale_squared / COARSE_VALUES_PER_SCALE**2
    fine_bits = max(0, (int(scale_in_coarse_values).bit_length() - 1) // 2)
    coarse_c = distribution.c * (1 << fine_bits) ** distribution.power
    coarse = build_table(IntegerDistribution(coarse_c, distribution.power, one_sided=True))
    return CoarseFineSampler(distribution, fine_bits, coarse)


def _leading_zeros(c: Fraction) -> int:
    """The s with 1/2 <= c 2**s < 1, for 0 < c < 1/2."""
    s = c.denominator.bit_length() - c.numerator.bit_length()
    while c.numerator << s >= c.denominator:
        s -= 1
    while c.numerator << (s + 1) < c.denominator:
        s += 1
    return s


def _bernoulli_exp(gamma: Fraction, k: int, word: int, source: RandomSource) -> bool:
    """Whether a Bernoulli(exp(-gamma)) draw succeeds, continued from round k if k > 0."""
    if k == 0:
        # exp(-gamma) is a product of factors exp(-1) and one exp(-remainder), remainder <= 1.
        while gamma > 1:
            if not _bernoulli_exp(Fraction(1), 0, 0, source):
                return False
            gamma -= 1
        k, word = 1, random_integer(source, 64)
    while _is_below(gamma / k, word, source):
        k, word = k + 1, random_integer(source, 64)
    return k % 2 == 1


def _is_below(probability: Fraction, word: int, source: RandomSource) -> bool:
    """Whether a uniform whose first 64 bits are `word` is below a fraction."""
    n_bits = 64
    while True:
        # The uniform is in [word, word + 1) / 2^n_bits; a fraction inside needs more bits.
        limit = probability.numerator << n_bits
        if (word + 1) * probability.denominator <= limit:
            return True
        if word * probability.denominator >= limit:
            return False
        word, n_bits = (word << 64) | random_integer(source, 64), n_bits + 64


@njit(nogil=True, cache=True, inline="always")
def _multiply_words(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """High and low words of the product of two 64-bit words."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    low = a_low * b_low
    middle = a_high * b_low + (low >> half)
    other = a_low * b_high + (middle & mask)
    high = a_high * b_high + (middle >> half) + (other >> half)
    return high, (other << half) | (low & mask)


@njit(nogil=True, cache=True)
def _attempt_all(
    coarse: np.ndarray,
    words: np.ndarray,
    fine_bits: int,
    power: int,
    multiplier: np.uint64,
    shift: np.uint64,
    values: np.ndarray,
    pending: np.ndarray,
) -> tuple[int, int]:
    """Run attempts until `values` is full or the words run out.

    `multiplier` = floor(c 2^(64 + shift)) is in [2^63, 2^64). For an exponent n with gamma = c n <
    1, g = floor(n multiplier / 2^shift) satisfies g <= 2^64 gamma < g + 3: the multiplier falls
    short by less than 1, so n times that over 2^shift by less than 2.

    Returns the number filled, undecided slots included, and the number of undecided attempts, which
    are written to the beginning of `pending`.
    """
    one, largest = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
    fine_mask = (one << np.uint64(fine_bits)) - one
    n_pending = 0
    n_filled = 0
    cursor = 0
    for attempt in range(coarse.size):
        if n_filled == values.size or cursor + MAX_ROUNDS + 2 > words.size:
            break
        sign_and_fine = words[cursor]
        cursor += 1
        h = coarse[attempt]
        fine = (sign_and_fine >> one) & fine_mask
        is_negative = sign_and_fine & one
        k = 0
        word = np.uint64(0)
        is_decided = False
        if h >= 0:
            base = np.uint64(h) << np.uint64(fine_bits)
            if is_negative and base + fine == 0:
                continue  # With both signs zero would be drawn twice as often.
            exponent = fine * (base + base + fine) if power == 2 else fine
            high, low = _multiply_words(exponent, multiplier)
            g = (high << (np.uint64(64) - shift)) | (low >> shift)
            # Both hold only if gamma < 1. Then g, and g plus its error of 3, are 64-bit words.
            if high >> shift == 0 and g <= largest - np.uint64(3):
                k = 1
                while k <= MAX_ROUNDS:
                    word = words[cursor]
                    cursor += 1
                    if word < g // np.uint64(k):
                        k += 1
                        continue
                    # The round fails, unless the word is one of the few between the bounds.
                    is_decided = word > (g + np.uint64(3)) // np.uint64(k)
                    break
                if k > MAX_ROUNDS:
                    word = words[cursor]
                    cursor += 1
        if is_decided:
            if k % 2 == 1:
                magnitude = np.int64(base + fine)
                values[n_filled] = -magnitude if is_negative else magnitude
                n_filled += 1
        else:
            # An undecided attempt keeps its slot: no value's place depends on the bits it needs.
            undecided = pending[n_pending]
            undecided.slot = n_filled
            undecided.attempt = attempt
            undecided.sign_and_fine = sign_and_fine
            undecided.k = k
            undecided.word = word
            n_pending += 1
            n_filled += 1
    return n_filled, n_pending


LARGEST_TABLES = {DISCRETE_GAUSSIAN: 1 << 20, DISCRETE_LAPLACE: 1 << 8}
"""Largest sigma^2 or scale for which all thresholds are tabulated; beyond, rejection is faster."""


def draw_noise(mechanism: str, parameter: Fraction, size: int, source: RandomSource) -> np.ndarray:
    """Draws of a mechanism with sigma^2 or the scale as parameter, shape `(size,)`, int64.

    P(x) is proportional to exp(-x^2 / (2 sigma^2)) of the discrete Gaussian, and to
    exp(-|x| / scale) of the discrete Laplace. Raises TypeError for a parameter that is not an exact
    fraction, ValueError for one that is not positive (a query with a share of zero is not
    measured), OverflowError for a draw beyond 64 bits.

    >>> from spineflow.tasks.noise.distributions import SystemRandom
    >>> draw_noise(DISCRETE_GAUSSIAN, Fraction(10), 3, SystemRandom()).shape
    (3,)
    """
    return _sampler(mechanism, _positive(parameter)).draw(size, source)


@lru_cache(maxsize=256)
def _sampler(mechanism: str, parameter: Fraction) -> InversionTable | CoarseFineSampler:
    if mechanism not in LARGEST_TABLES:
        raise ValueError(f"there is no mechanism {mechanism!r}")
    distribution = distribution_of(Noise(mechanism, parameter))
    if parameter <= LARGEST_TABLES[mechanism]:
        return build_table(distribution)
    is_scale = mechanism == DISCRETE_LAPLACE
    return build_coarse_fine(distribution, parameter**2 if is_scale else parameter)


def _positive(parameter: Fraction) -> Fraction:
    if isinstance(parameter, bool) or not isinstance(parameter, int | Fraction):
        raise TypeError(f"noise needs an exact Fraction, not {type(parameter).__name__}")
    if parameter <= 0:
        raise ValueError("noise must be positive; a query with a share of 0 is not measured")
    return Fraction(parameter)
