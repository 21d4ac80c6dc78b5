"""A primal-dual active-set method for siblings' least squares, compiled.

Solves, for children i = 1..c with positive definite Hessians s_i H_i (few distinct H_i),

    minimise    sum_i s_i (x_i' H_i x_i / 2 - b_i' x_i)
    subject to  sum_i x_i = p                    (unless at the root)
                sum_{i in group g} P x_i = t_g   (pinned margins)
                l_iT <= sum of x_i over type T <= u_iT
                x_i >= 0.

From a guess of the cells that are zero and of the bounds that bind, an equality-constrained
problem for the step from the last iterate gives every cell and multiplier: each child's free
block of s_i H_i is inverted, and the multipliers of all sums solve one dense system (a Schur
complement). Cells that came out negative are fixed, fixed cells whose multiplier is negative are
freed, likewise for bounds, until nothing changes (Hintermueller, Ito and Kunisch 2002, with all
changes made at once).

Equalities are met softly: the sums may miss by a little for every unit by which their multipliers
move in an iteration, as in the method of multipliers, so that the dense system is definite and
the misses vanish as the iterates settle. The result is then exact up to rounding. Where noise is
large against the counts, so many cells are zero that multipliers are not unique and the sets may
cycle; more softness, at the cost of more iterations, mostly prevents it. A cycle is reported and
left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

SMALL = 40
"""Free blocks up to this size are inverted by a loop, larger ones by LAPACK."""
CACHE_ENTRIES = 1 << 25
"""Inverses are kept between sweeps while they have no more entries than this (256 MiB)."""


@dataclass(frozen=True)
class ActiveSetResult:
    """Solution and certificate; meaningful only if `converged`.

    x : (c, k), non-negative.
    primal : largest violation of a constraint, in records.
    dual : largest violation of a multiplier's sign, relative to the largest gradient term.
    gap : primal less dual objective, which bounds the suboptimality.
    """

    x: np.ndarray
    iterations: int
    converged: bool
    primal: float
    dual: float
    gap: float


@njit(cache=True, nogil=True, error_model="numpy")
def _invert(matrix):
    """Inverse of a positive definite matrix, in place where it is small."""
    n = matrix.shape[0]
    if n > SMALL:
        return np.linalg.inv(matrix)
    for p in range(n):
        pivot = 1.0 / matrix[p, p]
        matrix[p, p] = 1.0
        for j in range(n):
            matrix[p, j] *= pivot
        for i in range(n):
            if i != p:
                factor = matrix[i, p]
                if factor != 0.0:
                    matrix[i, p] = 0.0
                    for j in range(n):
                        matrix[i, j] -= factor * matrix[p, j]
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_definite(matrix, right):
    """Solve a positive definite system by Cholesky's factorisation."""
    n = right.size
    y = right.copy()
    for r in range(n):
        if not np.isfinite(matrix[r, r]):
            y[:] = np.nan
            return y
    factor = np.linalg.cholesky(matrix)
    for r in range(n):
        total = y[r]
        for s in range(r):
            total -= factor[r, s] * y[s]
        y[r] = total / factor[r, r]
    for r in range(n - 1, -1, -1):
        y[r] /= factor[r, r]
        for s in range(r):
            y[s] -= factor[r, s] * y[r]
    return y


