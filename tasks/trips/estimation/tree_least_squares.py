"""Best linear unbiased estimates on a tree of measured nodes, in two passes.

Every node's count is the sum of its children's, and every measured node has one noisy count, of
variance s_l at level l. Upwards, the estimate from a node's own subtree weighs its own count
against the sum of its children's estimates by the inverse of their variances:

    v_u = 1 / (1 / s_l + 1 / sum v_c),   x_u = v_u (z_u / s_l + sum x_c / sum v_c),

a node whose children were not measured having v = s_l and x = z. Downwards, what the rest of the
tree knows better about a parent is shared among its children in proportion to their variances:

    xhat_c = x_c + (v_c / sum v_c) (xhat_u - sum x_c).

The result is the weighted least-squares solution with additive counts, so it is best linear
unbiased if what was measured did not depend on the noise. Where earlier noisy counts decided it,
it is the same solution on the measured subtree, and a selection bias remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit


@dataclass(frozen=True, eq=False)
class MeasuredLevel:
    """Nodes of one level below some parents of the level above, family by family.

    Family j has the nodes `offsets[j]` to `offsets[j + 1]`, whose parent stands at `parent[j]`
    in the level above; `parent` ascends. `values` (n,) are the noisy counts, all of `variance`;
    a root that is exact has variance 0, one that was not measured infinite variance.
    """

    values: np.ndarray
    variance: float
    parent: np.ndarray
    offsets: np.ndarray


def tree_least_squares(levels: Sequence[MeasuredLevel]) -> list[np.ndarray]:
    """Estimates of the nodes of every level, root first, each `(n,)` float64."""
    estimates = [level.values.astype(np.float64) for level in levels]
    variances = [np.full(level.values.size, level.variance) for level in levels]
    sums, sum_variances = [], []
    for above in range(len(levels) - 2, -1, -1):
        below = levels[above + 1]
        total, variance = _family_sums(below.offsets, estimates[above + 1], variances[above + 1])
        sums.append(total)
        sum_variances.append(variance)
        _combine(below.parent, total, variance, estimates[above], variances[above])
    for above, (total, variance) in enumerate(
        zip(reversed(sums), reversed(sum_variances), strict=True)
    ):
        below = levels[above + 1]
        surplus = (estimates[above][below.parent] - total) / variance
        _share_out(below.offsets, surplus, estimates[above + 1], variances[above + 1])
    return estimates


@njit(nogil=True, cache=True)
def _family_sums(
    offsets: np.ndarray, estimates: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    n = offsets.size - 1
    totals, sums = np.zeros(n), np.zeros(n)
    for j in range(n):
        for i in range(offsets[j], offsets[j + 1]):
            totals[j] += estimates[i]
            sums[j] += variances[i]
    return totals, sums


@njit(nogil=True, cache=True)
def _combine(
    parent: np.ndarray,
    totals: np.ndarray,
    total_variances: np.ndarray,
    estimates: np.ndarray,
    variances: np.ndarray,
) -> None:
    for j in range(parent.size):
        u = parent[j]
        if variances[u] == 0:
            continue
        if np.isinf(variances[u]):
            weight = 1.0
        else:
            weight = variances[u] / (variances[u] + total_variances[j])
        estimates[u] += weight * (totals[j] - estimates[u])
        variances[u] = weight * total_variances[j]


@njit(nogil=True, cache=True)
def _share_out(
    offsets: np.ndarray, surplus: np.ndarray, estimates: np.ndarray, variances: np.ndarray
) -> None:
    for j in range(offsets.size - 1):
        for i in range(offsets[j], offsets[j + 1]):
            estimates[i] += variances[i] * surplus[j]
