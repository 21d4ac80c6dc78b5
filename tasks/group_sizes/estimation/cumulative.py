"""The approximate cumulative program: each region's counts made monotone, then the hierarchy's.

Algorithm 2 of [GroupSizes2021]. A region's noisy cumulative counts are replaced by the closest
non-decreasing integers between 0 and the total, which removes most of the noise where few groups
are; their differences are group sizes, from which the exact hierarchical program finds consistent
ones. The paper rounds a real isotonic regression; here the integers are optimal for each region.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..workload.regions import RegionHierarchy
from .chain import isotonic_integers
from .rows import Rows, exact_hierarchical


def monotone_sizes(noisy: np.ndarray, total: int | np.ndarray, *, is_exact: bool) -> np.ndarray:
    """Group sizes (n, n_sizes) >= 0 whose cumulative counts are closest to noisy ones (n, n_sizes).

    Cumulative counts stay at or below `total`, one for all regions or (n,); if it is exact, the
    last one equals it.

    >>> monotone_sizes(np.array([[2, 1, 9]]), 7, is_exact=True).tolist()
    [[1, 0, 6]]
    """
    high = np.broadcast_to(np.asarray(total, dtype=np.int64).reshape(-1, 1), (len(noisy), 1))
    ones = np.ones(noisy.shape[1], dtype=np.int64)
    if is_exact:
        noisy = noisy.copy()
        noisy[:, -1:] = high
    monotone = isotonic_integers(noisy, ones, low=0, high=high)
    if is_exact:
        monotone[:, -1:] = high
    return np.diff(monotone, axis=1, prepend=0)


def cumulative_estimate(
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    rows: Rows | None = None,
) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), from noisy cumulative counts.

    Arguments as for `exact_hierarchical`, which is the second step. A level of weight 0 was not
    measured.
    """
    rows = rows or Rows(0, np.array([total]))
    sizes = [
        monotone_sizes(level, bound, is_exact=depth <= rows.depth) if weight else level
        for depth, (level, bound, weight) in enumerate(
            zip(noisy, rows.bounds(hierarchy), weights, strict=True)
        )
    ]
    return exact_hierarchical(sizes, hierarchy, total, weights, rows)
