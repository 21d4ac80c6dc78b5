"""Siblings' least squares as compiled code takes it: two records of arrays, and dense kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

SMALL = 32
"""Matrices up to this size are inverted by a loop, larger ones in halves."""


class Quadratic(NamedTuple):
    """The objective: half the weighted squared distance of the children's answers to noisy ones.

    answers (c, n) the noisy answers of all queries side by side; labels (n_queries, k) the column
    of `answers` that each cell is counted in; weights (m, n_queries) one row for each profile;
    profile, scale (c,) row of `weights` and factor of each child.

    The matrix of a profile is diagonal[m] I + A' coarse[m] A, where A (r, k) is the 0/1 matrix of
    `coarse_rows` (n_coarse, k), the rows of the queries that no other refines. `diagonal` (m,) is
    the weight of the queries that tell all cells apart, or where there are none a `proximal` term
    (m,) that makes the matrix definite and is no part of the objective.
    """

    answers: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    profile: np.ndarray
    scale: np.ndarray
    diagonal: np.ndarray
    proximal: np.ndarray
    coarse: np.ndarray
    coarse_rows: np.ndarray


class Constraints(NamedTuple):
    """What the children's cells `x` (c, k) have to meet, beside being non-negative.

    sum_i x_i = parent (k,), if has_parent;
    sum over the children of group g, group_of_child (c,), and over the cells of a row r, where
        pin_rows (n_labels, k) tells the rows that hold each cell, = targets[g, r];
    lower <= sum over the cells of a type <= upper, both (c, T), where the cells of type t stand at
        type_starts[t] to type_starts[t + 1];
    x = 0 where not allowed (c, k).
    """

    parent: np.ndarray
    has_parent: bool
    pin_rows: np.ndarray
    group_of_child: np.ndarray
    targets: np.ndarray
    type_starts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    allowed: np.ndarray


TINY = 1e-9
"""Keeps the matrix of the coarse queries definite, relative to the diagonals."""
THIN = 1.5
"""Woodbury's formula pays where there are so many cells for each row of the coarse queries."""
PROXIMAL_WEIGHT = 1e-2
"""Weight of the proximal term, relative to the mean of the diagonal."""


@njit(cache=True, nogil=True)
def _refines(fine: np.ndarray, coarse: np.ndarray, first: int, scratch: np.ndarray) -> bool:
    """Whether cells that share a row of `fine`, from number `first` on, share one of `coarse`."""
    scratch[:] = -1
    for j in range(fine.size):
        row = fine[j] - first
        if scratch[row] < 0:
            scratch[row] = coarse[j]
        elif scratch[row] != coarse[j]:
            return False
    return True


