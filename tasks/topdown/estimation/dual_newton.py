"""Least squares of siblings on many cells, by Newton's method on the multipliers of rows.

A pass of the least squares (`least_squares.PassProblem`), on k cells and c children, is

    minimise  sum over measured rows of 1/2 w (s - m)^2   over x >= 0 with
    sum_i x[i, j] = X[j],    s = h for rows that are held,    l <= s <= u for rows between bounds,

where s is a row's sum: of cells of one child, or of a group of children. There are far fewer rows
than cells, so that nothing here is as large as cells x cells. Where no query distinguishes all
cells there are many optima, and the one near a given histogram f is taken (`fill`), so that
unmeasured queries agree with f.

**Proximal point** [ProximalPoint1976]. A round minimises the objective and 1/2 sum g (x - t)^2,
g = gamma s / f with the child's precision s. Its minimum is unique and the next round's centre t;
the first is f. This is the chi-square distance of survey calibration [Calibration1992]. Rounds go
on until the centre stays, which is then an optimum without the term. Large gamma make easy rounds
and small ones make few, so that gamma falls as long as rounds are easy. A row between bounds gets
a slack v, s - v = 0, a cell with bounds of its own; a row that must hold gets the same term on its
multiplier.

**Dual.** Given multipliers y of the rows, with R the matrix of the rows, a round's cells are

    x[i, j] = max(0, t + ((R'y)[i, j] + nu[j]) / g),   nu[j] such that the children's sum is X[j]:

a projection, cell by cell. The round's y maximises a concave function, whose gradient is
m - y / w - R x(y). It is piecewise quadratic, so that Newton's method (semismooth, as in
[ActiveSet2002]), with a line search, ends after finitely many steps. Its matrix is R H R' + 1 / w,
where H is diagonal but for the children's sums and has the positive cells alone: a product with it
costs as much as these cells times the queries that count each.

**Linear systems** are solved by conjugate gradients, preconditioned by the inverses of the
children's own blocks and one for a direction that they miss: where all children's multipliers move
alike, no cell does, since their sums are fixed, and the matrix reduces to 1 / w.

This module also builds a pass's rows, and the histogram f, for the method.

**The fill.** Below the root it shares every cell of the parent among the children in proportion to
their totals, noisy or held. At the root it makes the measured attributes independent except as the
answers require: a few cycles of raking (iterative proportional fitting [Raking1940]) of a constant
to the noisy answers. Answers below half a record count as half a record, so that noise empties no
cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from ...census.queries import incidence
from ...solvers.highs import SolveStatus
from .active_set import n_own_pins
from .dual_kernels import (
    Round,
    Rows,
    add_to_rows,
    conjugate_gradients,
    gather,
    inverses_of,
    largest_of,
    movable_cells,
    pairwise_sum,
    spread,
    write_cells,
)
from .problem import NO_BOUND, SiblingProblem, SolveRecord, numbered, sum_rows
from .quadratic import Constraints, Quadratic

LARGEST_GAMMA, FIRST_GAMMA, LEAST_GAMMA = 1.0, 0.1, 1e-3
"""Gamma of the rounds, relative to the precision of a row: it falls after rounds that were easy,
and rises after one that was not solved.
"""
GAMMA_STEP, EASY_STEPS = 3.0, 8
"""The factor of its fall or rise, and most steps of Newton's method in an easy round."""
ROUNDS, STEPS = 100, 40
"""Most rounds, and Newton's steps in one round."""
SOFTNESS = 1e-4
"""Give of a multiplier of a row that must hold, in a round, relative to 1 / w."""
LOOSE, RELATIVE, TIGHT = 1e-3, 1e-1, 1e-10
"""Largest gradient, in records, at which a round ends: of the first, relative to the last round's
move of a cell, and the least."""
STALLED = 1e-7
"""Largest gradient, in records, that rounding errors may leave where two steps do not halve it."""
STILL = 1e-9
"""Largest move of a cell or a slack, in records, at which the centre stays."""
LEAST_FILL = 1e-2
"""The least fill by which a cell's distance is weighed, relative to the mean."""
STALE = 40
"""Iterations of a linear system after which its preconditioner is made anew."""


