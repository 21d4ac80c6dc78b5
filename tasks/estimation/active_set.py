"""A primal-dual active-set method for siblings' least squares, compiled.

Solves, for children i = 1..c,

    minimise    sum_i f_i(x_i)                        convex quadratics, see `Quadratic`
    subject to  sum_i x_i = p                         unless at the root
                sum_{i in group g} P x_i = t_g        pinned margins
                l_iT <= sum of x_i over type T <= u_iT
                x_i >= 0.

From a guess of the cells that are zero and of the bounds that bind, an equality-constrained
problem for the step from the last iterate gives every cell and multiplier (see `elimination`).
Cells that came out negative are fixed, fixed cells whose multiplier is negative are freed,
likewise for bounds, until nothing changes (Hintermueller, Ito and Kunisch 2002, with all changes
made at once).

Equalities are met softly: the sums may miss by a little for every unit by which their multipliers
move in an iteration, as in the method of multipliers, so that the systems are definite and the
misses vanish once the guess stands; likewise a singular matrix is made definite by a proximal term
around the last iterate. The result is then exact up to rounding. Where noise is large against the
counts, so many cells are zero that multipliers are not unique and the guesses may cycle, which is
reported and left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.estimation.elimination import (
    add_child,
    add_to_rows,
    eliminate,
    n_own_pins,
    shared_rows,
    shared_sums,
    softness_of_rows,
    step_of_child,
    subtract_of_rows,
    type_of_cell,
)
from tasks.estimation.quadratic import (
    Constraints,
    Quadratic,
    factorised,
    inverse_of_child,
    slope_of,
    solve_factorised,
)

SOFTNESS = 1e-7
"""How far sums may miss for a unit's move of a multiplier, relative to their cells' compliance."""
ROUNDING = 1e-7
"""Violation of a row, in records, that may be left where it falls no more."""
MOST_ENTRIES = 1 << 27
"""The children's inverses are kept between sweeps while they have no more entries (1 GiB)."""


@dataclass(frozen=True)
class Solution:
    """Solution and certificate; meaningful only if `converged`.

    x : (c, k), non-negative.
    primal : largest violation of a constraint, in records.
    dual : largest violation of a multiplier's sign or of stationarity, relative to the largest
        gradient term.
    gap : sum of the products of multipliers and slacks; with a `dual` of no more than rounding it
        bounds the suboptimality.
    """

    x: np.ndarray
    iterations: int
    converged: bool
    primal: float
    dual: float
    gap: float


@njit(cache=True, nogil=True)
def _first_guess(constraints, x, free, bound):
    """Free the cells that are positive in `x`, and those of a sum that would have none; note the
    bounds that `x` attains (-1 lower, 1 upper)."""
    c, k = x.shape
    allowed = constraints.allowed
    for j in range(k):
        is_reached = not constraints.has_parent
        for i in range(c):
            free[i, j] = allowed[i, j] and x[i, j] > 0.0
            is_reached |= free[i, j]
        if not is_reached:
            free[:, j] = allowed[:, j]
    for i in range(c):
        for t in range(bound.shape[1]):
            start, stop = constraints.type_starts[t], constraints.type_starts[t + 1]
            lower, upper = constraints.lower[i, t], constraints.upper[i, t]
            total = 0.0
            is_empty = True
            for j in range(start, stop):
                if allowed[i, j]:
                    is_empty = False
                    total += x[i, j]
            if is_empty:
                continue
            if lower > 0.0 and total <= lower * (1.0 + 1e-9):
                bound[i, t] = -1
            elif total >= upper * (1.0 - 1e-9):
                bound[i, t] = 1


