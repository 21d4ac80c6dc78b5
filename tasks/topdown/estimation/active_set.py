"""A primal-dual active-set method for siblings' least squares, compiled.

Solves, for children i = 1..c,

    minimise    sum_i f_i(x_i)                        convex quadratics, see `Quadratic`
    subject to  sum_i x_i = p                         unless at the root
                sum_{i in group g} P x_i = t_g        pinned margins
                l_iT <= sum of x_i over type T <= u_iT
                x_i >= 0.

From a guess of the cells that are zero and of the bounds that bind, an equality-constrained
problem for the step from the last iterate gives every cell and multiplier (see below).
Cells that came out negative are fixed, fixed cells whose multiplier is negative are freed, and
similarly bounds, until nothing changes ([ActiveSet2002], with all changes made at once).

Equalities are met softly: the sums may miss by a little for every unit by which their multipliers
move in an iteration, as in the method of multipliers, so that the systems are definite and the
misses vanish once the guess is final; a singular matrix, too, is made definite by a proximal term
around the last iterate. The result is then exact up to rounding. Where noise is large against the
counts, so many cells are zero that multipliers are not unique and the guesses may cycle, which is
reported and left to the caller.

**Elimination.** A step of the children's free cells and the multipliers of all sums solve

    K_i dx_i + B_i' eta_i + E_i' y = force_i       for every child i
    B_i dx_i - G_i eta_i           = miss_i        the rows that concern this child alone
    sum_i E_i dx_i - G y           = miss          the rows that children share

with 0/1 matrices B_i and E_i. Each child's own system is inverted, which leaves one dense system
for the multipliers of the shared rows, whose size does not depend on the number of children (its
Schur complement). Own rows are pins of single children and bounds on types; shared rows are the
parent's cells, and pins of groups of several children.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ...solvers.highs import SolveStatus
from .dual_kernels import largest_of
from .problem import SolveRecord
from .quadratic import (
    Constraints,
    Quadratic,
    curvature,
    definite_inverse,
    factorise,
    inverse_of_child,
    slope_of,
    solve_factorised,
    squared_distance,
)

SOFTNESS = 1e-7
"""Allowed miss of sums for a unit's move of a multiplier, relative to their cells' compliance."""

System = tuple[np.ndarray, np.ndarray, np.ndarray]
"""One child's inverse, response and compliance; see `eliminate`."""


@njit(cache=True, nogil=True)
def n_own_pins(constraints: Constraints) -> int:
    """Number of rows of every child that are pins; 0 where pins hold for groups of children."""
    n_children = constraints.lower.shape[0]
    return constraints.targets.shape[1] if constraints.targets.shape[0] == n_children else 0


@njit(cache=True, nogil=True)
def shared_sums(constraints: Constraints) -> np.ndarray:
    """Required sums of the shared rows: the parent's cells, then the pins of groups."""
    parent = constraints.parent if constraints.has_parent else constraints.parent[:0]
    if n_own_pins(constraints) > 0:
        return parent.copy()
    return np.concatenate((parent, constraints.targets.ravel()))


@njit(cache=True, nogil=True)
def shared_rows(constraints: Constraints, i: int, cells: np.ndarray) -> np.ndarray:
    """Shared rows that hold each of child i's `cells` (f,), shape (n_labels, f)."""
    n_parent = constraints.parent.size if constraints.has_parent else 0
    n_labels = 0 if n_own_pins(constraints) > 0 else constraints.pin_rows.shape[0]
    first = int(constraints.has_parent)
    rows = np.empty((first + n_labels, cells.size), dtype=np.int64)
    if constraints.has_parent:
        rows[0] = cells
    for q in range(n_labels):
        start = n_parent + constraints.group_of_child[i] * constraints.targets.shape[1]
        rows[first + q] = start + constraints.pin_rows[q][cells]
    return rows