@njit(cache=True, nogil=True)
def factored(
    labels: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(diagonal, proximal, coarse, coarse_rows) of `Quadratic` from its labels and weights."""
    n_queries, k = labels.shape
    n_profiles = weights.shape[0]
    first = np.empty(n_queries, dtype=np.int64)
    size = np.empty(n_queries, dtype=np.int64)
    for q in range(n_queries):
        first[q] = labels[q].min()
        size[q] = labels[q].max() - first[q] + 1
    scratch = np.empty(k, dtype=np.int64)
    order = np.argsort(-size, kind="mergesort")
    home = np.full(n_queries, -1, dtype=np.int64)
    chosen = np.empty(n_queries, dtype=np.int64)
    starts = np.zeros(n_queries + 1, dtype=np.int64)
    n_coarse = 0
    for q in order:
        if size[q] == k:
            continue
        for s in range(n_coarse):
            if _refines(labels[chosen[s]], labels[q], first[chosen[s]], scratch):
                home[q] = s
                break
        if home[q] < 0:
            home[q] = n_coarse
            chosen[n_coarse] = q
            starts[n_coarse + 1] = starts[n_coarse] + size[q]
            n_coarse += 1
    diagonal, proximal = np.zeros(n_profiles), np.zeros(n_profiles)
    coarse_rows = np.empty((n_coarse, k), dtype=np.int64)
    for s in range(n_coarse):
        for j in range(k):
            coarse_rows[s, j] = starts[s] + labels[chosen[s], j] - first[chosen[s]]
    n_rows = starts[n_coarse]
    coarse = np.zeros((n_profiles, n_rows, n_rows))
    for q in range(n_queries):
        if home[q] < 0:
            for m in range(n_profiles):
                diagonal[m] += weights[m, q]
            continue
        start, stop = starts[home[q]], starts[home[q] + 1]
        for j in range(k):
            scratch[coarse_rows[home[q], j] - start] = labels[q, j]
        for a in range(stop - start):
            for d in range(stop - start):
                if scratch[a] == scratch[d]:
                    for m in range(n_profiles):
                        coarse[m, start + a, start + d] += weights[m, q]
    for m in range(n_profiles):
        if diagonal[m] == 0.0:
            trace = 0.0
            for s in range(n_coarse):
                for j in range(k):
                    trace += coarse[m, coarse_rows[s, j], coarse_rows[s, j]]
            proximal[m] = PROXIMAL_WEIGHT * trace / k if trace > 0.0 else PROXIMAL_WEIGHT**2
            diagonal[m] = proximal[m]
    return diagonal, proximal, coarse, coarse_rows


@njit(cache=True, nogil=True, error_model="numpy")
def curvature(quadratic: Quadratic, i: int, j: int) -> float:
    """Entry (j, j) of child i's matrix, its scale included."""
    profile = quadratic.profile[i]
    total = quadratic.diagonal[profile]
    for s in range(quadratic.coarse_rows.shape[0]):
        row = quadratic.coarse_rows[s, j]
        total += quadratic.coarse[profile, row, row]
    return quadratic.scale[i] * total


@njit(cache=True, nogil=True, error_model="numpy")
def slope_of(
    quadratic: Quadratic, i: int, x: np.ndarray, residual: np.ndarray, out: np.ndarray
) -> None:
    """Write minus the gradient of child i's objective at its cells `x` (k,) to `out`.

    `residual` is scratch of the length of the answers.
    """
    labels = quadratic.labels
    n_queries, k = labels.shape
    residual[:] = quadratic.answers[i]
    for j in range(k):
        out[j] = 0.0
        if x[j] != 0.0:
            for q in range(n_queries):
                residual[labels[q, j]] -= x[j]
    for q in range(n_queries):
        weight = quadratic.scale[i] * quadratic.weights[quadratic.profile[i], q]
        if weight != 0.0:
            for j in range(k):
                out[j] += weight * residual[labels[q, j]]


@njit(cache=True, nogil=True)
def squared_distance(quadratic: Quadratic, x: np.ndarray) -> float:
    """The objective at `x` (c, k)."""
    labels = quadratic.labels
    n_queries, k = labels.shape
    first, last = np.empty(n_queries, dtype=np.int64), np.empty(n_queries, dtype=np.int64)
    for q in range(n_queries):
        first[q], last[q] = labels[q].min(), labels[q].max()
    distance = 0.0
    residual = np.empty(quadratic.answers.shape[1])
    for i in range(x.shape[0]):
        residual[:] = -quadratic.answers[i]
        for q in range(n_queries):
            for j in range(k):
                residual[labels[q, j]] += x[i, j]
        for q in range(n_queries):
            weight = 0.5 * quadratic.scale[i] * quadratic.weights[quadratic.profile[i], q]
            for r in range(first[q], last[q] + 1):
                distance += weight * residual[r] * residual[r]
    return distance


@njit(cache=True, nogil=True, error_model="numpy")
def definite_inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a symmetric positive definite matrix, which is overwritten.

    In halves by their Schur complement, so that nearly all work is matrix products.
    """
    n = matrix.shape[0]
    if n <= SMALL:
        for p in range(n):
            pivot = 1.0 / matrix[p, p]
            matrix[p, p] = 1.0
            for j in range(n):
                matrix[p, j] *= pivot
            for i in range(n):
                if i != p:
                    factor = matrix[i, p]
                    matrix[i, p] = 0.0
                    for j in range(n):
                        matrix[i, j] -= factor * matrix[p, j]
        return matrix
    h = n // 2
    first = definite_inverse(matrix[:h, :h].copy())
    beside = matrix[:h, h:].copy()
    reach = np.dot(first, beside)
    second = definite_inverse(matrix[h:, h:] - np.dot(beside.T, reach))
    across = np.dot(reach, second)
    matrix[:h, :h] = first + np.dot(across, reach.T)
    matrix[:h, h:] = -across
    matrix[h:, :h] = -across.T
    matrix[h:, h:] = second
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")
def thin_inverse(diagonal: np.ndarray, coarse: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(C^-1 + A D^-1 A')^-1 (r, r), by which Woodbury's formula inverts D + A' C A.

    diagonal (f,) is D, coarse (r, r) is C, rows (n_coarse, f) the rows of A that hold each cell.
    """
    r = coarse.shape[0]
    matrix = coarse.copy()
    tiny = TINY * max(np.trace(coarse) / r, diagonal.min())
    for a in range(r):
        matrix[a, a] += tiny
    matrix = definite_inverse(matrix)
    for s in range(rows.shape[0]):
        for t in range(rows.shape[0]):
            for j in range(diagonal.size):
                matrix[rows[s, j], rows[t, j]] += 1.0 / diagonal[j]
    return definite_inverse(matrix)


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_of_sum(diagonal: np.ndarray, coarse: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Inverse (f, f) of D + A' C A; see `thin_inverse`, which is taken where it saves work."""
    f, n_coarse = diagonal.size, rows.shape[0]
    is_present = np.zeros(coarse.shape[0] if f > SMALL else 0, dtype=np.bool_)
    if f > SMALL:
        for s in range(n_coarse):
            for a in range(f):
                is_present[rows[s, a]] = True
    present = np.flatnonzero(is_present)
    if f <= SMALL or THIN * present.size > f:
        matrix = np.diag(diagonal)
        for s in range(n_coarse):
            for a in range(f):
                source, line = coarse[rows[s, a]], matrix[a]
                for d in range(f):
                    line[d] += source[rows[s, d]]
        return definite_inverse(matrix)
    number = np.zeros(coarse.shape[0], dtype=np.int64)
    number[present] = np.arange(present.size)
    few = np.empty((n_coarse, f), dtype=np.int64)
    for s in range(n_coarse):
        for a in range(f):
            few[s, a] = number[rows[s, a]]
    inner = thin_inverse(diagonal, coarse[present][:, present].copy(), few)
    matrix = np.zeros((f, f))
    line = np.empty(present.size)
    for a in range(f):
        line[:] = 0.0
        for s in range(n_coarse):
            line -= inner[few[s, a]]
        for s in range(n_coarse):
            for d in range(f):
                matrix[a, d] += line[few[s, d]]
        for d in range(f):
            matrix[a, d] /= diagonal[a] * diagonal[d]
        matrix[a, a] += 1.0 / diagonal[a]
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_of_child(
    quadratic: Quadratic, i: int, cells: np.ndarray, extra: np.ndarray
) -> np.ndarray:
    """Inverse (f, f) of child i's matrix on `cells` (f,), with `extra` (f,) on the diagonal."""
    profile, scale = quadratic.profile[i], quadratic.scale[i]
    diagonal = quadratic.diagonal[profile] + extra / scale
    rows = np.empty((quadratic.coarse_rows.shape[0], cells.size), dtype=np.int64)
    for s in range(rows.shape[0]):
        for a in range(cells.size):
            rows[s, a] = quadratic.coarse_rows[s, cells[a]]
    return inverse_of_sum(diagonal, quadratic.coarse[profile], rows) / scale


@njit(cache=True, nogil=True, error_model="numpy")
def factorised(matrix: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor; all NaN where the matrix is not definite."""
    if not np.isfinite(np.diag(matrix)).all():
        return np.full(matrix.shape, np.nan)
    try:
        factor = np.linalg.cholesky(matrix)
    except Exception:
        factor = np.full(matrix.shape, np.nan)
    return factor


@njit(cache=True, nogil=True, error_model="numpy")
def solve_factorised(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve L L' y = right for a lower triangular L."""
    n = right.size
    y = right.copy()
    for r in range(n):
        y[r] = (y[r] - np.dot(factor[r, :r], y[:r])) / factor[r, r]
    for r in range(n - 1, -1, -1):
        y[r] /= factor[r, r]
        for s in range(r):
            y[s] -= factor[r, s] * y[r]
    return y
