"""A primal-dual interior-point method for siblings' least squares, compiled.

Solves the program that `active_set` solves, where that method cycles. An own row of a child that
is a bound gets a slack v >= 0: sum of x over a type - v = lower, or + v = upper. With multipliers
z of the cells, w of the slacks and eta, y of the rows, steps of Newton's method on

    gradient + multipliers of the rows = z,    +-eta = w,    all rows hold,    x z = v w = mu

are computed by eliminating the children (see `elimination`), while mu falls by Mehrotra's
predictor and corrector ([NumericalOptimization2006], algorithm 16.4). Rows are met softly as in
`active_set`, so that rows which imply each other do no harm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .active_set import MOST_ENTRIES, ROUNDING, Solution
from .dense_matrices import (
    block_of,
    factorised,
    solve_factorised,
)
from .elimination import (
    System,
    add_child,
    add_of_rows,
    add_to_rows,
    eliminate,
    shared_rows,
    shared_sums,
    softness_of_rows,
    step_of_child,
    taken,
    with_diagonal,
)
from .quadratic import (
    Constraints,
    Quadratic,
    curvature,
    inverse_of_child,
    slope_of,
    squared_distance,
)

MOST_ITERATIONS = 100
SOFTNESS = 1e-6
"""How far sums may miss for a unit's move of a multiplier, relative to their cells' compliance."""
STEP = 0.995
"""Share of the way to the nearest bound that a step goes."""
GAP = 1e-15
"""Gap that is small enough, relative to the objective (plus one)."""
MOST_GAP, MOST_SLOPE = 1e-8, 1e-9
"""Where no iterate is better, because precisions differ so much that rounding stands in the way:
the largest gap and departure from stationarity, relative as before, that a solution may have."""
PATIENCE = 10
"""Iterations after the best of these in which a better one may come."""
LOOSE = 1e11
"""Bounds above this never bind."""


class _Point(NamedTuple):
    """Cells x and multipliers z (c, k), slacks v and multipliers w, multipliers eta of the own rows
    (c, R), multipliers y of the shared rows; or a step of them all."""

    x: np.ndarray
    z: np.ndarray
    v: np.ndarray
    w: np.ndarray
    eta: np.ndarray
    y: np.ndarray


class _OwnRows(NamedTuple):
    """Own rows of the children: the rows of every cell (c, n_labels, k), -1 for none, how many
    there are (c,), and of each row (c, R) its sum, softness, and the sign of its slack, 0 for an
    equality."""

    rows: np.ndarray
    n: np.ndarray
    sums: np.ndarray
    give: np.ndarray
    sign: np.ndarray


class _Residual(NamedTuple):
    """How far stationarity of cells (c, k) and slacks (c, R), own and shared rows are from
    holding."""

    cells: np.ndarray
    slacks: np.ndarray
    own: np.ndarray
    shared: np.ndarray


@njit(cache=True, nogil=True)
def _own_rows(constraints: Constraints, pin_give: np.ndarray, type_give: np.ndarray) -> _OwnRows:
    """The pins of single children, then bounds that may bind; equal bounds make one equality."""
    c, k = constraints.allowed.shape
    n_pins, n_types = pin_give.shape[1], type_give.shape[1]
    n_labels = constraints.pin_rows.shape[0] if n_pins > 0 else 0
    rows = np.full((c, n_labels + 2, k), -1, dtype=np.int64)
    n = np.full(c, n_pins, dtype=np.int64)
    sums = np.zeros((c, n_pins + 2 * n_types))
    give = np.ones((c, n_pins + 2 * n_types))
    sign = np.zeros((c, n_pins + 2 * n_types))
    for i in range(c):
        for q in range(n_labels):
            for j in range(k):
                rows[i, q, j] = constraints.pin_rows[q, j]
        for r in range(n_pins):
            sums[i, r] = constraints.targets[constraints.group_of_child[i], r]
            give[i, r] = pin_give[i, r]
        for t in range(n_types):
            start, stop = constraints.type_starts[t], constraints.type_starts[t + 1]
            is_empty = True
            most = 0.0 if constraints.has_parent else LOOSE
            for j in range(start, stop):
                is_empty &= not constraints.allowed[i, j]
                if constraints.has_parent:
                    most += constraints.parent[j]
            if is_empty:
                continue
            lower, upper = constraints.lower[i, t], constraints.upper[i, t]
            for side in range(2):
                edge = upper if side else lower
                if (lower == upper and side) or (upper >= most if side else lower <= 0.0):
                    continue
                for j in range(start, stop):
                    rows[i, n_labels + side, j] = n[i]
                sums[i, n[i]], give[i, n[i]] = edge, type_give[i, t]
                if lower < upper:
                    sign[i, n[i]] = 1.0 if side else -1.0
                n[i] += 1
    return _OwnRows(rows, n, sums, give, sign)


@njit(cache=True, nogil=True, error_model="numpy")
def _first_point(
    quadratic: Quadratic, constraints: Constraints, own: _OwnRows, start: np.ndarray
) -> _Point:
    """All products well inside, from cells near `start`."""
    c, k = start.shape
    allowed = constraints.allowed
    n, total = 0, 0.0
    for i in range(c):
        for j in range(k):
            if allowed[i, j]:
                n += 1
                total += start[i, j]
    n = max(n, 1)
    typical = max(total / n, 1e-3)
    x, z = np.zeros((c, k)), np.zeros((c, k))
    for i in range(c):
        for j in range(k):
            if allowed[i, j]:
                x[i, j] = max(start[i, j], 0.1 * typical)
    steep = 0.0
    slope, scratch = np.empty(k), np.empty(quadratic.answers.shape[1])
    for i in range(c):
        slope_of(quadratic, i, x[i], scratch, slope)
        diagonal = curvature(quadratic, i)
        for j in range(k):
            if allowed[i, j]:
                steep = steep + (abs(slope[j]) + diagonal[j] * typical) / n
    v, w = np.ones(own.sums.shape), np.zeros(own.sums.shape)
    held = np.empty(own.sums.shape[1])
    for i in range(c):
        for j in range(k):
            if allowed[i, j]:
                z[i, j] = steep
        for r in range(held.size):
            held[r] = -own.sums[i, r]
        add_to_rows(held, own.rows[i], x[i], 1.0)
        for r in range(own.n[i]):
            if own.sign[i, r] != 0.0:
                v[i, r] = max(-own.sign[i, r] * held[r], 0.1 * own.sums[i, r], typical)
                w[i, r] = steep
    return _Point(x, z, v, w, np.zeros(own.sums.shape), np.zeros(shared_sums(constraints).size))


@njit(cache=True, nogil=True, error_model="numpy")
def _residual(
    quadratic: Quadratic, constraints: Constraints, own: _OwnRows, point: _Point
) -> tuple[_Residual, float, float, float]:
    """The residual of a point, its largest entries (primal, dual) and the sum of all products."""
    c, k = point.x.shape
    primal, dual, gap = 0.0, 0.0, 0.0
    cells, slacks = np.zeros((c, k)), np.zeros(own.sums.shape)
    rows, shared = np.empty(own.sums.shape), shared_sums(constraints)
    scratch, every = np.empty(quadratic.answers.shape[1]), np.arange(k)
    for i in range(c):
        slope_of(quadratic, i, point.x[i], scratch, cells[i])
        for j in range(k):
            cells[i, j] += point.z[i, j]
        for r in range(own.sums.shape[1]):
            rows[i, r] = own.sums[i, r]
        of_cell = shared_rows(constraints, i, every)
        add_of_rows(cells[i], of_cell, point.y, -1.0)
        add_of_rows(cells[i], own.rows[i], point.eta[i], -1.0)
        add_to_rows(rows[i], own.rows[i], point.x[i], -1.0)
        add_to_rows(shared, of_cell, point.x[i], -1.0)
        for j in range(k):
            if constraints.allowed[i, j]:
                dual = max(dual, abs(cells[i, j]))
                gap += point.x[i, j] * point.z[i, j]
        for r in range(own.n[i]):
            sign = own.sign[i, r]
            if sign != 0.0:
                slacks[i, r] = point.w[i, r] - sign * point.eta[i, r]
                rows[i, r] -= sign * point.v[i, r]
                dual = max(dual, abs(slacks[i, r]))
                gap += point.v[i, r] * point.w[i, r]
            primal = max(primal, abs(rows[i, r]))
    for r in range(shared.size):
        primal = max(primal, abs(shared[r]))
    return _Residual(cells, slacks, rows, shared), primal, dual, gap


@njit(cache=True, nogil=True, error_model="numpy")
def _system(
    quadratic: Quadratic, own: _OwnRows, point: _Point, i: int, cells: np.ndarray
) -> System:
    """A child's system, with its barriers on the diagonal, inverted."""
    barrier, give = np.empty(cells.size), np.empty(own.n[i])
    rows = np.empty((own.rows.shape[1], cells.size), dtype=np.int64)
    for a in range(cells.size):
        barrier[a] = point.z[i, cells[a]] / point.x[i, cells[a]]
        for q in range(rows.shape[0]):
            rows[q, a] = own.rows[i, q, cells[a]]
    for r in range(give.size):
        give[r] = own.give[i, r]
        if own.sign[i, r] != 0.0:
            give[r] += point.v[i, r] / point.w[i, r]
    return eliminate(inverse_of_child(quadratic, i, cells, barrier), rows, give)


