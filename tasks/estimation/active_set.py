"""A primal-dual active-set method for siblings' least squares, compiled.

Solves, for children i = 1..c with positive definite Hessians s_i H_i (few distinct H_i),

    minimise    sum_i s_i (x_i' H_i x_i / 2 - b_i' x_i)
    subject to  sum_i x_i = p                         multipliers of the k cells (unless at the root)
                sum_{i in group g} P x_i = t_g        multipliers of the pins
                l_iT <= sum of x_i over type T <= u_iT
                x_i >= 0.

From a guess of the cells that are zero and of the bounds that bind, an equality-constrained
problem for the step from the last iterate gives every cell and multiplier: each child's free
block of s_i H_i is inverted, the rows that concern one child alone (its own pins and its binding
bounds) are eliminated from that inverse, and the multipliers of the rest solve one dense system
(a Schur complement). Cells that came out negative are fixed, fixed cells whose multiplier is
negative are freed, likewise for bounds, until nothing changes (Hintermueller, Ito and Kunisch
2002, with all changes made at once).

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


@njit(cache=True, nogil=True, error_model="numpy")
def _eliminate(inverse, rows, n_rows, give):
    """Eliminate the rows of one child from its inverse K^-1, in place.

    rows (n_labels, f) gives the row of each free cell in each labelling, -1 where it is in none;
    B is their 0/1 matrix. With M = (B K^-1 B' + give)^-1, returns K^-1 B' M and M, and leaves
    K^-1 - K^-1 B' M B K^-1 in `inverse`.
    """
    f = inverse.shape[0]
    n_labels = rows.shape[0]
    reach = np.zeros((f, n_rows))
    for q in range(n_labels):
        for d in range(f):
            r = rows[q, d]
            if r >= 0:
                for a in range(f):
                    reach[a, r] += inverse[a, d]
    small = np.zeros((n_rows, n_rows))
    for q in range(n_labels):
        for d in range(f):
            if rows[q, d] >= 0:
                for r in range(n_rows):
                    small[rows[q, d], r] += reach[d, r]
    for r in range(n_rows):
        small[r, r] += give[r]
    small = _invert(small)
    response = np.dot(reach, np.ascontiguousarray(small))
    for a in range(f):
        for r in range(n_rows):
            factor = response[a, r]
            if factor != 0.0:
                for d in range(f):
                    inverse[a, d] -= factor * reach[d, r]
    return response, small


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
    curvature,
    softness,
    max_iterations,
):
    c, k = b.shape
    n_types = lower.shape[1]
    n_labels = pin_rows.shape[0]
    n_groups = targets.shape[0]
    type_of_cell = np.zeros(k, dtype=np.int64)
    for t in range(n_types):
        type_of_cell[type_starts[t] : type_starts[t + 1]] = t
    # Pins of one child are its own rows, before those of its binding bounds; others are shared.
    own_pins = n_labels > 0 and n_groups == c
    n_own_pins = n_pins if own_pins else 0
    n_parent = k if has_parent else 0
    n_shared = n_parent + (0 if own_pins else targets.size)
    n_shared_labels = 0 if own_pins else n_labels
    n_own_labels = (n_labels if own_pins else 0) + 1

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

    # How far sums may miss for a unit's move of their multipliers, and the multipliers.
    shared_give = np.zeros(n_shared)
    pin_give = np.zeros((c, n_own_pins))
    bound_give = np.zeros((c, n_types))
    y = np.zeros(n_shared)
    pin_y = np.zeros((c, n_own_pins))
    bound_y = np.zeros((c, n_types))
    for i in range(c):
        for j in range(k):
            if allowed[i, j]:
                per_cell = softness / (scale[i] * curvature)
                if has_parent:
                    shared_give[j] += per_cell
                for q in range(n_labels):
                    if own_pins:
                        pin_give[i, pin_rows[q, j]] += per_cell
                    else:
                        row = n_parent + group_of_child[i] * n_pins + pin_rows[q, j]
                        shared_give[row] += per_cell
                bound_give[i, type_of_cell[j]] += per_cell
    for r in range(n_shared):
        if shared_give[r] == 0.0:
            shared_give[r] = softness
    for i in range(c):
        for r in range(n_own_pins):
            if pin_give[i, r] == 0.0:
                pin_give[i, r] = softness

    starts = np.zeros(c + 1, dtype=np.int64)
    old_starts = np.zeros(c + 1, dtype=np.int64)
    cells = np.zeros((c, k), dtype=np.int64)
    old_cells = np.zeros((c, k), dtype=np.int64)
    n_free = np.zeros(c, dtype=np.int64)
    old_n_free = np.full(c, -1, dtype=np.int64)
    inverses = np.zeros(0)
    bound_row = np.full((c, n_types), -1, dtype=np.int64)
    own_rows = np.empty((n_own_labels, k), dtype=np.int64)
    shared_rows = np.empty((k, n_shared_labels + 1), dtype=np.int64)
    own_give = np.empty(n_own_pins + n_types)
    own_miss = np.empty(n_own_pins + n_types)
    own_y = np.empty(n_own_pins + n_types)
    pull = np.empty(k)
    slope = np.empty(k)
    primal, dual, gap = np.inf, np.inf, np.inf
    iteration = 0
    while iteration < max_iterations:
        iteration += 1
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
        cached = starts[c] <= CACHE_ENTRIES
        old_inverses = inverses
        inverses = np.empty(starts[c] if cached else 0)
        schur = np.zeros((n_shared, n_shared))
        rhs = np.zeros(n_shared)
        for j in range(n_parent):
            rhs[j] = -parent[j]
        for r in range(n_parent, n_shared):
            rhs[r] = -targets.flat[r - n_parent]

        changes = 0
        primal, dual, gap = 0.0, 0.0, 0.0
        column = np.zeros(n_parent)
        pinned = np.zeros(targets.shape)
        # First sweep: the shared rows' system. Second: the children's steps and new guesses.
        for sweep in range(2):
            if sweep == 1:
                for r in range(n_shared):
                    schur[r, r] += shared_give[r]
                    rhs[r] += shared_give[r] * y[r]
                y = _solve_definite(schur, rhs)
                if not np.isfinite(y).all():
                    return iteration, False, primal, dual, gap
            for i in range(c):
                f = n_free[i]
                hessian = hessians[hessian_of_child[i]]
                n_own = n_own_pins
                if sweep == 0:
                    for t in range(n_types):
                        bound_row[i, t] = -1
                        if bound[i, t] != 0:
                            bound_row[i, t] = n_own
                            n_own += 1
                else:
                    for t in range(n_types):
                        n_own += bound_row[i, t] >= 0
                # The child's inverse, less its own rows.
                own = cells[i, :f]
                unchanged = f == old_n_free[i] and old_inverses.size > 0
                if unchanged:
                    for a in range(f):
                        if own[a] != old_cells[i, a]:
                            unchanged = False
                            break
                if sweep == 1 and cached:
                    inverse = inverses[starts[i] : starts[i + 1]].copy().reshape((f, f))
                elif unchanged:
                    inverse = old_inverses[old_starts[i] : old_starts[i] + f * f].copy()
                    inverse = inverse.reshape((f, f))
                else:
                    inverse = _child_inverse(hessian, scale[i], own)
                if sweep == 0 and cached:
                    inverses[starts[i] : starts[i + 1]] = inverse.ravel()
                for a in range(f):
                    j = own[a]
                    for q in range(n_own_labels - 1):
                        own_rows[q, a] = pin_rows[q, j]
                    own_rows[n_own_labels - 1, a] = bound_row[i, type_of_cell[j]]
                    slope[a] = scale[i] * _residual(hessian, b[i], x[i], own, j)
                    shared_rows[a, 0] = j if has_parent else -1
                    for q in range(n_shared_labels):
                        row = n_parent + group_of_child[i] * n_pins + pin_rows[q, j]
                        shared_rows[a, 1 + q] = row
                for r in range(n_own_pins):
                    own_give[r] = pin_give[i, r]
                    own_miss[r] = pin_give[i, r] * pin_y[i, r] - targets[group_of_child[i], r]
                for t in range(n_types):
                    r = bound_row[i, t]
                    if r >= 0:
                        edge = lower[i, t] if bound[i, t] == -1 else upper[i, t]
                        own_give[r] = bound_give[i, t]
                        own_miss[r] = bound_give[i, t] * bound_y[i, t] - edge
                for q in range(n_own_labels):
                    for a in range(f):
                        if own_rows[q, a] >= 0:
                            own_miss[own_rows[q, a]] += x[i, own[a]]
                response, small = _eliminate(
                    inverse, own_rows, n_own, own_give[:n_own]
                )
                if sweep == 0:
                    for a in range(f):
                        value = x[i, own[a]]
                        for r in range(n_own):
                            value -= response[a, r] * own_miss[r]
                        for d in range(f):
                            value += inverse[a, d] * slope[d]
                        for p in range(n_shared_labels + 1):
                            row = shared_rows[a, p]
                            if row < 0:
                                continue
                            rhs[row] += value
                            for d in range(f):
                                entry = inverse[a, d]
                                for q in range(n_shared_labels + 1):
                                    if shared_rows[d, q] >= 0:
                                        schur[row, shared_rows[d, q]] += entry
                    continue

                for j in range(k):
                    pull[j] = y[j] if has_parent else 0.0
                    for q in range(n_shared_labels):
                        pull[j] += y[n_parent + group_of_child[i] * n_pins + pin_rows[q, j]]
                for a in range(f):
                    slope[a] -= pull[own[a]]
                for r in range(n_own):
                    own_y[r] = 0.0
                    for q in range(n_own):
                        own_y[r] += small[r, q] * own_miss[q]
                    for a in range(f):
                        own_y[r] += response[a, r] * slope[a]
                for a in range(f):
                    value = 0.0
                    for r in range(n_own):
                        value -= response[a, r] * own_miss[r]
                    for d in range(f):
                        value += inverse[a, d] * slope[d]
                    x[i, own[a]] += value

                for r in range(n_own_pins):
                    pin_y[i, r] = own_y[r]
                for j in range(k):
                    for q in range(n_own_labels - 1):
                        pull[j] += own_y[pin_rows[q, j]]
                for t in range(n_types):
                    total = 0.0
                    for j in range(type_starts[t], type_starts[t + 1]):
                        total += x[i, j]
                    r = bound_row[i, t]
                    bound_y[i, t] = 0.0
                    if r >= 0:
                        bound_y[i, t] = own_y[r]
                        for j in range(type_starts[t], type_starts[t + 1]):
                            pull[j] += own_y[r]
                        edge = lower[i, t] if bound[i, t] == -1 else upper[i, t]
                        primal = max(primal, abs(total - edge))
                        gap += own_y[r] * (total - edge)
                        if lower[i, t] < upper[i, t]:
                            multiplier = own_y[r] * bound[i, t]
                            dual = max(dual, -multiplier)
                            if multiplier < -z_tolerance:
                                bound[i, t] = 0
                                changes += 1
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
                        primal = max(primal, -x[i, j])
                        if x[i, j] < -x_tolerance:
                            free[i, j] = False
                            changes += 1
                    elif allowed[i, j]:
                        multiplier = pull[j] - scale[i] * _residual(hessian, b[i], x[i], own, j)
                        dual = max(dual, -multiplier)
                        if multiplier < -z_tolerance:
                            free[i, j] = True
                            changes += 1
                for a in range(f):
                    j = own[a]
                    if has_parent:
                        column[j] += x[i, j]
                    for q in range(n_labels):
                        pinned[group_of_child[i], pin_rows[q, j]] += x[i, j]

        for j in range(n_parent):
            primal = max(primal, abs(column[j] - parent[j]))
            gap += y[j] * (column[j] - parent[j])
        for i in range(c):
            for r in range(n_own_pins):
                gap += pin_y[i, r] * (pinned[group_of_child[i], r] - targets[group_of_child[i], r])
        for r in range(targets.size):
            miss = pinned.flat[r] - targets.flat[r]
            primal = max(primal, abs(miss))
            if not own_pins:
                gap += y[n_parent + r] * miss
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
    curvature: float,
    softness: float = 1e-6,
    max_iterations: int = 20,
) -> ActiveSetResult:
    """Solve the quadratic program of the module's docstring.

    hessians (m, k, k), positive definite; hessian_of_child (c,); b, start (c, k); scale (c,);
    parent (k,) or None; pin_rows (n_labels, k) the rows of P that hold each cell;
    group_of_child (c,); targets (n_groups, n_pins); type_starts (T + 1,) offsets of each type's
    cells; lower, upper (c, T); allowed (c, k), False where constraints leave a cell nothing but
    zero. The cells that are zero in `start`, and the bounds it attains, are the first guess.
    `curvature` is a lower bound on the Hessians' eigenvalues; sums may miss by `softness` times a
    free cell's compliance, 1 / curvature, for a unit's move of their multipliers.
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
        curvature,
        softness,
        max_iterations,
    )
    try:
        iterations, converged, primal, dual, gap = _iterate(*arguments)
    except np.linalg.LinAlgError:
        return ActiveSetResult(start, max_iterations, False, np.inf, np.inf, np.inf)
    return ActiveSetResult(x, iterations, converged, primal, dual, gap)
