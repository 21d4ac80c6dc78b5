"""Large arrays in temporary files that are mapped into memory, small ones in memory.

The system may drop the pages of a mapped array and read them again, so that an input of any size
passes through bounded memory. The files have no name, are readable by nobody else, and go away with
the arrays, however the process ends.

Items cut into runs that are worked on together.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike


def cut_at(sizes: np.ndarray, limit: int) -> list[tuple[int, int]]:
    """Consecutive runs of items whose sizes add to at most `limit`, or of one larger item.

    >>> cut_at(np.array([2, 3, 9, 1]), 5)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    cuts = []
    start = 0
    while start < ends.size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        cuts.append((start, stop))
        start = stop
    return cuts


MOST_BYTES = 1 << 27
"""Bytes of an array that is kept in memory."""

_SAMPLE = 1 << 16
_SORTED_AT_ONCE = 1 << 22
"""Values that are sorted at a time."""


def zeros(n: int, dtype: DTypeLike, folder: Path | None = None) -> np.ndarray:
    """An array (n,) of zeros, mapped from a file in `folder` (the system's own) if it is large."""
    size = n * np.dtype(dtype).itemsize
    if size <= MOST_BYTES:
        return np.zeros(n, dtype=dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size)
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=(n,)))


class GrowingArray:
    """An array to which values are appended; what is more than `MOST_BYTES` goes to a file.

    >>> growing = GrowingArray(np.int8)
    >>> growing.append(np.array([1, 2])), growing.append(np.array([3]))
    (None, None)
    >>> growing.array().tolist()
    [1, 2, 3]
    """

    def __init__(self, dtype: DTypeLike, folder: Path | None = None) -> None:
        self.dtype, self._folder = np.dtype(dtype), folder
        self._chunks: list[np.ndarray] = []
        self._file: BinaryIO | None = None
        self._n_held = self._n_written = 0

    def __len__(self) -> int:
        return self._n_written + self._n_held

    def append(self, values: np.ndarray) -> None:
        """Append values (n,)."""
        self._chunks.append(np.asarray(values, dtype=self.dtype))
        self._n_held += len(values)
        if self._n_held * self.dtype.itemsize > MOST_BYTES:
            self._write()

    def array(self) -> np.ndarray:
        """All values so far, shape (n,)."""
        if self._file is None:
            self._chunks = [np.concatenate([np.empty(0, self.dtype), *self._chunks])]
            return self._chunks[0]
        self._write()
        return np.asarray(np.memmap(self._file, dtype=self.dtype, mode="r", shape=(len(self),)))

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  Mapped later.
        for chunk in self._chunks:
            self._file.write(chunk.data)
        self._file.flush()
        self._n_written, self._n_held, self._chunks = len(self), 0, []


def sorted_with_rows(
    values: np.ndarray, folder: Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) in ascending order, and their rows; equal ones in the order of their rows.

    What is too large for memory is cut at quantiles of a sample into parts of a few million values,
    which are sorted one after the other.
    """
    n = len(values)
    row_type = np.int32 if n < 2**31 else np.int64
    if values.nbytes <= MOST_BYTES:
        order = np.argsort(values, kind="stable")
        return values[order], order.astype(row_type)
    sample = np.sort(values[:: max(1, n // _SAMPLE)])
    cuts = np.unique(sample[:: max(1, len(sample) * _SORTED_AT_ONCE // n)])
    sizes = np.zeros(len(cuts) + 1, dtype=np.int64)
    for start in range(0, n, _SORTED_AT_ONCE):
        part = np.searchsorted(cuts, values[start : start + _SORTED_AT_ONCE], side="right")
        sizes += np.bincount(part, minlength=len(sizes))
    ends = np.cumsum(sizes)
    ascending, rows, free = zeros(n, values.dtype, folder), zeros(n, row_type, folder), ends - sizes
    for start in range(0, n, _SORTED_AT_ONCE):
        own = values[start : start + _SORTED_AT_ONCE]
        part = np.searchsorted(cuts, own, side="right")
        order = np.argsort(part.astype(np.int16), kind="stable")
        first = 0
        for number, size in enumerate(np.bincount(part, minlength=len(sizes)).tolist()):
            chosen, to = order[first : first + size], slice(free[number], free[number] + size)
            ascending[to], rows[to] = own[chosen], start + chosen
            first += size
            free[number] += size
    for start, end in zip(ends - sizes, ends, strict=True):
        order = np.argsort(ascending[start:end], kind="stable")
        ascending[start:end], rows[start:end] = ascending[start:end][order], rows[start:end][order]
    return ascending, rows
