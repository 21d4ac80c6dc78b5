"""Sharing an integer among siblings: the closest non-negative integers with a given sum.

Minimising the sum of (x_i - a_i)^2 over integers x_i >= 0 that add to X takes units at growing
marginal costs. Sibling i's units cost 1 - 2 a_i, 3 - 2 a_i, 5 - 2 a_i, ...: the same odd numbers
2 t - 1 for all siblings, shifted by integers. Hence up to a level t every sibling holds
max(0, a_i + t) units, and the merged list of marginal costs need not be written down: with the a_i
in descending order and prefix sums A_m, the m largest take part while
A_m + m t <= X, up to the breakpoint A_m - m a_{m+1} at which the next one joins.
"""

from __future__ import annotations

import numpy as np
from numba import njit

UNBOUNDED = np.int64(1) << 61
"""Breakpoint after the last sibling: any number of units."""


@njit(cache=True, nogil=True)
def sort_segment(
    noisy: np.ndarray, start: int, stop: int, prefix: np.ndarray, breakpoint_: np.ndarray
) -> None:
    """Prepare the siblings noisy[start:stop] for `unit_level`.

    Writes the prefix sums of their values in descending order, and the breakpoints.
    """
    values = np.sort(noisy[start:stop])
    n = stop - start
    total = np.int64(0)
    for m in range(n):
        value = values[n - 1 - m]
        total += value
        prefix[start + m] = total
        if m + 1 < n:
            breakpoint_[start + m] = total - (m + 1) * values[n - 2 - m]
        else:
            breakpoint_[start + m] = UNBOUNDED


@njit(cache=True, nogil=True)
def unit_level(
    unit: int, start: int, stop: int, prefix: np.ndarray, breakpoint_: np.ndarray
) -> int:
    """The level t of the `unit`-th unit (from 1): its marginal cost is 2 t - 1."""
    low, high = start, stop - 1
    while low < high:
        middle = (low + high) // 2
        if breakpoint_[middle] >= unit:
            high = middle
        else:
            low = middle + 1
    m = low - start + 1
    return -((prefix[low] - unit) // m)


@njit(cache=True, nogil=True)
def fill(
    noisy: np.ndarray, start: int, stop: int, total: int, level: int, first: int, result: np.ndarray
) -> None:
    """Write the siblings' integers, which add to `total`, whose last unit has that level.

    Units that cost the same go to siblings by position, beginning with the `first`-th.
    """
    left = total
    for i in range(start, stop):
        result[i] = max(np.int64(0), noisy[i] + level - 1) if total > 0 else np.int64(0)
        left -= result[i]
    n = stop - start
    for j in range(n):
        if left == 0:
            break
        i = start + (first + j) % n
        if noisy[i] + level >= 1:
            result[i] += 1
            left -= 1


@njit(cache=True, nogil=True)
def _share_out(
    noisy: np.ndarray,
    offsets: np.ndarray,
    totals: np.ndarray,
    first: np.ndarray,
    result: np.ndarray,
) -> None:
    prefix = np.empty_like(noisy)
    breakpoint_ = np.empty_like(noisy)
    for family in range(offsets.size - 1):
        start, stop = offsets[family], offsets[family + 1]
        sort_segment(noisy, start, stop, prefix, breakpoint_)
        level = unit_level(totals[family], start, stop, prefix, breakpoint_)
        fill(noisy, start, stop, totals[family], level, first[family], result)


def share_out(
    noisy: np.ndarray, offsets: np.ndarray, totals: np.ndarray, first: np.ndarray | None = None
) -> np.ndarray:
    """Integers of every family that add to its total and are closest to `noisy`, shape `(n,)`.

    Family f has the siblings offsets[f] up to offsets[f + 1], at least one. Ties go to siblings by
    position from the first[f]-th on, by default from the 0th. n log n.

    >>> share_out(np.array([3, -1, 1]), np.array([0, 3]), np.array([5])).tolist()
    [4, 0, 1]
    """
    result = np.empty(len(noisy), dtype=np.int64)
    if first is None:
        first = np.zeros(len(totals), dtype=np.int64)
    noisy, offsets, totals = (np.ascontiguousarray(a, np.int64) for a in (noisy, offsets, totals))
    _share_out(noisy, offsets, totals, first, result)
    return result