@njit(cache=True, nogil=True, error_model="numpy")
def _step(
    quadratic: Quadratic,
    constraints: Constraints,
    own: _OwnRows,
    point: _Point,
    residual: _Residual,
    products: tuple[np.ndarray, np.ndarray],
    cells: np.ndarray,
    n_cells: np.ndarray,
    systems: list[System],
    factor: np.ndarray,
) -> _Point:
    """The step that takes x z and v w to `products`, a pair of (c, k) and (c, R), as far as the
    linearised equations know. Child i's cells are the first n_cells[i] of cells[i]."""
    c, k = point.x.shape
    x, z = np.zeros((c, k)), np.zeros((c, k))
    v, w, eta = np.zeros(own.sums.shape), np.zeros(own.sums.shape), np.zeros(own.sums.shape)
    y, right = np.zeros(point.y.size), np.empty(point.y.size)
    for r in range(right.size):
        right[r] = -residual.shared[r]
    for sweep in range(2):
        if sweep == 1 and y.size > 0:
            y = solve_factorised(factor, right)
        for i in range(c):
            free = cells[i, : n_cells[i]]
            if systems[i][0].shape[0] == free.size:
                system = systems[i]
            else:
                system = _system(quadratic, own, point, i, free)
            rows = shared_rows(constraints, i, free)
            change, force = np.empty(free.size), taken(residual.cells[i], free)
            for a in range(free.size):
                j = free[a]
                change[a] = products[0][i, j] - point.x[i, j] * point.z[i, j]
                force[a] += change[a] / point.x[i, j]
            miss = np.empty(own.n[i])
            for r in range(miss.size):
                miss[r] = residual.own[i, r]
                if own.sign[i, r] != 0.0:
                    moved = products[1][i, r] - point.v[i, r] * (
                        point.w[i, r] - residual.slacks[i, r]
                    )
                    miss[r] -= own.sign[i, r] * moved / point.w[i, r]
            if sweep == 0:
                if y.size > 0:
                    step, multiplier = step_of_child(system, force, miss)
                    add_to_rows(right, rows, step, 1.0)
                continue
            add_of_rows(force, rows, y, -1.0)
            step, multiplier = step_of_child(system, force, miss)
            for r in range(miss.size):
                eta[i, r] = multiplier[r]
            for a in range(step.size):
                j = free[a]
                x[i, j] = step[a]
                z[i, j] = (change[a] - point.z[i, j] * step[a]) / point.x[i, j]
            for r in range(miss.size):
                if own.sign[i, r] != 0.0:
                    w[i, r] = own.sign[i, r] * eta[i, r] - residual.slacks[i, r]
                    moved = products[1][i, r] - point.v[i, r] * (point.w[i, r] + w[i, r])
                    v[i, r] = moved / point.w[i, r]
    return _Point(x, z, v, w, eta, y)


