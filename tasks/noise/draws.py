"""Mechanisms, random bits, and the right to draw noise.

Every measurement requests noise through `NoiseDraws`. In a private run that is the charge in the
ledger (`tasks.ledger.claims.ChargedNoise`), and it draws the charged noise and nothing else. Runs
that are not private, and studies, draw through `UnchargedNoise`.

*Random sources.* `SystemRandom` is the source of every private run. It keeps no state in the
process: each request goes to the operating system's cryptographic generator (`getrandom` on Linux),
so there is nothing that a fork could duplicate, that two threads could share, or that a memory
image could replay. `SeededRandom` is repeatable and therefore not private; it exists for tests and
for runs that are stamped as not private.

Only modules that draw import the sampler, whose kernels take long to load: most modules about noise
do not draw.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
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
class Noise:
    """A distribution of noise: the mechanism, and its exact sigma^2 or scale."""

    mechanism: str
    parameter: Fraction

    @cached_property
    def variance(self) -> float:
        """Exact variance, as the nearest float."""
        return noise_variance(self.mechanism, self.parameter)


class NoiseDraws(Protocol):
    """Whoever hands out noise for one file of measurements."""

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64; `part` is the level, with query or stage."""
        ...


@dataclass(frozen=True)
class UnchargedNoise:
    """Noise that no ledger knows of, from any source: for studies and runs that are not private."""

    source: RandomSource

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64, for any part."""
        from .sampler import draw_noise

        return draw_noise(noise.mechanism, noise.parameter, size, self.source)


def sum_that_fits(counts: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """counts + noise for counts >= 0; raises OverflowError rather than wrap."""
    total = counts + noise
    if (total < noise).any():
        raise OverflowError("a noisy answer does not fit 64 bits; use a larger share or budget")
    return total