@njit(cache=True, nogil=True, error_model="numpy")
def _child_inverse(hessian, scale, cells):
    f = cells.size
    block = np.empty((f, f))
    for a in range(f):
        for b in range(f):
            block[a, b] = scale * hessian[cells[a], cells[b]]
    return _invert(block)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _residual(hessian, b, x, cells, j):
    """(b - H x) at cell j, where x is zero off the given cells."""
    value = b[j]
    for a in range(cells.size):
        value -= hessian[j, cells[a]] * x[cells[a]]
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(
    hessians,
    hessian_of_child,
    b,
    scale,
    parent,
    has_parent,
    pin_rows,
    n_pins,
    group_of_child,
    targets,
    type_starts,
    lower,
    upper,
    allowed,
    x,
    softness,
    max_iterations,
):
    c, k = b.shape
    n_types = lower.shape[1]
    n_labels = pin_rows.shape[0]
    n_parent = k if has_parent else 0
    n_pinned = targets.size
    type_of_cell = np.zeros(k, dtype=np.int64)
    for t in range(n_types):
        type_of_cell[type_starts[t] : type_starts[t + 1]] = t

    size = 1.0
    for j in range(n_parent):
        size = max(size, parent[j])
    b_size = 1e-300
    free = np.zeros((c, k), dtype=np.bool_)
    bound = np.zeros((c, n_types), dtype=np.int8)  # -1 lower binds, 1 upper binds
    for i in range(c):
        for t in range(n_types):
            start, stop = type_starts[t], type_starts[t + 1]
            if not allowed[i, start:stop].any():
                continue
            total = 0.0
            for j in range(start, stop):
                if not allowed[i, j]:
                    continue
                total += x[i, j]
                free[i, j] = x[i, j] > 0.0
                b_size = max(b_size, scale[i] * abs(b[i, j]))
                size = max(size, x[i, j])
            if lower[i, t] > 0.0 and total <= lower[i, t] * (1.0 + 1e-9):
                bound[i, t] = -1
            elif total >= upper[i, t] * (1.0 - 1e-9):
                bound[i, t] = 1
    x_tolerance = 1e-10 + 1e-13 * size
    sum_tolerance = 1e-9 + 1e-14 * size
    z_tolerance = 1e-11 * b_size

    starts = np.zeros(c + 1, dtype=np.int64)
    old_starts = np.zeros(c + 1, dtype=np.int64)
    cells = np.zeros((c, k), dtype=np.int64)
    old_cells = np.zeros((c, k), dtype=np.int64)
    n_free = np.zeros(c, dtype=np.int64)
    old_n_free = np.full(c, -1, dtype=np.int64)
    inverses = np.zeros(0)
    bound_row = np.full((c, n_types), -1, dtype=np.int64)
    rows = np.empty((k, n_labels + 2), dtype=np.int64)
    pull = np.empty(k)
    rhs_free = np.empty(k)
    slope = np.empty((c, k))
    primal, dual, gap = np.inf, np.inf, np.inf
    n_fixed_rows = n_parent + n_pinned
    y = np.zeros(n_fixed_rows)
    bound_y = np.zeros((c, n_types))
    give = np.zeros(n_fixed_rows)
    bound_give = np.zeros((c, n_types))
    for i in range(c):
        for j in range(k):
            if allowed[i, j]:
                per_cell = softness / (scale[i] * hessians[hessian_of_child[i], j, j])
                if has_parent:
                    give[j] += per_cell
                for q in range(n_labels):
                    give[n_parent + group_of_child[i] * n_pins + pin_rows[q, j]] += per_cell
                bound_give[i, type_of_cell[j]] += per_cell
    for r in range(n_fixed_rows):
        if give[r] == 0.0:
            give[r] = softness

    for iteration in range(1, max_iterations + 1):
        n_rows = n_fixed_rows
        for i in range(c):
            count = 0
            for j in range(k):
                if free[i, j]:
                    cells[i, count] = j
                    count += 1
                else:
                    x[i, j] = 0.0
            n_free[i] = count
            starts[i + 1] = starts[i] + count * count
            for t in range(n_types):
                bound_row[i, t] = -1
                if bound[i, t] != 0:
                    bound_row[i, t] = n_rows
                    n_rows += 1
        cached = starts[c] <= CACHE_ENTRIES
        old_inverses = inverses
        inverses = np.empty(starts[c] if cached else 0)
        schur = np.zeros((n_rows, n_rows))
        rhs = np.zeros(n_rows)
        for j in range(n_parent):
            rhs[j] = -parent[j]
        for r in range(n_pinned):
            rhs[n_parent + r] = -targets.flat[r]
        for i in range(c):
            for t in range(n_types):
                if bound[i, t] == -1:
                    rhs[bound_row[i, t]] = -lower[i, t]
                elif bound[i, t] == 1:
                    rhs[bound_row[i, t]] = -upper[i, t]

        for i in range(c):
            f = n_free[i]
            if f == 0:
                continue
            unchanged = f == old_n_free[i] and old_inverses.size > 0
            if unchanged:
                for a in range(f):
                    if cells[i, a] != old_cells[i, a]:
                        unchanged = False
                        break
            if unchanged:
                flat = old_inverses[old_starts[i] : old_starts[i] + f * f]
            else:
                flat = _child_inverse(hessians[hessian_of_child[i]], scale[i], cells[i, :f]).ravel()
            if cached:
                inverses[starts[i] : starts[i] + f * f] = flat
            for a in range(f):
                j = cells[i, a]
                rows[a, 0] = j if has_parent else -1
                for q in range(n_labels):
                    rows[a, 1 + q] = n_parent + group_of_child[i] * n_pins + pin_rows[q, j]
                rows[a, n_labels + 1] = bound_row[i, type_of_cell[j]]
                rhs_free[a] = scale[i] * _residual(
                    hessians[hessian_of_child[i]], b[i], x[i], cells[i, :f], j
                )
                slope[i, a] = rhs_free[a]
            for a in range(f):
                value = x[i, cells[i, a]]
                for d in range(f):
                    value += flat[a * f + d] * rhs_free[d]
                for p in range(n_labels + 2):
                    row = rows[a, p]
                    if row < 0:
                        continue
                    rhs[row] += value
                    for d in range(f):
                        entry = flat[a * f + d]
                        for q in range(n_labels + 2):
                            if rows[d, q] >= 0:
                                schur[row, rows[d, q]] += entry
        for r in range(n_fixed_rows):
            schur[r, r] += give[r]
            rhs[r] += give[r] * y[r]
        for i in range(c):
            for t in range(n_types):
                row = bound_row[i, t]
                if row >= 0:
                    schur[row, row] += bound_give[i, t]
                    rhs[row] += bound_give[i, t] * bound_y[i, t]
        y = _solve_definite(schur, rhs)
        if not np.isfinite(y).all():
            break

        changes = 0
        gap = 0.0
        dual = 0.0
        column = np.zeros(n_parent)
        pinned = np.zeros(n_pinned)
        primal = 0.0
        for i in range(c):
            f = n_free[i]
            for j in range(k):
                value = y[j] if has_parent else 0.0
                for q in range(n_labels):
                    value += y[n_parent + group_of_child[i] * n_pins + pin_rows[q, j]]
                row = bound_row[i, type_of_cell[j]]
                if row >= 0:
                    value += y[row]
                pull[j] = value
            hessian = hessians[hessian_of_child[i]]
            if f > 0:
                if cached:
                    flat = inverses[starts[i] : starts[i] + f * f]
                else:
                    flat = _child_inverse(hessian, scale[i], cells[i, :f]).ravel()
                for a in range(f):
                    rhs_free[a] = slope[i, a] - pull[cells[i, a]]
                for a in range(f):
                    value = 0.0
                    for d in range(f):
                        value += flat[a * f + d] * rhs_free[d]
                    x[i, cells[i, a]] += value
            for t in range(n_types):
                total = 0.0
                for j in range(type_starts[t], type_starts[t + 1]):
                    total += x[i, j]
                if bound[i, t] != 0:
                    multiplier = y[bound_row[i, t]] * bound[i, t]
                    if lower[i, t] < upper[i, t] and multiplier < -z_tolerance:
                        bound[i, t] = 0
                        changes += 1
                        dual = max(dual, -multiplier)
                    edge = lower[i, t] if bound[i, t] == -1 else upper[i, t]
                    primal = max(primal, abs(total - edge))
                    gap += y[bound_row[i, t]] * (total - edge)
                elif total < lower[i, t] - sum_tolerance:
                    bound[i, t] = -1
                    changes += 1
                    primal = max(primal, lower[i, t] - total)
                elif total > upper[i, t] + sum_tolerance:
                    bound[i, t] = 1
                    changes += 1
                    primal = max(primal, total - upper[i, t])
            for j in range(k):
                if free[i, j]:
                    if x[i, j] < -x_tolerance:
                        free[i, j] = False
                        changes += 1
                    primal = max(primal, -x[i, j])
                elif allowed[i, j]:
                    multiplier = pull[j] - scale[i] * _residual(
                        hessian, b[i], x[i], cells[i, :f], j
                    )
                    if multiplier < -z_tolerance:
                        free[i, j] = True
                        changes += 1
                    dual = max(dual, -multiplier)
            for a in range(f):
                j = cells[i, a]
                if has_parent:
                    column[j] += x[i, j]
                for q in range(n_labels):
                    pinned[group_of_child[i] * n_pins + pin_rows[q, j]] += x[i, j]
        for j in range(n_parent):
            primal = max(primal, abs(column[j] - parent[j]))
            gap += y[j] * (column[j] - parent[j])
        for r in range(n_pinned):
            primal = max(primal, abs(pinned[r] - targets.flat[r]))
            gap += y[n_parent + r] * (pinned[r] - targets.flat[r])
        for i in range(c):
            for t in range(n_types):
                bound_y[i, t] = y[bound_row[i, t]] if bound_row[i, t] >= 0 else 0.0
        if changes == 0 and primal <= sum_tolerance:
            for i in range(c):
                for j in range(k):
                    x[i, j] = max(x[i, j], 0.0)
            return iteration, True, primal, dual / b_size, abs(gap)
        old_starts[:] = starts
        old_n_free[:] = n_free
        old_cells[:] = cells
    return iteration, False, primal, dual / b_size, abs(gap)