@njit(cache=True, nogil=True)
def _reach(values: np.ndarray, steps: np.ndarray) -> float:
    """Longest step, 1 at most, that leaves all values at least zero."""
    reach = 1.0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value, step = values[i, j], steps[i, j]
            if step < 0.0 and -value > reach * step:
                reach = -value / step
    return reach


@njit(cache=True, nogil=True)
def _joint_reach(point: _Point, step: _Point) -> float:
    """Longest step, 1 at most, that leaves cells, slacks and their multipliers at least zero."""
    reach = min(_reach(point.x, step.x), _reach(point.z, step.z))
    return min(reach, min(_reach(point.v, step.v), _reach(point.w, step.w)))


@njit(cache=True, nogil=True)
def _moved_products(
    values: np.ndarray, steps: np.ndarray, others: np.ndarray, other_steps: np.ndarray, reach: float
) -> float:
    """Sum of the products of values and others, `reach` of their steps further."""
    total = 0.0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            moved = others[i, j] + reach * other_steps[i, j]
            total += (values[i, j] + reach * steps[i, j]) * moved
    return total


@njit(cache=True, nogil=True)
def _aim(products: np.ndarray, aim: float, share: float, x: np.ndarray, z: np.ndarray) -> None:
    """Write what products are to be: `aim`, less a share of what the steps multiply to."""
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            products[i, j] = aim - share * x[i, j] * z[i, j]


