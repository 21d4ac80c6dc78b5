"""Exact inversion by table: one 16-bit word decides most draws, 64 bits nearly all others.

A uniform U in [0, 1) is read as an infinite string of bits, and X = min {k : U < P(X <= k)} has
the distribution exactly. Bits of U are looked at only as far as they are needed:

1. The first 16 bits place U in one of 65,536 buckets. A bucket that no threshold P(X <= k) cuts
   gives the value at once.
2. Otherwise 48 further bits make a 64-bit word W, U in [W, W + 1) / 2^64. With
   t_k = floor(2^64 P(X <= k)), known with certainty, U is above the threshold if W > t_k and
   below it if W < t_k. A binary search among the thresholds gives the value.
3. Where W equals some t_k (the words 0 and 2^64 - 1, beyond which the tails lie, included), the
   interval of U holds a threshold, and `continue_inversion` draws further bits. The chance is
   about (number of thresholds) / 2^64 per draw.

Nothing is truncated and no float is used, so the output distribution is the target itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
from numba import njit

from .distributions import IntegerDistribution, continue_inversion, threshold_bounds
from .randomness import RandomSource, random_half_words, random_words

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
