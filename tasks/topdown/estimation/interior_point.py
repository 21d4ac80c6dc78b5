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
from spineflow.tasks.topdown.estimation.active_set import MOST_ENTRIES, ROUNDING, Solution
from spineflow.tasks.topdown.estimation.dense_matrices import factorised, solve_factorised
from spineflow.tasks.topdown.estimation.elimination import (
    System,
    add_child,
    add_to_rows,
    eliminate,
    shared_rows,
    shared_sums,
    softness_of_rows,
    step_of_child,
    subtract_of_rows,
)
from spineflow.tasks.topdown.estimation.quadratic import (
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
        if n_pins > 0:
            rows[i, :n_labels] = constraints.pin_rows
            sums[i, :n_pins] = constraints.targets[constraints.group_of_child[i]]
            give[i, :n_pins] = pin_give[i]
        for t in range(n_types):
            start, stop = constraints.type_starts[t], constraints.type_starts[t + 1]
            if not constraints.allowed[i, start:stop].any():
                continue
            lower, upper = constraints.lower[i, t], constraints.upper[i, t]
            most = constraints.parent[start:stop].sum() if constraints.has_parent else LOOSE
            for side in range(2):
                edge = upper if side else lower
                if (lower == upper and side) or (upper >= most if side else lower <= 0.0):
                    continue
                rows[i, n_labels + side, start:stop] = n[i]
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
    n = max(np.count_nonzero(allowed), 1)
    typical = max(np.where(allowed, start, 0.0).sum() / n, 1e-3)
    x = np.where(allowed, np.maximum(start, 0.1 * typical), 0.0)
    steep = 0.0
    slope, scratch = np.empty(k), np.empty(quadratic.answers.shape[1])
    for i in range(c):
        slope_of(quadratic, i, x[i], scratch, slope)
        for j in range(k):
            if allowed[i, j]:
                steep = steep + (abs(slope[j]) + curvature(quadratic, i, j) * typical) / n
    z = np.where(allowed, steep, 0.0)
    v, w = np.ones(own.sums.shape), np.zeros(own.sums.shape)
    for i in range(c):
        held = -own.sums[i]
        add_to_rows(held, own.rows[i], x[i])
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
    rows, shared = own.sums.copy(), shared_sums(constraints)
    scratch, every = np.empty(quadratic.answers.shape[1]), np.arange(k)
    for i in range(c):
        slope_of(quadratic, i, point.x[i], scratch, cells[i])
        cells[i] += point.z[i]
        of_cell = shared_rows(constraints, i, every)
        subtract_of_rows(cells[i], of_cell, point.y)
        subtract_of_rows(cells[i], own.rows[i], point.eta[i])
        add_to_rows(rows[i], own.rows[i], -point.x[i])
        add_to_rows(shared, of_cell, -point.x[i])
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
    inverse = inverse_of_child(quadratic, i, cells, point.z[i][cells] / point.x[i][cells])
    give = own.give[i, : own.n[i]].copy()
    for r in range(give.size):
        if own.sign[i, r] != 0.0:
            give[r] += point.v[i, r] / point.w[i, r]
    return eliminate(inverse, own.rows[i][:, cells], give)


@njit(cache=True, nogil=True, error_model="numpy")
def _step(
    quadratic: Quadratic,
    constraints: Constraints,
    own: _OwnRows,
    point: _Point,
    residual: _Residual,
    products: tuple[np.ndarray, np.ndarray],
    cells: list[np.ndarray],
    systems: list[System],
    factor: np.ndarray,
) -> _Point:
    """The step that takes x z and v w to `products`, a pair of (c, k) and (c, R), as far as the
    linearised equations know."""
    c, k = point.x.shape
    x, z = np.zeros((c, k)), np.zeros((c, k))
    v, w, eta = np.zeros(own.sums.shape), np.zeros(own.sums.shape), np.zeros(own.sums.shape)
    y = np.zeros(point.y.size)
    right = -residual.shared
    for sweep in range(2):
        if sweep == 1 and y.size > 0:
            y = solve_factorised(factor, right)
        for i in range(c):
            if systems[i][0].shape[0] == cells[i].size:
                system = systems[i]
            else:
                system = _system(quadratic, own, point, i, cells[i])
            rows = shared_rows(constraints, i, cells[i])
            change = (products[0][i] - point.x[i] * point.z[i])[cells[i]]
            force = residual.cells[i][cells[i]] + change / point.x[i][cells[i]]
            miss = residual.own[i, : own.n[i]].copy()
            for r in range(miss.size):
                if own.sign[i, r] != 0.0:
                    moved = products[1][i, r] - point.v[i, r] * (
                        point.w[i, r] - residual.slacks[i, r]
                    )
                    miss[r] -= own.sign[i, r] * moved / point.w[i, r]
            if sweep == 0:
                if y.size > 0:
                    add_to_rows(right, rows, step_of_child(system, force, miss)[0])
                continue
            subtract_of_rows(force, rows, y)
            step, eta[i, : miss.size] = step_of_child(system, force, miss)
            for a in range(step.size):
                j = cells[i][a]
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
    for value, step in zip(values.flat, steps.flat):  # noqa: B905  numba knows no `strict`
        if step < 0.0 and -value > reach * step:
            reach = -value / step
    return reach


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
    x, z, v, w, eta, y = point
    cells = [np.flatnonzero(constraints.allowed[i]) for i in range(c)]
    systems = [(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))) for _ in range(c)]
    entries = 0
    n_products = int(np.count_nonzero(own.sign))
    size: float = max(1.0, start.max())
    slope_size = 1e-300
    if constraints.has_parent:
        size = max(size, constraints.parent.max())
    slope, scratch = np.empty(k), np.empty(quadratic.answers.shape[1])
    for i in range(c):
        entries += cells[i].size ** 2
        n_products += cells[i].size
        slope_of(quadratic, i, np.zeros(k), scratch, slope)
        for j in cells[i]:
            slope_size = max(slope_size, abs(slope[j]))
    iteration, is_solved, before = 0, False, np.inf
    best_x, best_primal, best_dual, best_gap, best_iteration = x.copy(), 0.0, 0.0, np.inf, 0
    while True:
        residual, primal, dual, gap = _residual(quadratic, constraints, own, point)
        # Margins held from earlier passes may disagree by rounding, which no step can mend.
        is_met = primal <= 1e-9 + 1e-14 * size or 0.5 * before <= primal <= ROUNDING
        before = primal
        objective = 1.0 + squared_distance(quadratic, point.x)
        is_solved = is_met and dual <= 1e-11 * slope_size and gap <= GAP * objective
        is_near = primal <= ROUNDING and dual <= MOST_SLOPE * slope_size
        if is_solved or (is_near and gap <= min(MOST_GAP * objective, best_gap)):
            best_x, best_primal, best_dual, best_gap = x.copy(), primal, dual, gap
            best_iteration = iteration
        is_stuck = np.isfinite(best_gap) and iteration >= best_iteration + PATIENCE
        if is_solved or is_stuck or iteration == max_iterations or not np.isfinite(gap):
            break
        iteration += 1
        mu = gap / max(n_products, 1)
        schur = np.diag(shared_give)
        for i in range(c):
            system = _system(quadratic, own, point, i, cells[i])
            if entries <= most_entries:
                systems[i] = system
            if schur.size > 0:
                add_child(schur, system[0], shared_rows(constraints, i, cells[i]))
        factor = factorised(schur)
        aims = (np.zeros((c, k)), np.zeros(own.sums.shape))
        guess = _step(quadratic, constraints, own, point, residual, aims, cells, systems, factor)
        reach = min(
            min(_reach(point.x, guess.x), _reach(point.z, guess.z)),
            min(_reach(point.v, guess.v), _reach(point.w, guess.w)),
        )
        reached = ((point.x + reach * guess.x) * (point.z + reach * guess.z)).sum()
        reached += ((point.v + reach * guess.v) * (point.w + reach * guess.w)).sum()
        aim = mu * (reached / gap) ** 3 if gap > 0.0 else 0.0
        # The guess's second-order terms misled where little of its way could be gone.
        share = reach * reach
        aims = (aim - share * guess.x * guess.z, aim - share * guess.v * guess.w)
        step = _step(quadratic, constraints, own, point, residual, aims, cells, systems, factor)
        reach = STEP * min(
            min(_reach(point.x, step.x), _reach(point.z, step.z)),
            min(_reach(point.v, step.v), _reach(point.w, step.w)),
        )
        x += reach * step.x
        z += reach * step.z
        v += reach * step.v
        w += reach * step.w
        eta += reach * step.eta
        y += reach * step.y
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
