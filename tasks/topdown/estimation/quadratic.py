"""Siblings' least squares in the form for compiled code: records of arrays, and dense kernels.

Kernels of this folder write loops where NumPy has an expression of elements or an assignment of
slices: numba compiles each such expression as a separate function, again in every kernel that calls
it, and the kernels already take a minute to compile. Copies, sorting and medians are NumPy's.

**Weights by inverse covariances.** A covariance that `query_algebra` describes has an inverse of
the same form. Take one free attribute, whose levels the cells are numbered by, and call the
combinations of all others classes: for the redistricting product the races, and the combinations of
type, voting age and Hispanic origin. Two cells of classes u and v are then coupled by one matrix on
the classes if they are of the same level, plus another whatever their levels:

    (x - m)' P (x - m) = sum over levels of y_l' W y_l  +  s' G s,    y = x - m,    s = sum of y_l.

Without its zero cells this is a matrix of small blocks, one for each level, and a term of the rank
of the classes. G need not be definite; the sum is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .problem import is_refined

BLOCK_ENTRIES = 5 * 10**7
"""Most entries of the children's blocks (0.4 GB); with more, only the diagonal is used."""

MANY, MANY_UNTOLD = 2500, 300
"""Cells above which a pass is wide: in any case, and where no query distinguishes all of them."""


def is_wide(cells: int, n_rows: int) -> bool:
    """Whether a pass has too many cells for matrices of cells by cells, or so many that these would
    be singular, as its queries have at most `n_rows` rows.

    >>> is_wide(2016, n_rows=2016), is_wide(2016, n_rows=252)
    (False, True)
    """
    return cells > MANY or (cells > MANY_UNTOLD and n_rows < cells)