def solve(
    hessians: np.ndarray,
    hessian_of_child: np.ndarray,
    b: np.ndarray,
    scale: np.ndarray,
    parent: np.ndarray | None,
    pin_rows: np.ndarray,
    group_of_child: np.ndarray,
    targets: np.ndarray,
    type_starts: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    allowed: np.ndarray,
    start: np.ndarray,
    *,
    softness: float = 1e-8,
    max_iterations: int = 20,
) -> ActiveSetResult:
    """Solve the quadratic program of the module's docstring.

    hessians (m, k, k), positive definite; hessian_of_child (c,); b, start (c, k); scale (c,);
    parent (k,) or None; pin_rows (n_labels, k) the rows of P that hold each cell;
    group_of_child (c,); targets (n_groups, n_pins); type_starts (T + 1,) offsets of each type's
    cells; lower, upper (c, T); allowed (c, k), False where constraints leave a cell nothing but
    zero. The cells that are zero in `start`, and the bounds it attains, are the first guess.
    Sums may miss by `softness` times their cells' compliance for a unit's move of a multiplier.
    Stops by iterations, never by clock, so that the same measurements give the same estimates.
    """
    x = start.copy()
    arguments = (
        hessians,
        hessian_of_child,
        b,
        scale,
        np.zeros(b.shape[1]) if parent is None else parent,
        parent is not None,
        pin_rows,
        targets.shape[1],
        group_of_child,
        targets,
        type_starts,
        lower,
        upper,
        allowed,
        x,
        softness,
        max_iterations,
    )
    try:
        iterations, converged, primal, dual, gap = _iterate(*arguments)
    except np.linalg.LinAlgError:
        return ActiveSetResult(start, max_iterations, False, np.inf, np.inf, np.inf)
    return ActiveSetResult(x, iterations, converged, primal, dual, gap)
