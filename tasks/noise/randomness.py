"""Random sources: where the bits of the noise come from.

`SystemRandom` is the source of every private run. It keeps no state in the process: each request
goes to the operating system's cryptographic generator (`getrandom` on Linux), so there is nothing
that a fork could duplicate, that two threads could share, or that a memory image could replay.
`SeededRandom` is repeatable and therefore not private; it exists for tests and for runs that are
stamped as not private.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np


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