class DualProblem(NamedTuple):
    """A pass in the form for this method; cells come first, children second.

    parent : (k,) X, empty at the root. allowed, fill : (k, c) where x may be positive, and f.
    own, aim : (k, c) precision and mean of the answers that count the cell alone, 0 without any.
    scale : (c,) the children's precisions, relative to the largest.
    """

    rows: Rows
    parent: np.ndarray
    allowed: np.ndarray
    fill: np.ndarray
    own: np.ndarray
    aim: np.ndarray
    scale: np.ndarray


def solve(problem: DualProblem) -> tuple[np.ndarray, SolveRecord]:
    """Cells (c, k) that solve the problem of the module's docstring, and the record of the solve
    without the violation of constraints, its residual and gap absolute; stops by iterations, never
    by clock.
    """
    fill = np.where(problem.allowed, problem.fill, 0.0)
    least = LEAST_FILL * float(fill.sum()) / max(int(problem.allowed.sum()), 1)
    ease = np.maximum(fill, max(least, 1e-9)) / problem.scale
    is_own = problem.own > 0.0
    ease = np.divide(1.0, problem.own, out=ease, where=is_own)
    centre = np.where(is_own, problem.aim, fill)
    x, iterations, converged, dual, gap = _rounds(problem, centre, ease, is_own)
    return np.ascontiguousarray(x.T), SolveRecord(
        solver="dual newton",
        status=SolveStatus.OPTIMAL if converged else SolveStatus.LIMIT,
        iterations=iterations,
        dual_residual=dual,
        objective_gap=gap,
    )


class _Point(NamedTuple):
    """State at the multipliers tried last: x (k, c), slack (b,) and gradient (n,);
    multipliers and sums by row and child (r, c)."""

    x: np.ndarray
    slack: np.ndarray
    gradient: np.ndarray
    of_children: np.ndarray
    sums: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _rounds(
    problem: DualProblem, fill: np.ndarray, ease: np.ndarray, is_own: np.ndarray
) -> tuple[np.ndarray, int, bool, float, float]:
    """All rounds, from the centre `fill` (k, c): the last cells, the number of Newton's steps,
    whether they stay, the largest violation of stationarity, and a bound on the suboptimality.
    Where `is_own` (k, c) centre and ease come from a cell's own answers, in every round."""
    rows, parent, allowed = problem.rows, problem.parent, problem.allowed
    size = max(1.0, largest_of(rows.target), largest_of(parent))
    n = rows.target.size
    is_held = rows.give == 0.0
    give = np.where(is_held, SOFTNESS, rows.give)
    centre, slack = fill, np.minimum(np.maximum(np.zeros(rows.lower.size), rows.lower), rows.upper)
    y, held = np.zeros(n), np.zeros(n)
    gradient_at_end = TIGHT + 1e-15 * size
    still = max(STILL, 1e-14 * size)
    iterations, converged = 0, False
    gamma, least_gamma, accuracy = FIRST_GAMMA, LEAST_GAMMA, LOOSE
    dual = gap = np.inf
    for _ in range(ROUNDS):
        target = rows.target + np.where(is_held, SOFTNESS * held, 0.0)
        eases = np.where(is_own, ease, ease / gamma)
        one = Round(rows, parent, allowed, centre, eases, target, give, slack, 1.0 / gamma)
        at = _Point(
            np.empty_like(centre),
            np.empty_like(slack),
            np.empty(n),
            np.empty(rows.place.shape),
            np.empty(rows.place.shape),
        )
        y, steps, is_done, remainder = _maximum(one, at, y, accuracy)
        iterations += steps
        if not np.isfinite(y).all():
            break
        x = at.x.ravel()
        moved = np.where(is_own.ravel(), 0.0, np.abs(x - centre.ravel()))
        slope = moved / one.ease.ravel()
        miss = np.where(is_held, SOFTNESS * np.abs(y - held), 0.0)
        off_slack = np.abs(at.slack - slack)
        dual = max(largest_of(slope), largest_of(off_slack) * gamma)
        gap = pairwise_sum(slope * x) + pairwise_sum(np.abs(y) * miss)
        gap += pairwise_sum(off_slack * gamma * np.abs(at.slack))
        centre, slack, held = np.where(is_own, centre, at.x), at.slack, y
        largest = max(largest_of(moved), largest_of(off_slack))
        # A round that converged at the least gradient has reached it up to rounding errors: further
        # rounds would only draw other rounding errors.
        has_least = accuracy <= gradient_at_end or remainder <= still
        if is_done and has_least and largest <= still and largest_of(miss) <= still:
            converged = True
            break
        accuracy = max(min(LOOSE, RELATIVE * largest), gradient_at_end)
        if not is_done:
            if remainder <= LOOSE:
                # Small gamma make rounding errors of multipliers large ones of cells, and large
                # counts make them larger: no round below this one would come nearer.
                least_gamma = min(LARGEST_GAMMA, GAMMA_STEP * gamma)
            gamma = min(LARGEST_GAMMA, GAMMA_STEP * gamma)
        elif steps <= EASY_STEPS:
            gamma = max(least_gamma, gamma / GAMMA_STEP)
    return at.x, iterations, converged, dual, gap


