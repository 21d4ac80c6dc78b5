"""Draws that 64 bits leave undecided, forced by sources that follow a script."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.noise import sampler as kernels
from spineflow.tasks.noise.distributions import IntegerDistribution, threshold_bounds
from spineflow.tasks.noise.sampler import LAST_WORD, CoarseFineSampler, PendingAttempt, build_table

GAUSSIAN = IntegerDistribution(Fraction(1, 20), 2)
LAPLACE = IntegerDistribution(Fraction(2, 7), 1)


class ScriptedSource:
    """Hands out the bytes it was given; fails if they run out or are left over."""

    def __init__(self, *pieces: bytes) -> None:
        self.rest = b"".join(pieces)

    def read(self, n_bytes: int) -> bytes:
        assert len(self.rest) >= n_bytes
        piece, self.rest = self.rest[:n_bytes], self.rest[n_bytes:]
        return piece


def uniform(*words: int) -> ScriptedSource:
    """The source of one draw whose uniform begins with these 64-bit words."""
    first, *further = words
    half_word = (first >> 48).to_bytes(2, "little")
    rest = ((first & ((1 << 48) - 1)) << 16).to_bytes(8, "little")
    return ScriptedSource(half_word, rest, *(word.to_bytes(8, "big") for word in further))


def digits(distribution: IntegerDistribution, n_words: int) -> tuple[int, list[list[int]]]:
    """First value, and the first 64-bit words of every threshold."""
    guard = 64
    first, low, high = threshold_bounds(distribution, 64 * n_words + guard)
    words = []
    for lower, upper in zip(low, high, strict=True):
        if lower >> guard != upper >> guard:
            words.append([])
            continue
        value = lower >> guard
        words.append([(value >> 64 * (n_words - 1 - i)) & LAST_WORD for i in range(n_words)])
    return first, words


@pytest.mark.parametrize("distribution", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_a_tie_is_decided_by_the_next_word_on_either_side(distribution):
    table = build_table(distribution)
    first, words = digits(distribution, 3)
    for value in range(-20, 20):
        one, two, three = words[value - first]
        assert table.draw(1, uniform(one, two - 1)) == [value]
        assert table.draw(1, uniform(one, two + 1)) == [value + 1]
        assert table.draw(1, uniform(one, two, three - 1)) == [value]
        assert table.draw(1, uniform(one, two, three + 1)) == [value + 1]


@pytest.mark.parametrize("distribution", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_tails_go_on_beyond_the_table(distribution):
    table = build_table(distribution)
    first, words = digits(distribution, 3)
    last = table.first_value + table.thresholds.size - 1
    for value in range(last + 1, last + 6):
        below = words[value - 1 - first]
        assert table.draw(1, uniform(below[0], below[1], below[2] + 1)) == [value]
        mirrored = [LAST_WORD - word for word in below]
        assert table.draw(1, uniform(mirrored[0], mirrored[1], mirrored[2] - 1)) == [-value]
    very_far = table.draw(1, uniform(LAST_WORD, LAST_WORD, LAST_WORD, 0))[0]
    far = table.draw(1, uniform(LAST_WORD, LAST_WORD, 0))[0]
    assert very_far > far > last


def test_a_tie_leaves_the_other_draws_of_its_block_alone():
    table = build_table(GAUSSIAN)
    first, words = digits(GAUSSIAN, 2)
    one, two = words[3 - first]
    low_48 = (one & ((1 << 48) - 1)) << 16
    certain = int(np.flatnonzero(table.value_of_bucket == -1)[0])
    source = ScriptedSource(
        *(word.to_bytes(2, "little") for word in (certain, one >> 48, certain)),
        low_48.to_bytes(8, "little"),
        (two + 5).to_bytes(8, "big"),
    )
    assert table.draw(3, source).tolist() == [-1, 4, -1]
    assert not source.rest


def coarse_fine() -> CoarseFineSampler:
    distribution = IntegerDistribution(Fraction(1, 5000), 2)
    coarse = IntegerDistribution(64 * distribution.c, 2, one_sided=True)
    return CoarseFineSampler(distribution, 3, build_table(coarse))


def attempt(coarse: int, words: list[int]) -> tuple[int, list[PendingAttempt], int]:
    """One attempt of the kernel: number filled, undecided attempts, value."""
    sampler = coarse_fine()
    shift = kernels._leading_zeros(sampler.distribution.c)
    multiplier = (1 << (64 + shift)) // 5000
    values = np.zeros(1, dtype=np.int64)
    padded = np.array(words + [LAST_WORD] * 40, dtype=np.uint64)
    pending = np.empty(1, dtype=kernels.PENDING)
    n_filled, n_pending = kernels._attempt_all(
        np.array([coarse]), padded, 3, 2, np.uint64(multiplier), np.uint64(shift), values, pending
    )
    undecided = [PendingAttempt(*row) for row in pending[:n_pending].tolist()]
    return n_filled, undecided, int(values[0])


SIGN_AND_FINE = 0b1011
GAMMA = Fraction(5 * (2 * 8 * 7 + 5), 5000)
"""For coarse value 7 and fine value 5, negative: the magnitude is 61."""


def test_the_kernel_decides_where_its_bounds_do():
    g = int(GAMMA * 2**64)
    assert attempt(7, [SIGN_AND_FINE, g + 10]) == (1, [], -61)
    assert attempt(7, [SIGN_AND_FINE, g - 10, LAST_WORD])[0] == 0
    assert attempt(7, [SIGN_AND_FINE, 0, g // 2 - 10, LAST_WORD]) == (1, [], -61)
    assert attempt(7, [SIGN_AND_FINE - 1, LAST_WORD])[2] == 61
    assert attempt(0, [0b0001, LAST_WORD])[0] == 0
    assert attempt(0, [0b0000, LAST_WORD]) == (1, [], 0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_kernel_leaves_a_tie_to_exact_fractions(k):
    sampler = coarse_fine()
    word = int(GAMMA / k * 2**64)
    n_filled, pending, _ = attempt(7, [SIGN_AND_FINE, *[0] * (k - 1), word])
    assert n_filled == 1
    assert pending == [PendingAttempt(0, 0, SIGN_AND_FINE, k, word)]

    second = int(GAMMA / k * 2**128) - (word << 64)
    above = ScriptedSource((second + 1).to_bytes(8, "big"))
    below = ScriptedSource((second - 1).to_bytes(8, "big"), LAST_WORD.to_bytes(8, "big"))
    expected = [-61, None] if k % 2 == 1 else [None, -61]
    found = [sampler._finish(7, SIGN_AND_FINE, k, word, source) for source in (above, below)]
    assert found == expected
    assert not above.rest + below.rest


def test_attempts_that_the_kernel_cannot_hold_are_left_to_python():
    assert attempt(-1, [SIGN_AND_FINE])[1] == [PendingAttempt(0, 0, SIGN_AND_FINE, 0, 0)]
    assert attempt(2000, [SIGN_AND_FINE])[1] == [PendingAttempt(0, 0, SIGN_AND_FINE, 0, 0)]
    rounds = kernels.MAX_ROUNDS
    assert attempt(7, [SIGN_AND_FINE, *[0] * rounds, 9])[1] == [
        PendingAttempt(0, 0, SIGN_AND_FINE, rounds + 1, 9)
    ]


def test_gamma_above_one_is_a_product_of_draws():
    sampler = coarse_fine()
    kept = LAST_WORD.to_bytes(8, "big")
    failed = (0).to_bytes(8, "big") + kept
    gamma_above_two = 1000, SIGN_AND_FINE
    n_ones = int(Fraction(5 * (16 * 1000 + 5), 5000))
    passes = ScriptedSource(*[kept_first_round()] * n_ones, kept)
    assert sampler._finish(*gamma_above_two, 0, 0, passes) == -8005
    assert sampler._finish(*gamma_above_two, 0, 0, ScriptedSource(failed)) is None


def kept_first_round() -> bytes:
    """Words with which Bernoulli(exp(-1)) succeeds: below 1, below 1/2, not below 1/3."""
    return b"".join(word.to_bytes(8, "big") for word in (0, 0, LAST_WORD))
