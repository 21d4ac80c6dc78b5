"""Level by level from the root down, as the TopDown Algorithm does.

The root's counts are the non-negative integers closest to its noisy ones that add to the total.
Then, one level at a time, each region's groups of a size are shared among its children: the
non-negative integers closest to the children's noisy counts that add to the parent's. Each of
these problems is solved exactly (`water_level`), so that nothing is left to round; what a level
knows does not reach the levels above it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..workload.regions import RegionHierarchy
from .water_level import share_out


def topdown_estimate(
    noisy: Sequence[np.ndarray], hierarchy: RegionHierarchy, total: int
) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), from noisy counts of every level."""
    n_sizes = noisy[0].shape[1]
    size = np.arange(n_sizes)[:, None]
    counts = share_out(noisy[0][0], np.array([0, n_sizes]), np.array([total]))
    for depth, level in enumerate(noisy[1:]):
        offsets = hierarchy.children(depth)
        families = np.append((size * len(level) + offsets[:-1]).reshape(-1), n_sizes * len(level))
        favoured = (size % np.diff(offsets)).reshape(-1)
        counts = share_out(level.T.reshape(-1), families, counts, favoured)
    return np.ascontiguousarray(counts.reshape(n_sizes, -1).T)