@njit(cache=True, nogil=True, error_model="numpy")
def _maximum(
    one: Round, at: _Point, y: np.ndarray, tolerance: float
) -> tuple[np.ndarray, int, bool, float]:
    """The maximum of a round's dual from `y` (n,), or from no multipliers, whichever has the
    smaller gradient: multipliers, steps, whether it was reached, and the largest entry of the
    gradient. The last trial is left in `at`.

    The last round's multipliers would move the new centre at least as far as the old one: where
    that was far, no multipliers are nearer.
    """
    none = np.zeros_like(y)
    value = _set_cells(one, none, at)
    _set_gradient(one, none, at)
    if y.any():
        of_none = largest_of(at.gradient)
        value = _set_cells(one, y, at)
        _set_gradient(one, y, at)
        if of_none <= largest_of(at.gradient):
            y = none
            value = _set_cells(one, y, at)
            _set_gradient(one, y, at)
    is_stale = True
    remainder = before = earlier = np.inf
    for step in range(STEPS):
        remainder = largest_of(at.gradient)
        # One step alone may fail to halve it where a cell becomes zero or positive.
        is_stalled = 0.5 * earlier <= remainder <= STALLED
        if remainder <= tolerance or is_stalled:
            return y, step, True, remainder
        before, earlier = remainder, before
        movable = movable_cells(at.x, one.ease, one.parent.size > 0)
        diagonal = _diagonal(one, at)
        if is_stale:
            inverses = inverses_of(one.rows, movable, diagonal)
        direction, n = conjugate_gradients(one.rows, movable, diagonal, inverses, at.gradient)
        is_stale = n > STALE or one.rows.place.shape[1] == 1
        slope = np.dot(at.gradient, direction)
        length, moved = 1.0, y + direction
        found = _set_cells(one, moved, at)
        # Armijo's rule, which rounding errors must not keep from taking the last steps: they stem
        # from the sum's terms, which are far larger than the sum where counts are large.
        error = max(1e-12 * abs(value), 1e-15 * pairwise_sum(np.abs(y * one.target)))
        while found < value + 1e-4 * length * slope - error:
            length *= 0.5
            if length < 1e-9:
                return y, step, False, remainder
            moved = y + length * direction
            found = _set_cells(one, moved, at)
        y, value = moved, found
        _set_gradient(one, y, at)
    remainder = largest_of(at.gradient)
    return y, STEPS, remainder <= tolerance, remainder


@njit(cache=True, nogil=True, error_model="numpy")
def _set_cells(one: Round, y: np.ndarray, at: _Point) -> float:
    """The dual function at `y` (n,), whose cells and slacks are written to `at`."""
    rows, slack = one.rows, at.slack
    spread(rows, y, at.of_children)
    value = write_cells(one, at.of_children, at.x)
    centre, pull = one.slack_centre, y[rows.bounded]
    slack[:] = np.minimum(np.maximum(centre - pull * one.slack_ease, rows.lower), rows.upper)
    moved = slack - centre
    value += pairwise_sum(0.5 * (moved * moved) / one.slack_ease + pull * slack)
    return value + pairwise_sum(y * (one.target - 0.5 * one.give * y))


