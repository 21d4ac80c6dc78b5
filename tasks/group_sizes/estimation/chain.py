"""Isotonic integers along a chain, and the exact program of chained cumulative group sizes.

`isotonic_integers` minimises sum w_j (x_j - a_j)^2 over non-decreasing integers by pooling adjacent
violators. Pooling is valid for any convex costs when each block keeps a minimiser of its own sum
([ChainConstraints2000]); on integers the smallest minimiser of W (x - S / W)^2 is
ceil(S / W - 1/2), so blocks carry two integers, and the optimum is exact in linear time. Bounds are
met by clipping: the same pooling with every cost made steep beyond them.

`chain_optimum` is Model 3 of [GroupSizes2021]. Its chain visits the regions' tree in post-order,
size by size, and ties a region's cumulative count at one level to that of its last descendant at
the level below, since all groups before either are the same. Tied nodes are one variable: one for
each size and finest region, with the weights of all levels whose regions end there. The rest is a
non-decreasing chain from 0 to the total.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from ..ingest.regions import RegionHierarchy

LARGEST_SUM = 1 << 60
"""Weights times values stay below this, so that sums over blocks fit 64 bits."""


@njit(cache=True, nogil=True)
def _pool(
    value: np.ndarray,
    weight: np.ndarray,
    block_sum: np.ndarray,
    block_weight: np.ndarray,
    block_size: np.ndarray,
    result: np.ndarray,
) -> None:
    """Pool one chain; `value` holds w_j a_j. The block arrays are work space."""
    n_blocks = 0
    for j in range(value.size):
        total, heft, size = value[j], weight[j], np.int64(1)
        smallest = -((heft - 2 * total) // (2 * heft))
        while n_blocks and result[n_blocks - 1] >= smallest:
            n_blocks -= 1
            total += block_sum[n_blocks]
            heft += block_weight[n_blocks]
            size += block_size[n_blocks]
            smallest = -((heft - 2 * total) // (2 * heft))
        block_sum[n_blocks], block_weight[n_blocks] = total, heft
        block_size[n_blocks], result[n_blocks] = size, smallest
        n_blocks += 1
    # Blocks are at most as many as places, so that spreading from the end overwrites none unread.
    end = value.size
    for block in range(n_blocks - 1, -1, -1):
        smallest = result[block]
        for j in range(end - block_size[block], end):
            result[j] = smallest
        end -= block_size[block]


@njit(cache=True, nogil=True)
def _pool_rows(value: np.ndarray, weight: np.ndarray, result: np.ndarray) -> None:
    n = value.shape[1]
    block_sum = np.empty(n, np.int64)
    block_weight = np.empty(n, np.int64)
    block_size = np.empty(n, np.int64)
    for row in range(value.shape[0]):
        _pool(value[row], weight, block_sum, block_weight, block_size, result[row])


def isotonic_integers(
    weighted: np.ndarray, weight: np.ndarray, *, low: int, high: int | np.ndarray
) -> np.ndarray:
    """The closest non-decreasing integers between `low` and `high`, row by row.

    Args:
        weighted: (rows, n) integers w_j a_j.
        weight: (n,) positive integers w_j, the same for all rows.
        low, high: bounds of all rows; `high` may be (rows, 1).

    Minimises sum w_j (x_j - a_j)^2, exactly. Raises OverflowError if sums could leave 64 bits.

    >>> isotonic_integers(np.array([[5, 3, 9]]), np.ones(3, int), low=0, high=8).tolist()
    [[4, 4, 8]]
    """
    if np.abs(weighted / weight).max(initial=0.0) * float(weight.sum()) >= LARGEST_SUM:
        raise OverflowError("the weighted noisy counts of a chain do not fit 64 bits")
    result = np.empty(weighted.shape, dtype=np.int64)
    _pool_rows(
        np.ascontiguousarray(weighted, np.int64), np.ascontiguousarray(weight, np.int64), result
    )
    return np.clip(result, low, high, out=result)


def chain_optimum(
    noisy: Sequence[np.ndarray], hierarchy: RegionHierarchy, total: int, weights: Sequence[int]
) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), that solve the chain exactly.

    Args:
        noisy: for each level, root first, the noisy chained cumulative counts (n, n_sizes).
        total: the public number of groups.
        weights: integer weight of each level's squared distances.

    Counts of coarser regions are sums of the result.
    """
    n_sizes = noisy[0].shape[1]
    weighted = np.zeros((n_sizes, hierarchy.n_leaves), dtype=np.int64)
    weight = np.zeros(hierarchy.n_leaves, dtype=np.int64)
    for level, offsets, level_weight in zip(noisy, hierarchy.leaves, weights, strict=True):
        last = offsets[1:] - 1
        weighted[:, last] += level_weight * level.T
        weight[last] += level_weight
    # The last position holds the total, regardless of its measurement.
    chain = isotonic_integers(
        weighted.reshape(1, -1)[:, :-1], np.tile(weight, n_sizes)[:-1], low=0, high=total
    )
    counts = np.diff(chain[0], prepend=0, append=total)
    return np.ascontiguousarray(counts.reshape(n_sizes, hierarchy.n_leaves).T)
