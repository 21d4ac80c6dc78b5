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

    @property
    def family(self) -> np.ndarray:
        """The number of every node's family, (n,)."""
        return np.repeat(np.arange(self.parent.size), np.diff(self.offsets))


def tree_least_squares(levels: Sequence[MeasuredLevel]) -> list[np.ndarray]:
    """Estimates of the nodes of every level, root first, each `(n,)` float64."""
    estimates = [level.values.astype(np.float64) for level in levels]
    variances = [np.full(level.values.size, level.variance) for level in levels]
    sums = []
    for depth in range(len(levels) - 1, 0, -1):
        level, own = levels[depth], levels[depth - 1].variance
        family, n = level.family, level.parent.size
        total = np.bincount(family, estimates[depth], n)
        variance = np.bincount(family, variances[depth], n)
        sums.append((total, variance))
        weight = 1.0 if np.isinf(own) else own / (own + variance)
        estimates[depth - 1][level.parent] += weight * (total - estimates[depth - 1][level.parent])
        variances[depth - 1][level.parent] = weight * variance
    for depth, (total, variance) in enumerate(reversed(sums), start=1):
        level = levels[depth]
        surplus = (estimates[depth - 1][level.parent] - total) / variance
        estimates[depth] += variances[depth] * surplus[level.family]
    return estimates