@njit(cache=True, nogil=True, error_model="numpy")
def _set_gradient(one: Round, y: np.ndarray, at: _Point) -> None:
    """Write the gradient at `y` (n,), whose cells and slacks `at` has."""
    rows, gradient = one.rows, at.gradient
    at.sums[:] = 0.0
    add_to_rows(rows, at.x, at.sums)
    gather(rows, at.sums, gradient)
    gradient[:] = one.target - one.give * y - gradient
    gradient[rows.bounded] += at.slack


@njit(cache=True, nogil=True, error_model="numpy")
def _diagonal(one: Round, at: _Point) -> np.ndarray:
    """Diagonal (n,) of Newton's matrix in addition to R H R': the give of multipliers and slacks
    between their bounds.
    """
    rows, diagonal = one.rows, one.give.copy()
    is_between = (rows.lower < at.slack) & (at.slack < rows.upper)
    diagonal[rows.bounded[is_between]] += one.slack_ease
    return diagonal


RAKING_CYCLES = 3
LEAST_ANSWER = 0.5
"""Least noisy answer in raking, in records; smaller ones count as this."""


def dual_problem(
    problem: SiblingProblem, quadratic: Quadratic, constraints: Constraints
) -> DualProblem:
    """A pass in the form for `dual_newton`."""
    c, k = problem.n_children, problem.cells.size
    precisions = quadratic.scale * quadratic.weights[quadratic.profile].T
    rows_of_cells = quadratic.labels - quadratic.starts[:-1, None]
    parts = np.split(quadratic.answers, quadratic.starts[1:-1], axis=1)
    asked = list(zip(rows_of_cells, parts, precisions, strict=True))
    blocks: list[_Block] = []
    allowed = np.ascontiguousarray(constraints.allowed.T)
    own, pull = np.zeros((k, c)), np.zeros((k, c))
    for row, answers, precision in asked:
        is_shared = np.bincount(row) > 1
        alone = np.flatnonzero(~is_shared[row])
        own[alone] += precision
        pull[alone] += (precision[:, None] * answers[:, row[alone]]).T
        blocks.append(_measured(numbered(is_shared)[row], answers[:, is_shared], precision))
    own *= allowed
    aim = np.divide(pull, own, out=np.zeros((k, c)), where=own > 0.0)
    for label in constraints.pin_rows:
        first, stop = int(label.min()), int(label.max()) + 1
        targets = constraints.targets[:, first:stop]
        counted = incidence(label - first, stop - first)
        blocks.append(_held(counted, constraints.group_of_child, targets, targets))
    lower, upper = constraints.lower, constraints.upper
    most = np.full(lower.shape[1], NO_BOUND)
    if problem.parent_counts is not None:
        most = np.bincount(problem.type_of_cell, problem.parent_counts, lower.shape[1])
    lower, upper = np.where(lower > 0.0, lower, -np.inf), np.where(upper >= most, np.inf, upper)
    counted = incidence(problem.type_of_cell, lower.shape[1])
    blocks.append(_held(counted, np.arange(c), lower, upper))
    for rows in problem.rows:
        # Each row scaled so that its largest weight, if any, is one.
        largest = abs(rows.matrix).max(axis=1).toarray().ravel()
        largest[largest == 0.0] = 1.0
        scaled = sparse.diags_array(1.0 / largest) @ rows.matrix
        bounds = rows.lower / largest, rows.upper / largest
        blocks.append(_held(scaled, rows.group_of_child, *bounds))
    margins = [(row, answers) for row, answers, _ in asked]
    totals = _totals(constraints, margins)
    fill = proportional_fill(problem.parent_counts, totals, allowed, margins)
    parent = constraints.parent if constraints.has_parent else np.zeros(0)
    return DualProblem(_stacked(blocks), parent, allowed, fill, own, aim, quadratic.scale)


