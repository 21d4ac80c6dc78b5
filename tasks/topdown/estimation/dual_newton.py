"""Least squares of siblings on many cells, by Newton's method on the multipliers of rows.

A pass of the least squares (`least_squares.PassProblem`), on k cells and c children, is

    minimise  sum over measured rows of 1/2 w (s - m)^2   over x >= 0 with
    sum_i x[i, j] = X[j],    s = h for rows that are held,    l <= s <= u for rows between bounds,

where s is a row's sum: of cells of one child, or of a group of children. There are far fewer rows
than cells, so that nothing here is as large as cells x cells. And where no query tells all cells
apart there are many optima, of which the one near a given histogram f is taken (`fill`), so that
queries that were not asked come out as there.

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
children's own blocks and by one for what these miss: where all children's multipliers move alike,
no cell does, since their sums are fixed, and of the matrix there is 1 / w alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dual_kernels import (
    Inverses,
    Movable,
    Rows,
    add_block,
    add_diagonal,
    add_of_rows,
    add_to_rows,
    cells_at,
    conjugate_gradients,
    counted_rows,
    movable_cells,
)
from .wide import BLOCK_ENTRIES

LARGEST_GAMMA, FIRST_GAMMA, LEAST_GAMMA = 1.0, 0.1, 1e-3
"""Of the rounds, relative to the precision of a row: it falls after rounds that were easy, and
rises after one that was not solved."""
GAMMA_STEP, EASY_STEPS = 3.0, 8
"""The factor by which it falls or rises, and most steps of Newton's method in an easy round."""
ROUNDS, STEPS, SYSTEM_ITERATIONS = 100, 40, 1000
"""Most rounds, Newton's steps in one round, and iterations for one linear system."""
SOFTNESS = 1e-4
"""What a multiplier of a row that must hold gives way in a round, relative to 1 / w."""
LOOSE, RELATIVE, TIGHT = 1e-3, 1e-1, 1e-10
"""Largest gradient, in records, at which a round ends: of the first, relative to the last round's
move of a cell, and the least."""
STALLED = 1e-7
"""Largest gradient, in records, that rounding errors may leave where two steps do not halve it."""
STILL = 1e-9
"""Largest move of a cell or a slack, in records, at which the centre stays."""
LEAST_FILL = 1e-2
"""The least fill by which a cell's distance is weighed, relative to the mean."""
FORCING = 1e-1
"""Largest remainder of a linear system, relative to its right-hand side."""
STALE = 40
"""Iterations of a linear system after which its preconditioner is made anew."""


@dataclass(frozen=True, eq=False)
class DualProblem:
    """A pass as this module takes it; cells come first, children second.

    parent : (k,) X, or None at the root. allowed, fill : (k, c) where x may be positive, and f.
    scale : (c,) the children's precisions, relative to the largest.
    """

    rows: Rows
    parent: np.ndarray | None
    allowed: np.ndarray
    fill: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True, eq=False)
class DualSolution:
    """Cells x (c, k) and their certificate.

    iterations : Newton's steps. primal : largest distance of a row from what it must hold, in
    records. dual : largest violation of stationarity, relative to the largest slope. gap : bound
    on the suboptimality, in units of the objective.
    """

    x: np.ndarray
    objective: float
    iterations: int
    converged: bool
    primal: float
    dual: float
    gap: float


