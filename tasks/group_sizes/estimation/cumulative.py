"""The approximate cumulative program: each region's counts made monotone, then the hierarchy's.

Algorithm 2 of [GroupSizes2021]. A region's noisy cumulative counts are replaced by the closest
non-decreasing integers between 0 and the total, which removes most of the noise where few groups
are; their differences are group sizes, from which the exact hierarchical program finds consistent
ones. The paper rounds a real isotonic regression; here the integers are optimal for each region.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from spineflow.tasks.group_sizes.estimation.chain import isotonic_integers
from spineflow.tasks.group_sizes.estimation.marginal_costs import hierarchical_optimum
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy


def monotone_sizes(noisy: np.ndarray, total: int, *, is_root: bool) -> np.ndarray:
    """Group sizes (n, n_sizes) >= 0 whose cumulative counts are closest to noisy ones (n, n_sizes).

    The root's last cumulative count is the total; other regions' stay below it.

    >>> monotone_sizes(np.array([[2, 1, 9]]), 7, is_root=True).tolist()
    [[1, 0, 6]]
    """
    ones = np.ones(noisy.shape[1], dtype=np.int64)
    if is_root:
        noisy = noisy.copy()
        noisy[:, -1] = total
    monotone = isotonic_integers(noisy, ones, low=0, high=total)
    if is_root:
        monotone[:, -1] = total
    return np.diff(monotone, axis=1, prepend=0)


def cumulative_estimate(
    noisy: Sequence[np.ndarray], hierarchy: RegionHierarchy, total: int, weights: Sequence[int]
) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), from noisy cumulative counts.

    Arguments as for `hierarchical_optimum`, which is the second step.
    """
    sizes = [monotone_sizes(level, total, is_root=depth == 0) for depth, level in enumerate(noisy)]
    return hierarchical_optimum(sizes, hierarchy, total, weights)