def _totals(
    constraints: Constraints, margins: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The children's totals (c,): held ones, else from the query with the fewest answers."""
    c = constraints.allowed.shape[0]
    if n_own_pins(constraints):
        label = constraints.pin_rows[0]
        held = constraints.targets[:, label.min() : label.max() + 1].sum(axis=1)
        return np.asarray(held[constraints.group_of_child])
    if not margins:
        return np.ones(c)
    return np.asarray(min((answers for _, answers in margins), key=np.size).sum(axis=1))


class _Block(NamedTuple):
    """Rows of cells, for single children or for groups of them, and their multipliers.

    matrix : (R, k) the cells' weights. group_of_child : (c,) -1 for no group. is_in : (g, R)
    whether a row counts a group. multipliers : their target, give, lower and upper, each (g, R).
    """

    matrix: sparse.sparray
    group_of_child: np.ndarray
    is_in: np.ndarray
    multipliers: tuple[np.ndarray | float, ...]


def _measured(label: np.ndarray, answers: np.ndarray, precision: np.ndarray) -> _Block:
    """Rows of a query: each cell's (k,) or -1, noisy answers (c, R), precisions (c,)."""
    is_in = np.broadcast_to(precision[:, None] > 0.0, answers.shape)
    give = 1.0 / np.where(precision > 0.0, precision, 1.0)[:, None]
    counted, children = incidence(label, answers.shape[1]), np.arange(len(answers))
    return _Block(counted, children, is_in, (answers, give, -np.inf, np.inf))


def _held(
    matrix: sparse.sparray, group_of_child: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> _Block:
    """Rows between bounds (g, R); equal bounds are held, and a pair without effect is left out."""
    upper = np.where(upper >= NO_BOUND, np.inf, upper)
    is_in = np.isfinite(lower) | np.isfinite(upper)
    is_exact = lower == upper
    target = np.where(is_exact, lower, 0.0)
    lower, upper = np.where(is_exact, -np.inf, lower), np.where(is_exact, np.inf, upper)
    return _Block(matrix, group_of_child, is_in, (target, 0.0, lower, upper))


def _stacked(blocks: Sequence[_Block]) -> Rows:
    """All rows, by the cells that they count; rows without multipliers are left out."""
    places, multipliers, n = [], [], 0
    for block in blocks:
        number = np.full(block.is_in.shape, -1, dtype=np.int64)
        number[block.is_in] = n + np.arange(np.count_nonzero(block.is_in))
        n = max(n, int(number.max(initial=-1)) + 1)
        group = block.group_of_child[:, None]
        places.append(np.where(group >= 0, number[group[:, 0]], -1).T)
        of_rows = [np.broadcast_to(part, number.shape)[block.is_in] for part in block.multipliers]
        multipliers.append(np.array(of_rows))
    place = np.vstack(places)
    is_used = (place >= 0).any(axis=1)
    matrix = sparse.vstack([block.matrix for block in blocks]).tocsr()[is_used].tocsc()
    target, give, lower, upper = np.hstack(multipliers)
    bounded = np.flatnonzero((give == 0.0) & (np.isfinite(lower) | np.isfinite(upper)))
    return Rows(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        matrix.data.astype(np.float64),
        np.ascontiguousarray(place[is_used]),
        target,
        give,
        bounded,
        lower[bounded],
        upper[bounded],
    )


def proportional_fill(
    parent: np.ndarray | None,
    totals: np.ndarray,
    allowed: np.ndarray,
    margins: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The histograms (k, c) that select one of many optima; see the module's docstring.

    parent : (k,) or None. totals : (c,) of the children. allowed : (k, c). margins : of every
    query, the row of each cell (k,) and the noisy answers (c, R).
    """
    totals = np.maximum(totals.astype(np.float64), LEAST_ANSWER)
    fill = allowed * totals
    if parent is not None:
        sums = fill.sum(axis=1, keepdims=True)
        return fill * (parent[:, None] / np.where(sums > 0.0, sums, 1.0))
    fill /= np.maximum(fill.sum(axis=0), 1e-300) / totals
    for _ in range(RAKING_CYCLES):
        for label, answers in margins:
            sums, wanted = sum_rows(fill.T, label), np.maximum(answers, LEAST_ANSWER)
            factor = np.divide(wanted, sums, out=np.ones(sums.shape), where=sums > 0.0)
            fill *= factor.T[label]
        fill *= totals / np.maximum(fill.sum(axis=0), 1e-300)
    return fill