def solve(problem: DualProblem) -> DualSolution:
    """Solve the problem of the module's docstring; stops by iterations, never by clock."""
    rows = problem.rows
    is_held = rows.give == 0.0
    give = np.where(is_held, SOFTNESS, rows.give)
    fill = np.where(problem.allowed, problem.fill, 0.0)
    least = LEAST_FILL * float(fill.sum()) / max(int(problem.allowed.sum()), 1)
    ease = np.maximum(fill, max(least, 1e-9)) / problem.scale
    slope_size = _largest_slope(problem)
    centre, slack = fill, np.clip(np.zeros(rows.bounded.size), rows.lower, rows.upper)
    y = held = np.zeros(rows.target.size)
    size = float(np.abs(rows.target).max(initial=1.0))
    if problem.parent is not None:
        size = max(size, float(problem.parent.max(initial=1.0)))
    gradient_at_end = TIGHT + 1e-15 * size
    still = max(STILL, 1e-14 * size)
    iterations, converged = 0, False
    gamma, least_gamma, accuracy = FIRST_GAMMA, LEAST_GAMMA, LOOSE
    primal = dual = gap = np.inf
    for _ in range(ROUNDS):
        target = rows.target + np.where(is_held, SOFTNESS * held, 0.0)
        one = _Round(problem, centre, ease / gamma, target, give, slack, 1.0 / gamma)
        y, steps, is_done = one.solve(y, accuracy)
        iterations += steps
        if not np.isfinite(y).all():
            break
        moved = one.x - centre
        slope = np.abs(moved) / one.ease
        miss = np.where(is_held, SOFTNESS * np.abs(y - held), 0.0)
        off_slack = np.abs(one.slack - slack)
        primal = float(max(miss.max(initial=0.0), one.remainder))
        dual = float(max(slope.max(initial=0.0), off_slack.max(initial=0.0) * gamma) / slope_size)
        gap = float((slope * one.x).sum() + (np.abs(y) * miss).sum())
        gap += float((off_slack * gamma * np.abs(one.slack)).sum())
        centre, slack, held = one.x, one.slack, y
        largest = float(max(np.abs(moved).max(initial=0.0), off_slack.max(initial=0.0)))
        # A round that was asked for the least gradient and is done has it, or what rounding errors
        # leave of it: further rounds would only draw other rounding errors.
        has_least = accuracy <= gradient_at_end or one.remainder <= still
        if is_done and has_least and largest <= still >= miss.max(initial=0.0):
            converged = True
            break
        accuracy = max(min(LOOSE, RELATIVE * largest), gradient_at_end)
        if not is_done:
            if one.remainder <= LOOSE:
                # Small gamma make rounding errors of multipliers large ones of cells, and large
                # counts make them larger: no round below this one would come nearer.
                least_gamma = min(LARGEST_GAMMA, GAMMA_STEP * gamma)
            gamma = min(LARGEST_GAMMA, GAMMA_STEP * gamma)
        elif steps <= EASY_STEPS:
            gamma = max(least_gamma, gamma / GAMMA_STEP)
    objective = _objective(problem, centre)
    x = np.ascontiguousarray(centre.T)
    return DualSolution(x, objective, iterations, converged, primal, dual, gap)


def _objective(problem: DualProblem, x: np.ndarray) -> float:
    """Half the weighted squared distance of the measured rows to the noisy answers, at x (k, c)."""
    rows = problem.rows
    sums = np.zeros(rows.place.shape)
    add_to_rows(rows, x, sums)
    measured = rows.give > 0.0
    off = (rows.gathered(sums) - rows.target)[measured]
    return float(0.5 * (off * off / rows.give[measured]).sum())


def _largest_slope(problem: DualProblem) -> float:
    """Largest slope of the objective at zero, over the cells."""
    rows = problem.rows
    pull = np.divide(rows.target, rows.give, out=np.zeros(rows.give.size), where=rows.give > 0.0)
    slope = np.zeros(problem.fill.shape)
    add_of_rows(rows, rows.of_children(pull), slope)
    return max(float(np.abs(slope).max(initial=0.0)), 1e-300)