@njit(cache=True, nogil=True)
def _move(values: np.ndarray, steps: np.ndarray, reach: float) -> None:
    """Add `reach` times the steps to the values."""
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            values[i, j] += reach * steps[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(
    quadratic: Quadratic,
    constraints: Constraints,
    start: np.ndarray,
    softness: float,
    max_iterations: int,
    most_entries: int,
) -> tuple[np.ndarray, int, bool, float, float, float]:
    c, k = start.shape
    shared_give, pin_give, type_give = softness_of_rows(quadratic, constraints, softness)
    own = _own_rows(constraints, pin_give, type_give)
    point = _first_point(quadratic, constraints, own, start)
    # What is in records is written by these names: numba 0.68 may lose writes through a record.
    x, z, v, w, eta, y = point
    cells, n_cells = np.empty((c, k), dtype=np.int64), np.zeros(c, dtype=np.int64)
    systems = [(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))) for _ in range(c)]
    entries, n_products = 0, 0
    size, slope_size = 1.0, 1e-300
    if constraints.has_parent:
        for j in range(k):
            size = max(size, constraints.parent[j])
    slope, scratch = np.empty(k), np.empty(quadratic.answers.shape[1])
    nothing = np.zeros(k)
    for i in range(c):
        slope_of(quadratic, i, nothing, scratch, slope)
        for j in range(k):
            size = max(size, start[i, j])
            if constraints.allowed[i, j]:
                cells[i, n_cells[i]] = j
                n_cells[i] += 1
                slope_size = max(slope_size, abs(slope[j]))
        entries += n_cells[i] * n_cells[i]
        n_products += n_cells[i]
        for r in range(own.n[i]):
            n_products += own.sign[i, r] != 0.0
    of_cells, of_slacks = np.zeros((c, k)), np.zeros(own.sums.shape)
    aims = (of_cells, of_slacks)
    iteration, is_solved, before = 0, False, np.inf
    best_x, best_primal, best_dual, best_gap, best_iteration = x, 0.0, 0.0, np.inf, 0
    while True:
        residual, primal, dual, gap = _residual(quadratic, constraints, own, point)
        # Margins held from earlier passes may disagree by rounding, which no step can mend.
        is_met = primal <= 1e-9 + 1e-14 * size or 0.5 * before <= primal <= ROUNDING
        before = primal
        objective = 1.0 + squared_distance(quadratic, point.x)
        is_solved = is_met and dual <= 1e-11 * slope_size and gap <= GAP * objective
        is_near = primal <= ROUNDING and dual <= MOST_SLOPE * slope_size
        if is_solved or (is_near and gap <= min(MOST_GAP * objective, best_gap)):
            best_x = block_of(x, 0, c, 0, k)
            best_primal, best_dual, best_gap = primal, dual, gap
            best_iteration = iteration
        is_stuck = np.isfinite(best_gap) and iteration >= best_iteration + PATIENCE
        if is_solved or is_stuck or iteration == max_iterations or not np.isfinite(gap):
            break
        iteration += 1
        mu = gap / max(n_products, 1)
        schur = with_diagonal(shared_give)
        for i in range(c):
            free = cells[i, : n_cells[i]]
            system = _system(quadratic, own, point, i, free)
            if entries <= most_entries:
                systems[i] = system
            if schur.size > 0:
                add_child(schur, system[0], shared_rows(constraints, i, free))
        factor = factorised(schur)
        _aim(of_cells, 0.0, 0.0, point.x, point.z)
        _aim(of_slacks, 0.0, 0.0, point.v, point.w)
        for is_guess in (True, False):
            step = _step(
                quadratic, constraints, own, point, residual, aims, cells, n_cells, systems, factor
            )
            reach = _joint_reach(point, step)
            if is_guess:
                reached = _moved_products(point.x, step.x, point.z, step.z, reach)
                reached += _moved_products(point.v, step.v, point.w, step.w, reach)
                aim = mu * (reached / gap) ** 3 if gap > 0.0 else 0.0
                # The guess's second-order terms misled where little of its way could be gone.
                _aim(of_cells, aim, reach * reach, step.x, step.z)
                _aim(of_slacks, aim, reach * reach, step.v, step.w)
        reach *= STEP
        _move(x, step.x, reach)
        _move(z, step.z, reach)
        _move(v, step.v, reach)
        _move(w, step.w, reach)
        _move(eta, step.eta, reach)
        for r in range(y.size):
            y[r] += reach * step.y[r]
    if np.isfinite(best_gap):
        return best_x, iteration, True, best_primal, best_dual / slope_size, best_gap
    return x, iteration, False, primal, dual / slope_size, gap


def solve(
    quadratic: Quadratic,
    constraints: Constraints,
    start: np.ndarray,
    *,
    max_iterations: int = MOST_ITERATIONS,
) -> Solution:
    """Solve the quadratic program of `active_set`, from cells near `start` (c, k).

    Zeros come out as tiny positive numbers. Stops by iterations, never by clock. Where rounding
    errors stand in the way of an exact solution, that with the smallest gap is returned, if it is
    one within `MOST_GAP` and `MOST_SLOPE`.
    """
    return Solution(
        *_iterate(quadratic, constraints, start, SOFTNESS, max_iterations, MOST_ENTRIES)
    )