SMALL = 32
"""Matrices up to this size are inverted by a loop, larger ones in halves."""


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
def factorise(matrix: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor; all NaN where the matrix is not definite."""
    is_finite = True
    for r in range(matrix.shape[0]):
        is_finite &= np.isfinite(matrix[r, r])
    if is_finite:
        try:
            return np.linalg.cholesky(matrix)
        except Exception:
            is_finite = False
    return np.full(matrix.shape, np.nan)


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


class InverseCovariance(NamedTuple):
    """The children's matrices and the targets of their cells (c, k).

    within, across (c, U, U): W and G of every child, on the U classes.
    class_of_cell, level_of_cell (k,): numbers of both.
    centre (c, k): the estimates m. pull (c, k): minus the gradient at the centre, which cells
        outside the support leave there. rest (c,): the objective at the centre.

    All of it is empty where a problem weighs queries instead.
    """

    within: np.ndarray
    across: np.ndarray
    class_of_cell: np.ndarray
    level_of_cell: np.ndarray
    centre: np.ndarray
    pull: np.ndarray
    rest: np.ndarray

    @classmethod
    def none(cls) -> InverseCovariance:
        """Empty matrices, for a problem that weighs queries."""
        square, number = np.zeros((0, 0, 0)), np.zeros(0, dtype=np.int64)
        return cls(square, square, number, number, np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))

    def matrix(self, i: int) -> np.ndarray:
        """(k, k) child i's matrix."""
        u, level = self.class_of_cell, self.level_of_cell
        is_same = level[:, None] == level[None, :]
        return self.across[i][np.ix_(u, u)] + is_same * self.within[i][np.ix_(u, u)]

    def scales(self) -> np.ndarray:
        """(c,) mean precision of each child's cells, relative to the largest."""
        diagonal = np.diagonal(self.within + self.across, axis1=1, axis2=2)
        means = diagonal[:, self.class_of_cell].mean(axis=1)
        return means / means.max()


@njit(cache=True, nogil=True, error_model="numpy")
def cells_by_level(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(order, starts): positions sorted by level, stably, and where each level's begin."""
    order = np.argsort(levels, kind="mergesort")
    n_levels = levels[order[-1]] + 1 if levels.size else 0
    return order, np.searchsorted(levels[order], np.arange(n_levels + 1))


@njit(cache=True, nogil=True, error_model="numpy")
def add_product(covariance: InverseCovariance, i: int, y: np.ndarray, out: np.ndarray) -> None:
    """Add child i's matrix times `y` (k,) to `out`."""
    classes, levels = covariance.class_of_cell, covariance.level_of_cell
    n = covariance.within.shape[1]
    sums = np.zeros(n)
    by_level = np.zeros((levels.max() + 1, n))
    for j in range(y.size):
        if y[j] != 0.0:
            sums[classes[j]] += y[j]
            by_level[levels[j], classes[j]] += y[j]
    moved = np.dot(covariance.across[i], sums)
    products = np.dot(by_level, covariance.within[i])
    for j in range(y.size):
        out[j] = out[j] + moved[classes[j]] + products[levels[j], classes[j]]


@njit(cache=True, nogil=True, error_model="numpy")
def _product(covariance: InverseCovariance, i: int, y: np.ndarray) -> np.ndarray:
    """Child i's matrix times `y` (k,)."""
    out = np.zeros(y.size)
    add_product(covariance, i, y, out)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def covariance_distance(covariance: InverseCovariance, x: np.ndarray) -> float:
    """The objective at `x` (c, k)."""
    total = 0.0
    for i in range(x.shape[0]):
        y = x[i] - covariance.centre[i]
        product = _product(covariance, i, y)
        total += 0.5 * np.dot(y, product) - np.dot(covariance.pull[i], y) + covariance.rest[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def blocks_inverse(
    covariance: InverseCovariance, i: int, cells: np.ndarray, extra: np.ndarray
) -> np.ndarray:
    """Inverse (f, f) of child i's matrix on `cells` (f,), with `extra` (f,) on the diagonal.

    With B the blocks of the levels and A the 0/1 matrix of the classes, Woodbury's formula in the
    form that a G without an inverse allows:
    B^-1 - B^-1 A' (I + G A B^-1 A')^-1 G A B^-1.
    """
    within, across = covariance.within[i], covariance.across[i]
    classes, levels = covariance.class_of_cell[cells], covariance.level_of_cell[cells]
    f, n = classes.size, within.shape[0]
    order, starts = cells_by_level(levels)
    inverse, reach = np.zeros((f, f)), np.zeros((f, n))
    for level in range(starts.size - 1):
        first, size = starts[level], starts[level + 1] - starts[level]
        if size == 0:
            continue
        same = order[first : first + size]
        block = within[classes[same]][:, classes[same]] + np.diag(extra[same])
        block = definite_inverse(block)
        for a in range(size):
            here = same[a]
            for b in range(size):
                there = same[b]
                inverse[here, there] = block[a, b]
                reach[here, classes[there]] += block[a, b]
    compliance = np.zeros((n, n))
    for a in range(f):
        for u in range(n):
            compliance[classes[a], u] += reach[a, u]
    solved = np.linalg.solve(np.dot(across, compliance) + np.eye(n), across)
    return inverse - np.dot(np.dot(reach, 0.5 * (solved + solved.T)), reach.T)


class Quadratic(NamedTuple):
    """The objective: half the weighted squared distance of the children's answers to noisy ones.

    answers (c, n) the noisy answers of all queries side by side; labels (n_queries, k) the column
    of `answers` that each cell is counted in; starts (n_queries + 1,) where the columns of each
    query begin; weights (m, n_queries) one row for each profile; profile, scale (c,) row of
    `weights` and factor of each child.

    The matrix of a profile is diagonal[m] I + A' coarse[m] A, where A (r, k) is the 0/1 matrix of
    `coarse_rows` (n_coarse, k), the rows of the queries that no other refines. `diagonal` (m,) is
    the weight of the queries that distinguish all cells, or without such queries a `proximal` term
    (m,) that makes the matrix definite and is no part of the objective.

    Where `covariance` is not empty, the objective is weighed by the inverses of the children's
    covariances instead; of the rest, only `scale` is then used.
    """

    answers: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    weights: np.ndarray
    profile: np.ndarray
    scale: np.ndarray
    diagonal: np.ndarray
    proximal: np.ndarray
    coarse: np.ndarray
    coarse_rows: np.ndarray
    covariance: InverseCovariance = InverseCovariance.none()


class Constraints(NamedTuple):
    """Constraints on the children's cells `x` (c, k) in addition to being non-negative.

    sum_i x_i = parent (k,), if has_parent;
    sum over the children of group g, group_of_child (c,), and over the cells of a row r, where
        pin_rows (n_labels, k) has the rows of each cell, = targets[g, r];
    lower <= sum over the cells of a type <= upper, both (c, T), where the cells of type t are at
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
"""Woodbury's formula pays from this number of cells for each row of the coarse queries."""
PROXIMAL_WEIGHT = 1e-2
"""Weight of the proximal term, relative to the mean of the diagonal."""


@njit(cache=True, nogil=True)
def factor(
    labels: np.ndarray, columns: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(diagonal, proximal, coarse, coarse_rows) of `Quadratic`; `columns` are its starts."""
    n_queries, k = labels.shape
    n_profiles = weights.shape[0]
    size = columns[1:] - columns[:-1]
    scratch = np.empty(k, dtype=np.int64)
    # From many rows to few; equal numbers keep their order.
    order = np.argsort(-size, kind="mergesort")
    home = np.full(n_queries, -1, dtype=np.int64)
    chosen = np.empty(n_queries, dtype=np.int64)
    starts = np.zeros(n_queries + 1, dtype=np.int64)
    n_coarse = 0
    for q in order:
        if size[q] == k:
            continue
        for s in range(n_coarse):
            if is_refined(labels[q], labels[chosen[s]]):
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
        coarse_rows[s] = starts[s] + labels[chosen[s]] - columns[chosen[s]]
    n_rows = starts[n_coarse]
    coarse = np.zeros((n_profiles, n_rows, n_rows))
    for q in range(n_queries):
        if home[q] < 0:
            diagonal += weights[:, q]
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
def curvature(quadratic: Quadratic, i: int) -> np.ndarray:
    """Diagonal (k,) of child i's matrix, its scale included.

    All cells in one call: a call with these records costs more than its work on a cell.
    """
    covariance = quadratic.covariance
    if covariance.within.shape[0] > 0:
        of_classes = np.diag(covariance.within[i]) + np.diag(covariance.across[i])
        return of_classes[covariance.class_of_cell]
    profile = quadratic.profile[i]
    diagonal = np.full(quadratic.coarse_rows.shape[1], quadratic.diagonal[profile])
    for s in range(quadratic.coarse_rows.shape[0]):
        for j in range(diagonal.size):
            row = quadratic.coarse_rows[s, j]
            diagonal[j] += quadratic.coarse[profile, row, row]
    return quadratic.scale[i] * diagonal


@njit(cache=True, nogil=True, error_model="numpy")
def slope_of(
    quadratic: Quadratic, i: int, x: np.ndarray, residual: np.ndarray, out: np.ndarray
) -> None:
    """Write minus the gradient of child i's objective at its cells `x` (k,) to `out`.

    `residual` is scratch of the length of the answers.
    """
    covariance = quadratic.covariance
    if covariance.within.shape[0] > 0:
        out[:] = covariance.pull[i] - _product(covariance, i, x - covariance.centre[i])
        return
    labels = quadratic.labels
    n_queries, k = labels.shape
    residual[:] = quadratic.answers[i]
    out[:] = 0.0
    for j in range(k):
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
    if quadratic.covariance.within.shape[0] > 0:
        return covariance_distance(quadratic.covariance, x)
    labels = quadratic.labels
    n_queries, k = labels.shape
    distance = 0.0
    residual = np.empty(quadratic.answers.shape[1])
    for i in range(x.shape[0]):
        residual[:] = -quadratic.answers[i]
        for q in range(n_queries):
            for j in range(k):
                residual[labels[q, j]] += x[i, j]
        for q in range(n_queries):
            weight = 0.5 * quadratic.scale[i] * quadratic.weights[quadratic.profile[i], q]
            of_query = residual[quadratic.starts[q] : quadratic.starts[q + 1]]
            distance += weight * np.dot(of_query, of_query)
    return distance


@njit(cache=True, nogil=True, error_model="numpy")
def thin_inverse(diagonal: np.ndarray, coarse: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(C^-1 + A D^-1 A')^-1 (r, r), by which Woodbury's formula inverts D + A' C A.

    diagonal (f,) is D, coarse (r, r) is C, rows (n_coarse, f) the rows of A that hold each cell.
    """
    r = coarse.shape[0]
    tiny = TINY * max(np.trace(coarse) / r, diagonal.min())
    matrix = definite_inverse(coarse + tiny * np.eye(r))
    for s in range(rows.shape[0]):
        for t in range(rows.shape[0]):
            for j in range(diagonal.size):
                matrix[rows[s, j], rows[t, j]] += 1.0 / diagonal[j]
    return definite_inverse(matrix)


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_of_sum(diagonal: np.ndarray, coarse: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Inverse (f, f) of D + A' C A; see `thin_inverse`, used where it saves work."""
    f = diagonal.size
    if f > SMALL:
        present = np.unique(rows)
        if THIN * present.size <= f:
            few = np.searchsorted(present, rows)
            inner = thin_inverse(diagonal, coarse[present][:, present], few)
            return _by_thin_inverse(diagonal, inner, few)
    matrix = np.diag(diagonal)
    for s in range(rows.shape[0]):
        for a in range(f):
            row = rows[s, a]
            for d in range(f):
                matrix[a, d] += coarse[row, rows[s, d]]
    return definite_inverse(matrix)


@njit(cache=True, nogil=True, error_model="numpy")
def _by_thin_inverse(diagonal: np.ndarray, inner: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The inverse of D + A' C A from `inner`, the `thin_inverse` of its rows."""
    f = diagonal.size
    matrix, line = np.zeros((f, f)), np.empty(inner.shape[0])
    for a in range(f):
        line[:] = 0.0
        for s in range(rows.shape[0]):
            line -= inner[rows[s, a]]
        for s in range(rows.shape[0]):
            for d in range(f):
                matrix[a, d] += line[rows[s, d]]
        matrix[a] /= diagonal[a] * diagonal
        matrix[a, a] += 1.0 / diagonal[a]
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_of_child(
    quadratic: Quadratic, i: int, cells: np.ndarray, extra: np.ndarray
) -> np.ndarray:
    """Inverse (f, f) of child i's matrix on `cells` (f,), with `extra` (f,) on the diagonal."""
    covariance = quadratic.covariance
    if covariance.within.shape[0] > 0:
        return blocks_inverse(covariance, i, cells, extra)
    profile, scale = quadratic.profile[i], quadratic.scale[i]
    diagonal = quadratic.diagonal[profile] + extra / scale
    rows = quadratic.coarse_rows[:, cells]
    return inverse_of_sum(diagonal, quadratic.coarse[profile], rows) / scale