@njit(cache=True, nogil=True)
def _own_rows(constraints, i, cells, types, bound):
    """Own rows of child i that hold each of its free cells (n_labels, f), and the row of each type
    whose bound binds (T,), -1 for none: first the pins, then the bounds."""
    n_rows = n_own_pins(constraints)
    n_labels = constraints.pin_rows.shape[0] if n_rows > 0 else 0
    row_of_type = np.full(bound.size, -1, dtype=np.int64)
    for t in range(bound.size):
        if bound[t] != 0:
            row_of_type[t] = n_rows
            n_rows += 1
    rows = np.empty((n_labels + 1, cells.size), dtype=np.int64)
    for a in range(cells.size):
        for q in range(n_labels):
            rows[q, a] = constraints.pin_rows[q, cells[a]]
        rows[n_labels, a] = row_of_type[types[cells[a]]]
    return rows, row_of_type, n_rows


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(quadratic, constraints, x, softness, max_iterations, is_polished):
    allowed, lower, upper = constraints.allowed, constraints.lower, constraints.upper
    c, k = x.shape
    n_types, n_pins = lower.shape[1], n_own_pins(constraints)
    types, every = type_of_cell(constraints), np.arange(k)
    sums = shared_sums(constraints)
    n_shared = sums.size
    free = np.zeros((c, k), dtype=np.bool_)
    bound = np.zeros((c, n_types), dtype=np.int8)
    _first_guess(constraints, x, free, bound)
    shared_give, pin_give, type_give = softness_of_rows(quadratic, constraints, softness)

    size, slope_size = 1.0, 1e-300
    if constraints.has_parent:
        size = max(size, constraints.parent.max())
    slope = np.empty((c, k))
    scratch = np.empty(quadratic.answers.shape[1])
    for i in range(c):
        slope_of(quadratic, i, np.zeros(k), scratch, slope[i])
        for j in range(k):
            if allowed[i, j]:
                slope_size = max(slope_size, abs(slope[i, j]))
                size = max(size, x[i, j])
    x_tolerance, sum_tolerance = 1e-10 + 1e-13 * size, 1e-9 + 1e-14 * size
    sign_tolerance, slope_tolerance = 1e-11 * slope_size, 1e-13 * slope_size

    # Multipliers of shared rows, of own pins and of bounds.
    y, pin_y, bound_y = np.zeros(n_shared), np.zeros((c, n_pins)), np.zeros((c, n_types))
    is_stale = np.ones(c, dtype=np.bool_)
    cells = [every for _ in range(c)]
    own = [np.zeros((0, 0), dtype=np.int64) for _ in range(c)]
    row_of_type = np.full((c, n_types), -1, dtype=np.int64)
    n_rows = np.zeros(c, dtype=np.int64)
    systems = [(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))) for _ in range(c)]
    schur = np.zeros((n_shared, n_shared))
    primal, dual, gap = np.inf, np.inf, np.inf
    was_good, before = False, np.inf
    for iteration in range(1, max_iterations + 1):
        entries = 0
        for i in range(c):
            if is_stale[i]:
                cells[i] = np.flatnonzero(free[i])
                for j in range(k):
                    if not free[i, j]:
                        x[i, j] = 0.0
                slope_of(quadratic, i, x[i], scratch, slope[i])
                own[i], row_of_type[i], n_rows[i] = _own_rows(
                    constraints, i, cells[i], types, bound[i]
                )
            entries += cells[i].size ** 2
        is_kept = entries <= MOST_ENTRIES
        is_new = is_stale.any()
        if is_new:
            schur = np.zeros((n_shared, n_shared))
        right = shared_give * y - sums
        total = -sums
        changes = 0
        primal, dual, gap = 0.0, 0.0, 0.0
        # First sweep: the system of the shared rows. Second: steps, multipliers, new guesses.
        for sweep in range(2):
            if sweep == 1 and n_shared > 0:
                if is_new:
                    for r in range(n_shared):
                        schur[r, r] += shared_give[r]
                    schur = factorised(schur)
                y = solve_factorised(schur, right)
                if not np.isfinite(y).all():
                    return iteration, False, primal, dual, gap
            for i in range(c):
                miss = np.empty(n_rows[i])
                give = np.empty(n_rows[i])
                for r in range(n_pins):
                    give[r] = pin_give[i, r]
                    miss[r] = constraints.targets[constraints.group_of_child[i], r]
                    miss[r] -= give[r] * pin_y[i, r]
                for t in range(n_types):
                    r = row_of_type[i, t]
                    if r >= 0:
                        give[r] = type_give[i, t]
                        miss[r] = lower[i, t] if bound[i, t] < 0 else upper[i, t]
                        miss[r] -= give[r] * bound_y[i, t]
                here = x[i][cells[i]]
                add_to_rows(miss, own[i], -here)
                if (sweep == 0 and is_stale[i]) or not is_kept:
                    inverse = inverse_of_child(quadratic, i, cells[i], np.zeros(cells[i].size))
                    system = eliminate(inverse, own[i], give)
                    if is_kept:
                        systems[i] = system
                else:
                    system = systems[i]
                force = slope[i][cells[i]]
                rows = shared_rows(constraints, i, cells[i])
                if sweep == 0:
                    if n_shared > 0:
                        add_to_rows(right, rows, here + step_of_child(system, force, miss)[0])
                        if is_new:
                            add_child(schur, system[0], rows)
                    continue

                subtract_of_rows(force, rows, y)
                step, multiplier = step_of_child(system, force, miss)
                here += step
                for a in range(here.size):
                    x[i, cells[i][a]] = here[a]
                add_to_rows(total, rows, here)
                slope_of(quadratic, i, x[i], scratch, slope[i])
                reduced = -slope[i]
                subtract_of_rows(reduced, shared_rows(constraints, i, every), -y)
                was = changes
                if n_pins > 0:
                    pin_y[i] = multiplier[:n_pins]
                    subtract_of_rows(reduced, constraints.pin_rows, -pin_y[i])
                    pinned = -constraints.targets[constraints.group_of_child[i]]
                    add_to_rows(pinned, constraints.pin_rows, x[i])
                    for r in range(n_pins):
                        primal = max(primal, abs(pinned[r]))
                        gap += pin_y[i, r] * pinned[r]
                for t in range(n_types):
                    start, stop = constraints.type_starts[t], constraints.type_starts[t + 1]
                    held = x[i, start:stop].sum()
                    r = row_of_type[i, t]
                    bound_y[i, t] = 0.0
                    if r >= 0:
                        bound_y[i, t] = multiplier[r]
                        reduced[start:stop] += multiplier[r]
                        held -= lower[i, t] if bound[i, t] < 0 else upper[i, t]
                        primal = max(primal, abs(held))
                        gap += multiplier[r] * held
                        if lower[i, t] < upper[i, t]:
                            signed = multiplier[r] * bound[i, t]
                            dual = max(dual, -signed)
                            if signed < -sign_tolerance:
                                bound[i, t] = 0
                                changes += 1
                        continue
                    primal = max(primal, lower[i, t] - held, held - upper[i, t])
                    if held < lower[i, t] - sum_tolerance:
                        bound[i, t] = -1
                        changes += 1
                    elif held > upper[i, t] + sum_tolerance:
                        bound[i, t] = 1
                        changes += 1
                for j in range(k):
                    if free[i, j]:
                        dual = max(dual, abs(reduced[j]))
                        primal = max(primal, -x[i, j])
                        if x[i, j] < -x_tolerance:
                            free[i, j] = False
                            changes += 1
                    elif allowed[i, j]:
                        dual = max(dual, -reduced[j])
                        if reduced[j] < -sign_tolerance:
                            free[i, j] = True
                            changes += 1
                is_stale[i] = changes > was
        for r in range(n_shared):
            primal = max(primal, abs(total[r]))
            gap += y[r] * total[r]
        # Sums of many large cells may never get below rounding error.
        is_met = primal <= sum_tolerance or 0.5 * before <= primal <= ROUNDING
        before = primal
        if changes == 0 and is_met and dual <= slope_tolerance:
            if was_good or not is_polished:
                break
            was_good = True
    is_settled = changes == 0 and dual <= sign_tolerance
    return iteration, is_settled, primal, dual / slope_size, abs(gap)


def solve(
    quadratic: Quadratic,
    constraints: Constraints,
    start: np.ndarray,
    *,
    max_iterations: int,
    is_polished: bool = False,
) -> Solution:
    """Solve the quadratic program of the module's docstring.

    The cells that are zero in `start` (c, k), and the bounds it attains, are the first guess.
    A solution that is polished has gone one step further, which takes the violations of its
    constraints from tolerance to rounding. Stops by iterations, never by clock, so that the same
    measurements give the same estimates.
    """
    x = start.copy()
    iterations, converged, primal, dual, gap = _iterate(
        quadratic, constraints, x, SOFTNESS, max_iterations, is_polished
    )
    return Solution(np.maximum(x, 0.0), iterations, converged, primal, dual, gap)
