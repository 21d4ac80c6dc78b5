"""What a spine buys before any budget is spent: exact variances of estimated entity totals.

Each geounit u has one noisy answer to its total, with precision (inverse variance) lambda[u], 0
where nothing is measured. The weighted-least-squares estimate of the block totals has the
information matrix A' diag(lambda) A, with A the geounit by block incidence. For the subtree of u,

    M[u] = blockdiag(M[children]) + lambda[u] 1 1',

so with s = 1' M^-1 1, p = a' M^-1 1 and q = a' M^-1 a (variance of the subtree's total, covariance
of the entity's part with it, variance of the entity's part), S, P, Q their sums over the children
and f = lambda / (1 + lambda S), the Sherman-Morrison formula gives

    s = S / (1 + lambda S),    p = P / (1 + lambda S),    q = Q - f P^2.

One pass computes s for all geounits, a second p and q for the pairs of a geounit and an entity
that touch; the root's q is the variance. A subtree with an unmeasured block and no measurement
above it has s = infinity; there the entity's part is kept as a multiple of the subtree's total
plus an independent rest, which is exact and covers the chains that a bypass leaves behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numba
import numpy as np

from .categories import Category
from .levels import Spine, child_offsets


def measurement_precision(
    spine: Spine,
    *,
    is_pure: bool,
    privacy_loss: float = 1.0,
    total_shares: Mapping[str, float] | None = None,
) -> tuple[np.ndarray, ...]:
    """Precision of each geounit's noisy total, one array per geolevel, root first.

    zCDP: 1 / sigma^2 = rho * share(g) * total share(l). Pure DP: the Laplace scale is
    b = 2 / (epsilon * share(g) * total share(l)), the precision 1 / (2 b^2).

    Args:
        privacy_loss: rho, or epsilon if `is_pure`.
        total_shares: share of a geolevel's budget that measures the total, 1 where a geolevel is
            absent; see `total_share`.
    """
    total_shares = total_shares or {}
    precision = []
    for level in spine.geolevels:
        loss = privacy_loss * total_shares.get(level.name, 1.0) * level.shares()
        precision.append(loss**2 / 8 if is_pure else loss)
    return tuple(precision)


def total_share(
    query_shares: Sequence[float], n_answers: Sequence[float], *, is_pure: bool
) -> float:
    """Share of a geolevel's budget that one query of the total would need to tell it as well as
    all queries of the geolevel do.

    A query with m answers measures the total by their sum, of variance m sigma^2, so precisions
    share / m add up (share^2 / m under pure DP). That is exact where all queries are marginals,
    whose Gram matrices have the vector of ones as a common eigenvector; a coarsening into groups
    of unequal size gives slightly more.

    Example: half of the budget on the total and half on a marginal of two answers is, under zCDP,
    as good as three quarters on the total.
    """
    shares, answers = np.asarray(query_shares, dtype=float), np.asarray(n_answers, dtype=float)
    if is_pure:
        return float(np.sqrt((shares**2 / answers).sum()))
    return float((shares / answers).sum())


def entity_variances(
    spine: Spine, category: Category, precision: tuple[np.ndarray, ...]
) -> np.ndarray:
    """(n_entities,) float64 variance of the estimated total of every entity of a category.

    Infinite where the measurements do not determine the total; 0 for an entity without blocks.

    Args:
        precision: one array per geolevel, root first; see `measurement_precision`.

    Example: one parent with two children, all measured with variance 1: the total of one child
    has variance 2/3, the parent's total too.
    """
    variance = _leaf_variances(precision[-1])
    is_free = np.isinf(variance)
    entries = _Entries(
        np.arange(spine.n_blocks + 1, dtype=np.int64),
        category.entity[spine.block_row].astype(np.int32),
        np.where(is_free, 1.0, variance),
        np.where(is_free, 0.0, variance),
        variance,
    )
    pairs = zip(spine.geolevels[-2::-1], spine.geolevels[:0:-1], precision[-2::-1], strict=True)
    for above, below, level_precision in pairs:
        offsets = child_offsets(below.parent, len(above))
        entries = _fold(offsets, entries, level_precision, len(category))
    total = np.zeros(len(category))
    q = entries.q
    if np.isinf(entries.variance[0]):
        q = np.where(entries.p == 0, q, np.inf)
    total[entries.entity] = q
    return total


def _leaf_variances(precision: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return 1.0 / precision


class _Entries(NamedTuple):
    """Pairs of a geounit and an entity that touch, and the geounits' variances, of one geolevel.

    offsets (n + 1,) of each geounit's entries. entity, p, q : of every entry; where the geounit's
    variance is finite, p and q are as in the module's docstring, and otherwise p is the multiple of
    the geounit's total and q the variance of the rest. variance (n,).
    """

    offsets: np.ndarray
    entity: np.ndarray
    p: np.ndarray
    q: np.ndarray
    variance: np.ndarray


@numba.njit(cache=True, nogil=True)
def _fold(
    offsets: np.ndarray, children: _Entries, precision: np.ndarray, n_entities: int
) -> _Entries:
    """Entries one geolevel up; children stand at `offsets` (n_parents + 1,).

    A parent's entries are met twice: summed over its children, and then with its own measurement.
    """
    entry_offsets, entity, p, q, variance = children
    n_parents = len(offsets) - 1
    n_entries = len(entity)
    slot = np.full(n_entities, -1, dtype=np.int64)
    out_offsets = np.zeros(n_parents + 1, dtype=np.int64)
    out_entity = np.empty(n_entries, dtype=np.int32)
    out_p = np.empty(n_entries)
    out_q = np.empty(n_entries)
    out_variance = np.empty(n_parents)
    multiple = np.empty(n_entries)
    n_free_touched = np.empty(n_entries, dtype=np.int64)
    end = 0
    for parent in range(n_parents):
        start = end
        finite_sum = 0.0
        n_free = 0
        for child in range(offsets[parent], offsets[parent + 1]):
            is_free = np.isinf(variance[child])
            if is_free:
                n_free += 1
            else:
                finite_sum += variance[child]
            for entry in range(entry_offsets[child], entry_offsets[child + 1]):
                k = entity[entry]
                if slot[k] < start:
                    slot[k] = end
                    out_entity[end] = k
                    out_p[end] = 0.0
                    out_q[end] = 0.0
                    multiple[end] = 0.0
                    n_free_touched[end] = 0
                    end += 1
                position = slot[k]
                out_q[position] += q[entry]
                if not is_free:
                    out_p[position] += p[entry]
                elif p[entry] != 0.0:
                    if n_free_touched[position] > 0 and multiple[position] != p[entry]:
                        out_q[position] = np.inf
                    multiple[position] = p[entry]
                    n_free_touched[position] += 1
        own = precision[parent]
        if n_free == 0:
            shrink = 1.0 / (1.0 + own * finite_sum)
            for position in range(start, end):
                out_q[position] -= own * shrink * out_p[position] ** 2
                out_p[position] *= shrink
            out_variance[parent] = finite_sum * shrink
        else:
            out_variance[parent] = 1.0 / own if own > 0.0 else np.inf
            for position in range(start, end):
                alpha = multiple[position]
                if 0 < n_free_touched[position] < n_free:
                    out_q[position] = np.inf
                out_q[position] += alpha**2 * finite_sum - 2.0 * alpha * out_p[position]
                out_p[position] = alpha
                if own > 0.0:
                    out_p[position] = alpha / own
                    out_q[position] += alpha**2 / own
        out_offsets[parent + 1] = end
    return _Entries(
        out_offsets, out_entity[:end].copy(), out_p[:end].copy(), out_q[:end].copy(), out_variance
    )