class _Round:
    """A round's dual function, and Newton's steps on it. `x` (k, c), `slack` and `remainder`, the
    largest entry of the gradient, are those of the last multipliers."""

    def __init__(
        self,
        problem: DualProblem,
        centre: np.ndarray,
        ease: np.ndarray,
        target: np.ndarray,
        give: np.ndarray,
        slack_centre: np.ndarray,
        slack_ease: float,
    ) -> None:
        self.rows, self.allowed = problem.rows, problem.allowed
        self.centre, self.ease, self.target, self.give = centre, ease, target, give
        self.slack_centre, self.slack_ease = slack_centre, slack_ease
        self.parent = np.zeros(0) if problem.parent is None else problem.parent.astype(np.float64)
        self.sums = np.empty(self.rows.place.shape)
        self.x, self.slack, self.remainder = centre, slack_centre, np.inf
        self._inverses: Inverses | None = None

    def solve(self, y: np.ndarray, tolerance: float) -> tuple[np.ndarray, int, bool]:
        """The maximum of the dual from `y` (n,), or from no multipliers, whichever has the smaller
        gradient: multipliers, steps, and whether it was reached.

        The last round's multipliers would move the new centre as far again as they have moved the
        old one, or farther: where that was far, none are nearer.
        """
        none = np.zeros_like(y)
        found = self._at(none)
        if y.any():
            at_none, found = found, self._at(y)
            if np.abs(at_none[1]).max(initial=0.0) <= np.abs(found[1]).max(initial=0.0):
                y, found = none, self._at(none)
        value, gradient = found
        before = earlier = np.inf
        for step in range(STEPS):
            self.remainder = float(np.abs(gradient).max(initial=0.0))
            # One step alone may fail to halve it where a cell becomes zero or positive.
            is_stalled = 0.5 * earlier <= self.remainder <= STALLED
            if self.remainder <= tolerance or is_stalled:
                return y, step, True
            before, earlier = self.remainder, before
            direction = self._newton(gradient)
            slope = float(gradient @ direction)
            length, found = 1.0, self._at(y + direction)
            # Armijo's rule, which rounding errors must not keep from taking the last steps: they
            # are those of the sum's terms, which are far larger than the sum where counts are.
            error = max(1e-12 * abs(value), 1e-15 * float(np.abs(y * self.target).sum()))
            while found[0] < value + 1e-4 * length * slope - error:
                length *= 0.5
                if length < 1e-9:
                    return y, step, False
                found = self._at(y + length * direction)
            y = y + length * direction
            value, gradient = found
        self.remainder = float(np.abs(gradient).max(initial=0.0))
        return y, STEPS, self.remainder <= tolerance

    def _at(self, y: np.ndarray) -> tuple[float, np.ndarray]:
        """The dual function at `y` (n,), and its gradient."""
        rows = self.rows
        self.x = np.empty_like(self.centre)
        value = cells_at(
            rows,
            rows.of_children(y),
            self.centre,
            self.ease,
            self.allowed,
            self.parent,
            self.x,
            self.sums,
        )
        of_slack = y[rows.bounded]
        moved = self.slack_centre - of_slack * self.slack_ease
        self.slack = np.clip(moved, rows.lower, rows.upper)
        distance = (self.slack - self.slack_centre) ** 2
        value += float((0.5 * distance / self.slack_ease + of_slack * self.slack).sum())
        value += float((y * (self.target - 0.5 * self.give * y)).sum())
        gradient = self.target - self.give * y - rows.gathered(self.sums)
        gradient[rows.bounded] += self.slack
        return value, gradient

    def _newton(self, gradient: np.ndarray) -> np.ndarray:
        """A step (n,) of Newton's method, to within FORCING."""
        rows = self.rows
        movable = movable_cells(self.x, self.ease, self.parent.size > 0)
        diagonal = self.give.copy()
        inside = (self.slack > rows.lower) & (self.slack < rows.upper)
        diagonal[rows.bounded] += np.where(inside, self.slack_ease, 0.0)
        if self._inverses is None:
            self._inverses = _inverses(rows, movable, diagonal)
        step, n = conjugate_gradients(
            rows,
            movable,
            diagonal,
            self._inverses,
            gradient,
            FORCING,
            SYSTEM_ITERATIONS,
            movable.is_dense,
        )
        if n > STALE or rows.place.shape[1] == 1:
            self._inverses = None
        return step


def _inverses(rows: Rows, movable: Movable, diagonal: np.ndarray) -> Inverses:
    """The preconditioner of R H R' + diagonal; without blocks where these would be too large."""
    n_rows, c = rows.place.shape
    common = np.zeros((0, c), dtype=np.int64)
    if movable.is_shared:
        common = rows.place[(rows.place >= 0).all(axis=1)]
    cell, h = movable.cell, movable.h
    order = np.argsort(movable.child, kind="stable")
    bounds = np.searchsorted(movable.child[order], np.arange(c + 1))
    own = [order[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    used = [
        np.flatnonzero(counted_rows(rows, cell[mine]) & (place >= 0))
        for mine, place in zip(own, rows.place.T, strict=True)
    ]
    width = max((rows_used.size for rows_used in used), default=0)
    alone = np.ones(diagonal.size, dtype=bool)
    full = diagonal.copy()
    if c * width * width > BLOCK_ENTRIES:
        add_diagonal(rows, cell, movable.child, h, full)
        width = 0
    blocks, places = np.zeros((c, width, width)), np.full((c, width), -1)
    for i, (mine, rows_used) in enumerate(zip(own, used, strict=True)):
        if not width or not rows_used.size:
            continue
        number = np.full(n_rows, -1, dtype=np.int64)
        number[rows_used] = np.arange(rows_used.size)
        matrix = np.zeros((rows_used.size, rows_used.size))
        add_block(rows, cell[mine], h[mine], number, matrix)
        place = rows.place[rows_used, i]
        matrix[np.diag_indices(place.size)] += diagonal[place]
        blocks[i, : place.size, : place.size] = np.linalg.inv(matrix)
        places[i, : place.size] = place
        alone[place] = False
    return Inverses(
        blocks,
        places,
        np.where(alone, 1.0 / full, 0.0),
        common,
        1.0 / diagonal[common].sum(axis=1),
    )
