"""Covariances of areas off the spine up one step of it, compiled; `intervals.areas` has the terms.

Shapes: w pairs of a whole and an area that it meets, S components, z answers of an area, n core
cells. For a group of geounits with the m possible core cells `cells` (m,), covariances are (p,
every component, m, m), and `components` (S,) are the numbers of the requested ones.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def add(into: np.ndarray, place: np.ndarray, matrices: np.ndarray) -> None:
    """Add matrices (p, S, z, z) to the rows `place` (p,)."""
    for i in range(place.size):
        for s in range(matrices.shape[1]):
            for a in range(matrices.shape[2]):
                for b in range(matrices.shape[3]):
                    into[place[i], s, a, b] += matrices[i, s, a, b]


@njit(cache=True, nogil=True)
def add_parts(
    regression: np.ndarray,
    place: np.ndarray,
    cells: np.ndarray,
    components: np.ndarray,
    covariance: np.ndarray,
    cross: np.ndarray,
    own: np.ndarray,
) -> None:
    """Add R_c V_c and R_c V_c R_c' to the rows `place` (p,) of `cross` (w, S, z, n) and `own`.

    regression : (p, S or 1, z, n) R_c. covariance : (p, every component, m, m) V_c, or D_c, on the
    core cells `cells` (m,), which is all that is not zero.
    """
    n_answers, m = regression.shape[2], cells.size
    r, product = np.empty((n_answers, m)), np.empty(m)
    for i in range(place.size):
        for s in range(components.size):
            v = covariance[i, components[s]]
            if not v.any():
                continue
            own_s, cross_s = own[place[i], s], cross[place[i], s]
            _take(regression[i, min(s, regression.shape[1] - 1)], cells, r)
            for a in range(n_answers):
                if not r[a].any():
                    continue
                _multiply(r[a], v, product)
                for k in range(m):
                    cross_s[a, cells[k]] += product[k]
                for b in range(n_answers):
                    own_s[a, b] += _inner(product, r[b])


@njit(cache=True, nogil=True)
def add_regression(
    chosen: np.ndarray,
    cells: np.ndarray,
    components: np.ndarray,
    cross: np.ndarray,
    along: np.ndarray,
    regression: np.ndarray,
) -> None:
    """Add the sum of R_c V_c, times K, to the rows `chosen` (u,) of `regression` (w, S, z, n).

    cross : (w, S, z, n) the sum. along : (u, every component, m, m) K on the core cells `cells`.
    """
    n_answers, m = cross.shape[2], cells.size
    seen, product = np.empty((n_answers, m)), np.empty(m)
    for i in range(chosen.size):
        for s in range(components.size):
            into = regression[chosen[i], s]
            _take(cross[chosen[i], s], cells, seen)
            for a in range(n_answers):
                if seen[a].any():
                    _multiply(seen[a], along[i, components[s]], product)
                    for k in range(m):
                        into[a, cells[k]] += product[k]


@njit(cache=True, nogil=True)
def add_change(
    chosen: np.ndarray,
    cells: np.ndarray,
    components: np.ndarray,
    regression: np.ndarray,
    cross: np.ndarray,
    total: np.ndarray,
    own: np.ndarray,
) -> None:
    """Add R_u S R_u' - C R_u' - R_u C', C the sum of R_c V_c, to the rows `chosen` (u,) of `own`
    (w, S, z, z): together with the sum of R_c V_c R_c' this is the sum of (R_c - R_u) V_c (R_c -
    R_u)'.

    regression, cross : (w, S, z, n) R_u and C. total : (u, every component, m, m) S on the core
    cells `cells` (m,).
    """
    n_answers, m = cross.shape[2], cells.size
    r, seen, product = np.empty((n_answers, m)), np.empty((n_answers, m)), np.empty(m)
    for i in range(chosen.size):
        for s in range(components.size):
            own_s = own[chosen[i], s]
            _take(regression[chosen[i], s], cells, r)
            _take(cross[chosen[i], s], cells, seen)
            for a in range(n_answers):
                if not (r[a].any() or seen[a].any()):
                    continue
                _multiply(r[a], total[i, components[s]], product)
                for b in range(n_answers):
                    own_s[a, b] += _inner(product, r[b]) - _inner(seen[a], r[b])
                    own_s[a, b] -= _inner(r[a], seen[b])


@njit(cache=True, nogil=True)
def _take(rows: np.ndarray, cells: np.ndarray, into: np.ndarray) -> None:
    """The columns `cells` (m,) of rows (z, n), into (z, m)."""
    for a in range(rows.shape[0]):
        for k in range(cells.size):
            into[a, k] = rows[a, cells[k]]


@njit(cache=True, nogil=True)
def _multiply(row: np.ndarray, matrix: np.ndarray, into: np.ndarray) -> None:
    """A row (m,) times a matrix (m, m)."""
    into[:] = 0.0
    for j in range(row.size):
        if row[j]:
            for k in range(row.size):
                into[k] += row[j] * matrix[j, k]


@njit(cache=True, nogil=True)
def _inner(one: np.ndarray, other: np.ndarray) -> float:
    """The inner product of rows (m,)."""
    total = 0.0
    for k in range(one.size):
        total += one[k] * other[k]
    return total