@njit(cache=True, nogil=True)
def softness_of_rows(
    quadratic: Quadratic, constraints: Constraints
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G of shared rows (n_shared,), of own pins (c, n_own_pins) and of types (c, T): how far sums
    may miss for a unit's move of their multipliers, `SOFTNESS` times their cells' compliance."""
    c, k = constraints.allowed.shape
    types = np.repeat(np.arange(constraints.lower.shape[1]), np.diff(constraints.type_starts))
    shared = np.zeros(shared_sums(constraints).size)
    pins = np.zeros((c, n_own_pins(constraints)))
    of_type = np.zeros((c, constraints.lower.shape[1]))
    for i in range(c):
        give = np.where(constraints.allowed[i], SOFTNESS / curvature(quadratic, i), 0.0)
        for j in range(k):
            of_type[i, types[j]] += give[j]
        add_to_rows(shared, shared_rows(constraints, i, np.arange(k)), give, 1.0)
        if pins.shape[1] > 0:
            add_to_rows(pins[i], constraints.pin_rows, give, 1.0)
    # A row without any cell would leave a line of zeros in the system.
    shared = np.where(shared == 0.0, SOFTNESS, shared)
    return shared, np.where(pins == 0.0, SOFTNESS, pins), of_type


@njit(cache=True, nogil=True, error_model="numpy")
def eliminate(inverse: np.ndarray, rows: np.ndarray, give: np.ndarray) -> System:
    """Inverse of one child's system [[K, B'], [B, -G]] as (inverse, response, compliance).

    `inverse` (f, f), the inverse of K, is overwritten; rows (n_labels, f or more) has the rows of B
    with each free cell, -1 for none; G is the diagonal of `give`. The inverse is [[inverse,
    response], [response', -compliance]].
    """
    # The Schur complement of K is B K^-1 B' + G. B is 0/1, so that `reach` = B K^-1 adds rows of
    # the inverse, and no product by B is made.
    f, n_rows = inverse.shape[0], give.size
    reach, compliance = np.zeros((n_rows, f)), np.zeros((n_rows, n_rows))
    if n_rows == 0:
        return inverse, np.zeros((f, n_rows)), compliance
    for q in range(rows.shape[0]):
        for a in range(f):
            if rows[q, a] >= 0:
                for d in range(f):
                    reach[rows[q, a], d] += inverse[a, d]
    for r in range(n_rows):
        add_to_rows(compliance[r], rows, reach[r], 1.0)
        compliance[r, r] += give[r]
    compliance = definite_inverse(compliance)
    response = np.dot(reach.T, compliance)
    inverse -= np.dot(response, reach)
    return inverse, response, compliance


@njit(cache=True, nogil=True, error_model="numpy")
def step_of_child(
    system: System, force: np.ndarray, miss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solution (dx_i, eta_i) of one child's system for given y; see `eliminate`."""
    inverse, response, compliance = system
    if miss.size == 0:
        return np.dot(inverse, force), np.zeros(0)
    step = np.dot(inverse, force) + np.dot(response, miss)
    return step, np.dot(response.T, force) - np.dot(compliance, miss)


@njit(cache=True, nogil=True)
def add_child(schur: np.ndarray, inverse: np.ndarray, rows: np.ndarray) -> None:
    """Add a child's part E inverse E' to the matrix of the shared rows."""
    # E has one 1 a column and label: each entry of the inverse is added to one entry for each pair.
    n_labels, f = rows.shape
    for q in range(n_labels):
        for a in range(f):
            line, source = schur[rows[q, a]], inverse[a]
            for p in range(n_labels):
                for d in range(f):
                    line[rows[p, d]] += source[d]


@njit(cache=True, nogil=True)
def add_to_rows(sums: np.ndarray, rows: np.ndarray, values: np.ndarray, factor: float) -> None:
    """Add `factor` times the values (f,) of cells to the sums of their rows, given by the first f
    columns of `rows`, if any.
    """
    for q in range(rows.shape[0]):
        for a in range(values.size):
            if rows[q, a] >= 0:
                sums[rows[q, a]] += factor * values[a]


@njit(cache=True, nogil=True)
def add_of_rows(
    values: np.ndarray, rows: np.ndarray, multipliers: np.ndarray, factor: float
) -> None:
    """Add to the values (f,) of cells `factor` times the multipliers of their rows."""
    for q in range(rows.shape[0]):
        for a in range(values.size):
            if rows[q, a] >= 0:
                values[a] += factor * multipliers[rows[q, a]]


ROUNDING = 1e-7
"""Violation of a row, in records, accepted once it no longer falls."""
MOST_ENTRIES = 1 << 27
"""The children's inverses are kept between sweeps while they have no more entries (1 GiB)."""


class _State(NamedTuple):
    """The children's guesses, their multipliers, and the systems' rows by the guesses.

    free (c, k), bound (c, T): which cells are free, and which bounds bind: -1 the lower, 1 the
        upper.
    pins (c, n_pins), bounds (c, T): multipliers of own pins and of bounds.
    cells (c, k), n_free (c,): free cells of each child, and their number.
    rows (c, n_labels + 1, k), n_rows (c,): own rows that hold each free cell, first the pins, then
        the bounds, and their number. row_of_type (c, T): the row of each type whose bound binds, -1
        for none.
    """

    free: np.ndarray
    bound: np.ndarray
    pins: np.ndarray
    bounds: np.ndarray
    cells: np.ndarray
    n_free: np.ndarray
    rows: np.ndarray
    n_rows: np.ndarray
    row_of_type: np.ndarray


class _Tolerances(NamedTuple):
    """Tolerances of cells and sums, in records; of multipliers' signs and of stationarity."""

    cells: float
    sums: float
    signs: float
    slopes: float


@njit(cache=True, nogil=True)
def _first_state(constraints: Constraints, x: np.ndarray) -> _State:
    """Free the cells that are positive in `x`, and all cells of a sum without any; note the
    bounds that `x` attains. Rows follow by `_follow_guess`."""
    allowed = constraints.allowed
    free = allowed & (x > 0.0)
    if constraints.has_parent:
        for j in range(x.shape[1]):
            if not free[:, j].any():
                free[:, j] = allowed[:, j]
    bound = np.zeros(constraints.lower.shape, dtype=np.int8)
    for i in range(x.shape[0]):
        for t in range(constraints.lower.shape[1]):
            lower, upper = constraints.lower[i, t], constraints.upper[i, t]
            total, is_empty = 0.0, True
            for j in range(constraints.type_starts[t], constraints.type_starts[t + 1]):
                if allowed[i, j]:
                    is_empty = False
                    total += x[i, j]
            if is_empty:
                continue
            if lower > 0.0 and total <= lower * (1.0 + 1e-9):
                bound[i, t] = -1
            elif total >= upper * (1.0 - 1e-9):
                bound[i, t] = 1
    c, n_pins = x.shape[0], n_own_pins(constraints)
    n_labels = constraints.pin_rows.shape[0] if n_pins > 0 else 0
    return _State(
        free,
        bound,
        np.zeros((c, n_pins)),
        np.zeros(bound.shape),
        np.empty(x.shape, dtype=np.int64),
        np.zeros(c, dtype=np.int64),
        np.empty((c, n_labels + 1, x.shape[1]), dtype=np.int64),
        np.zeros(c, dtype=np.int64),
        np.full(bound.shape, -1, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def sizes(quadratic: Quadratic, constraints: Constraints, x: np.ndarray) -> tuple[float, float]:
    """Largest count, and largest gradient at zero."""
    c, k = x.shape
    size, slope_size = max(1.0, constraints.parent.max()), 1e-300
    slope, scratch = np.empty(k), np.empty(quadratic.answers.shape[1])
    for i in range(c):
        slope_of(quadratic, i, np.zeros(k), scratch, slope)
        slope_size = max(slope_size, np.abs(slope * constraints.allowed[i]).max())
        size = max(size, (x[i] * constraints.allowed[i]).max())
    return size, slope_size


@njit(cache=True, nogil=True)
def _follow_guess(
    constraints: Constraints, state: _State, types: np.ndarray, i: int, x: np.ndarray
) -> None:
    """Set child i's free cells and own rows by its guess, and its other cells in `x` (k,) to 0."""
    n_free, n_rows = 0, n_own_pins(constraints)
    for j in range(x.size):
        if state.free[i, j]:
            state.cells[i, n_free] = j
            n_free += 1
        else:
            x[j] = 0.0
    for t in range(state.bound.shape[1]):
        state.row_of_type[i, t] = -1
        if state.bound[i, t] != 0:
            state.row_of_type[i, t] = n_rows
            n_rows += 1
    n_labels = state.rows.shape[1] - 1
    for a in range(n_free):
        j = state.cells[i, a]
        for q in range(n_labels):
            state.rows[i, q, a] = constraints.pin_rows[q, j]
        state.rows[i, n_labels, a] = state.row_of_type[i, types[j]]
    state.n_free[i], state.n_rows[i] = n_free, n_rows


@njit(cache=True, nogil=True)
def _misses(
    constraints: Constraints,
    state: _State,
    give: tuple[np.ndarray, np.ndarray],
    i: int,
    here: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Violations of child i's own rows at its free cells `here` (f,), less the softness granted to
    their present multipliers, and that softness.
    """
    pin_give, type_give = give
    miss, soft = np.empty(state.n_rows[i]), np.empty(state.n_rows[i])
    if n_own_pins(constraints) > 0:
        n_pins, group = pin_give.shape[1], constraints.group_of_child[i]
        soft[:n_pins] = pin_give[i]
        miss[:n_pins] = constraints.targets[group] - pin_give[i] * state.pins[i]
    for t in range(state.bound.shape[1]):
        r = state.row_of_type[i, t]
        if r >= 0:
            soft[r] = type_give[i, t]
            is_lower = state.bound[i, t] < 0
            miss[r] = constraints.lower[i, t] if is_lower else constraints.upper[i, t]
            miss[r] -= soft[r] * state.bounds[i, t]
    add_to_rows(miss, state.rows[i], here, -1.0)
    return miss, soft


@njit(cache=True, nogil=True, error_model="numpy")
def _judge(
    constraints: Constraints,
    state: _State,
    tolerances: _Tolerances,
    i: int,
    x: np.ndarray,
    reduced: np.ndarray,
) -> tuple[int, float, float, float]:
    """Correct the guess of child i by its new cells `x` (k,) and multipliers.

    `reduced` (k,), the gradient with the multipliers of the shared rows, gets the own rows'
    multipliers too. Returns the number of corrections, and the child's part in the certificate:
    largest violation of a row or a zero, of a sign or of stationarity, and sum of products.
    """
    changes, primal, dual, gap = 0, 0.0, 0.0, 0.0
    if state.pins.shape[1] > 0:
        add_of_rows(reduced, constraints.pin_rows, state.pins[i], 1.0)
        pinned = -constraints.targets[constraints.group_of_child[i]]
        add_to_rows(pinned, constraints.pin_rows, x, 1.0)
        primal = max(primal, largest_of(pinned))
        gap += np.dot(state.pins[i], pinned)
    for t in range(state.bound.shape[1]):
        start, stop = constraints.type_starts[t], constraints.type_starts[t + 1]
        lower, upper = constraints.lower[i, t], constraints.upper[i, t]
        held = 0.0
        for j in range(start, stop):
            held += x[j]
        if state.row_of_type[i, t] >= 0:
            multiplier = state.bounds[i, t]
            reduced[start:stop] += multiplier
            held -= lower if state.bound[i, t] < 0 else upper
            primal = max(primal, abs(held))
            gap += multiplier * held
            if lower < upper:
                signed = multiplier * state.bound[i, t]
                dual = max(dual, -signed)
                if signed < -tolerances.signs:
                    state.bound[i, t] = 0
                    changes += 1
            continue
        primal = max(primal, lower - held, held - upper)
        if held < lower - tolerances.sums:
            state.bound[i, t] = -1
            changes += 1
        elif held > upper + tolerances.sums:
            state.bound[i, t] = 1
            changes += 1
    for j in range(x.size):
        if state.free[i, j]:
            dual = max(dual, abs(reduced[j]))
            primal = max(primal, -x[j])
            if x[j] < -tolerances.cells:
                state.free[i, j] = False
                changes += 1
        elif constraints.allowed[i, j]:
            dual = max(dual, -reduced[j])
            if reduced[j] < -tolerances.signs:
                state.free[i, j] = True
                changes += 1
    return changes, primal, dual, gap


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(
    quadratic: Quadratic,
    constraints: Constraints,
    x: np.ndarray,
    max_iterations: int,
    is_polished: bool,
) -> tuple[int, bool, float, float, float]:
    c, k = x.shape
    n_types, n_pins = constraints.lower.shape[1], n_own_pins(constraints)
    types, every = np.repeat(np.arange(n_types), np.diff(constraints.type_starts)), np.arange(k)
    sums = shared_sums(constraints)
    n_shared = sums.size
    shared_give, pin_give, type_give = softness_of_rows(quadratic, constraints)
    own_give = (pin_give, type_give)
    size, slope_size = sizes(quadratic, constraints, x)
    tolerances = _Tolerances(
        1e-10 + 1e-13 * size, 1e-9 + 1e-14 * size, 1e-11 * slope_size, 1e-13 * slope_size
    )
    state = _first_state(constraints, x)
    # Written by these names: numba 0.68 loses writes through a record made in the same function.
    y, pin_y, bound_y = np.zeros(n_shared), state.pins, state.bounds
    # A child whose guess has changed needs its rows, system and gradient anew.
    is_stale = np.ones(c, dtype=np.bool_)
    systems = [(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))) for _ in range(c)]
    slope, scratch = np.empty((c, k)), np.empty(quadratic.answers.shape[1])
    factor = np.zeros((n_shared, n_shared))
    reduced = np.empty(k)
    was_good, before = False, np.inf
    for iteration in range(1, max_iterations + 1):
        entries = 0
        is_new = False
        for i in range(c):
            if is_stale[i]:
                is_new = True
                _follow_guess(constraints, state, types, i, x[i])
                slope_of(quadratic, i, x[i], scratch, slope[i])
            entries += state.n_free[i] * state.n_free[i]
        is_kept = entries <= MOST_ENTRIES
        if is_new:
            factor = np.diag(shared_give)
        right, total = shared_give * y - sums, -sums
        changes, primal, dual, gap = 0, 0.0, 0.0, 0.0
        # First sweep: the system of the shared rows. Second: steps, multipliers, new guesses.
        for sweep in range(2):
            if sweep == 1 and n_shared > 0:
                if is_new:
                    factor = factorise(factor)
                y[:] = solve_factorised(factor, right)
                if not np.isfinite(y).all():
                    return iteration, False, primal, dual, gap
            for i in range(c):
                free = state.cells[i, : state.n_free[i]]
                here = x[i][free]
                miss, soft = _misses(constraints, state, own_give, i, here)
                if (sweep == 0 and is_stale[i]) or not is_kept:
                    inverse = inverse_of_child(quadratic, i, free, np.zeros(here.size))
                    system = eliminate(inverse, state.rows[i], soft)
                    if is_kept:
                        systems[i] = system
                else:
                    system = systems[i]
                force = slope[i][free]
                rows = shared_rows(constraints, i, free)
                if sweep == 0:
                    if n_shared > 0:
                        step, multiplier = step_of_child(system, force, miss)
                        here += step
                        add_to_rows(right, rows, here, 1.0)
                        if is_new:
                            add_child(factor, system[0], rows)
                    continue
                add_of_rows(force, rows, y, -1.0)
                step, multiplier = step_of_child(system, force, miss)
                pin_y[i] = multiplier[:n_pins]
                for t in range(n_types):
                    r = state.row_of_type[i, t]
                    bound_y[i, t] = multiplier[r] if r >= 0 else 0.0
                here += step
                x[i][free] = here
                add_to_rows(total, rows, here, 1.0)
                slope_of(quadratic, i, x[i], scratch, slope[i])
                reduced[:] = -slope[i]
                add_of_rows(reduced, shared_rows(constraints, i, every), y, 1.0)
                judged = _judge(constraints, state, tolerances, i, x[i], reduced)
                is_stale[i] = judged[0] > 0
                changes += judged[0]
                primal, dual = max(primal, judged[1]), max(dual, judged[2])
                gap += judged[3]
        primal = max(primal, largest_of(total))
        gap += np.dot(y, total)
        # Sums of many large cells may never get below rounding error.
        is_met = primal <= tolerances.sums or 0.5 * before <= primal <= ROUNDING
        before = primal
        if changes == 0 and is_met and dual <= tolerances.slopes:
            if was_good or not is_polished:
                break
            was_good = True
    # A matrix made singular by rounding errors gives NaN cells, and no changes.
    is_settled = changes == 0 and dual <= tolerances.signs and np.isfinite(x).all()
    return iteration, is_settled, primal, dual / slope_size, abs(gap)


def solve(
    quadratic: Quadratic,
    constraints: Constraints,
    start: np.ndarray,
    *,
    max_iterations: int,
    is_polished: bool = False,
) -> tuple[np.ndarray, SolveRecord]:
    """Cells (c, k) that solve the quadratic program of the module's docstring, and the record of
    the solve: cells and certificate are meaningful only if it is optimal.

    The cells that are zero in `start` (c, k), and the bounds it attains, are the first guess.
    A polished solution takes one further step, which reduces the violations of its constraints from
    tolerance to rounding. Stops by iterations, never by clock, so that the same measurements give
    the same estimates.
    """
    x = start.copy()
    iterations, converged, primal, dual, gap = _iterate(
        quadratic, constraints, x, max_iterations, is_polished
    )
    x, status = np.maximum(x, 0.0), SolveStatus.OPTIMAL if converged else SolveStatus.LIMIT
    return x, SolveRecord(
        solver="active set",
        status=status,
        iterations=iterations,
        primal_residual=primal,
        dual_residual=dual,
        objective_gap=gap / (1.0 + squared_distance(quadratic, x)),
    )
