"""Multi-pass constrained least squares for the children of one parent.

Problem (7.5) of [TopDown2022]: pass k minimises the precision-weighted squared distance to
its own noisy answers over non-negative histograms that meet the invariants and add up to the
parent, with the margins of earlier passes pinned. Problem (7.6) then finds the smallest tolerance
within which the pinned margins can be met exactly. Later passes are pinned to its minimiser, which
meets every constraint exactly, so the tolerance is spent once and does not grow.

An earlier pass needs only the classes of cells that its own queries, the pins and the bounded types
distinguish: a histogram of classes always lifts to one of cells (see `SiblingProblem.coarsened`).

Three solvers each take the passes that it alone solves fast:

- `active_set`, from the guess of a few iterations of `admm`: passes of at most 2,500 cells that a
  query distinguishes, or of 300, and all that weigh inverse covariances. Each child has a matrix of
  cells by cells, and its solution is exact. Where noise is large, its guesses may cycle.
- `dual_newton`: passes of more cells, passes with linear rows, and passes at which the active set
  cycles. It has a multiplier for each row and child, and no matrix of cells by cells.
- HiGHS: passes that neither has solved, and the tolerance of problem (7.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from ...census.queries import MarginalQuery, incidence
from ...solvers.highs import HighsResult, LinearProgram, SolveStatus
from . import active_set, admm, dual_newton
from .active_set import n_own_pins, sizes
from .dual_newton import dual_problem
from .exact_weights import ExactWeights
from .problem import (
    NO_BOUND,
    Measurements,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    SolveRecord,
    add_constraints,
    is_refined,
    rows_by_child,
    rows_on_support,
    sum_rows,
)
from .quadratic import Constraints, InverseCovariance, Quadratic, factor, is_wide, squared_distance

TOLERANCE = 1e-6
"""Largest distance, in records, between an estimate and the constraints it must meet."""
EXACT = 1e-9
"""Violation of a constraint, in records, that counts as zero."""
ROUNDING = 1e-12
"""Allowance for rounding error, relative to the largest count."""
ADMM_ITERATIONS, ACTIVE_SET_ITERATIONS = 30, 30
NEARLY = 1e-6
"""Suboptimality, relative to the objective (plus one), accepted if iterations run out."""
HIGHS_ITERATIONS = 5000
"""Most iterations of HiGHS's quadratic solver for a pass with linear rows, where another method is
left: on some of them it makes no progress.
"""


@dataclass(frozen=True)
class LeastSquaresResult:
    """`x` of shape `(c, k)`, non-negative reals; None if a pass had no solution.

    is_wide : of the last pass; see `PassProblem.is_wide`.
    """

    x: np.ndarray | None
    passes: tuple[SolveRecord, ...] = ()
    is_wide: bool = False


def solve_passes(
    problem: SiblingProblem,
    measurements: Measurements,
    passes: Sequence[Sequence[str]],
    weights: ExactWeights | None = None,
) -> LeastSquaresResult:
    """Run the passes in order; each is a sequence of names of measured queries.

    Queries without measurements are ignored; a pass without any is skipped. With `weights`, the
    passes minimise the distance to its estimates in the metric of their inverse covariances, and
    the answers only set the pins of later passes. Linear rows distinguish cells that queries do
    not, so no such metric fits the classes of early passes: with rows, answers are weighed.
    """
    weights = None if problem.rows else weights
    records: list[SolveRecord] = []
    pins = Pins()
    measured = [[measurements[name] for name in names if name in measurements] for names in passes]
    measured = [asked for asked in measured if asked]
    if not measured:
        return LeastSquaresResult(np.zeros((problem.n_children, problem.cells.size)))
    *early, last = measured
    queries: list[MarginalQuery] = []
    for asked in early:
        labels = [rows_on_support(m.query, problem.cells) for m in asked]
        queries += [m.query for m in asked]
        coarse, _, first = problem.coarsened([*labels, *pins.labels])
        x, record = PassProblem.build(
            coarse,
            asked,
            [label[first] for label in labels],
            pins.at(first),
            None if weights is None else weights.inverse_covariance(problem.cells[first], queries),
        ).solve_exactly()
        records.append(record)
        if x is None:
            return LeastSquaresResult(None, tuple(records))
        pins = pins.with_answers(labels, x, first).finest()
    labels = [rows_on_support(m.query, problem.cells) for m in last]
    covariance = None if weights is None else weights.inverse_covariance(problem.cells)
    of_cells = PassProblem.build(problem, last, labels, pins, covariance)
    x, record = of_cells.solve()
    return LeastSquaresResult(x, (*records, record), of_cells.is_wide)


def profiles(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split precisions `(n_queries, c)` into weights, profiles and scales; see `PassProblem`.

    Siblings whose precisions are proportional share one profile. A child without any measurement
    gets weights of zero and its siblings' smallest scale.
    """
    scale = precision.max(axis=0)
    measured = scale > 0.0
    scale = np.where(measured, scale, scale[measured].min() if measured.any() else 1.0)
    weights = (precision / scale).T
    scale = scale / scale.max()
    if np.abs(weights - weights[0]).max() <= 1e-12:
        return weights[:1].copy(), np.zeros(len(weights), dtype=np.int64), scale
    weights, profile = np.unique(weights.round(12), axis=0, return_inverse=True)
    return weights, profile.reshape(-1).astype(np.int64), scale


@dataclass(frozen=True)
class PassProblem:
    """One pass in matrix form.

    quadratic : the objective, of the rows that meet the support; the precision of query q at child
        i is scale[i] * weights[profile[i], q], up to a common factor. Without the matrices of rows
        by rows where they are too large, or there are linear rows.
    constraints : whose pins are the margins of earlier passes, of which each implies the total,
        else the groups' totals.
    is_pinned : whether the pins are margins of earlier passes.
    is_wide : whether there are too many cells for matrices of cells by cells.
    """

    problem: SiblingProblem
    quadratic: Quadratic
    constraints: Constraints
    is_pinned: bool
    is_wide: bool

    @classmethod
    def build(
        cls,
        problem: SiblingProblem,
        asked: Sequence[QueryMeasurement],
        labels: Sequence[np.ndarray],
        pins: Pins,
        covariance: InverseCovariance | None = None,
    ) -> PassProblem:
        """From measurements and the dense row of each cell in each of them; with `covariance`,
        the objective is the distance to its centre.

        Answers that held ones determine add no information, and would join cells that these
        separate: they are left out.
        """
        c, k = problem.n_children, problem.cells.size
        constraints = _constraints(problem, pins)
        held = constraints.pin_rows if n_own_pins(constraints) else ()
        open_queries = [
            (one, label)
            for one, label in zip(asked, labels, strict=True)
            if not any(is_refined(label, own) for own in held)
        ]
        if open_queries:
            asked, labels = zip(*open_queries, strict=True)
        starts = np.cumsum([0, *(int(label.max()) + 1 for label in labels)])
        answers = np.empty((c, starts[-1]))
        columns = np.empty((len(asked), k), dtype=np.int64)
        for q, (measurement, label) in enumerate(zip(asked, labels, strict=True)):
            columns[q] = label + starts[q]
            answers[:, columns[q]] = measurement.answers(problem.cells)
        weights, profile, scale = profiles(np.array([m.precision for m in asked], dtype=float))
        if covariance is not None:
            scale = covariance.scales()
        wide = covariance is None and is_wide(k, int(np.diff(starts).max(initial=0)))
        n_factored = 0 if wide or problem.rows else len(asked)
        factored = np.ascontiguousarray(weights[:, :n_factored])
        quadratic = Quadratic(
            *(answers, columns, starts, weights, profile, scale),
            *factor(columns[:n_factored], starts[: n_factored + 1], factored),
            covariance or InverseCovariance.none(),
        )
        return cls(problem, quadratic, constraints, bool(pins.labels), wide)

    def objective(self, x: np.ndarray) -> float:
        """Half the precision-weighted squared distance of `x` (c, k) to the noisy answers."""
        return squared_distance(self.quadratic, x)

    def solve(self, *, is_polished: bool = False) -> tuple[np.ndarray | None, SolveRecord]:
        """The active-set method, then Newton's method on the rows' multipliers unless inverse
        covariances are given, which it does not support. Last HiGHS: its quadratic solver, or
        should that give up, the feasible point nearest to the others' last.

        With many cells or linear rows, Newton's method comes first; see `is_wide`.
        """
        guess, spent = np.zeros(self.shape), 0
        is_small = not (self.problem.rows or self.is_wide)
        if is_small:
            # Of a wide pass its matrices of rows by rows would be too large.
            form = self.quadratic, self.constraints
            guess, penalty = admm.first_point(*form)
            guess, spent = admm.approach(*form, guess, penalty, ADMM_ITERATIONS)
            x, record = active_set.solve(
                *form, guess, max_iterations=ACTIVE_SET_ITERATIONS, is_polished=is_polished
            )
            spent += record.iterations
            if self._is_accepted(record):
                return x, replace(record, iterations=spent)
        if not self.quadratic.covariance.rest.size:
            x, record = self.solve_by_rows()
            spent += record.iterations
            if self._is_met(record) and record.objective_gap <= NEARLY:
                return x, replace(record, iterations=spent)
            if not (is_small or self.problem.rows):
                return None, replace(record, iterations=spent)
            guess = guess if is_small else np.nan_to_num(x)
        found, record = self._solve_by_highs(guess)
        spent += record.iterations
        if found is not None and is_small:
            x, certified = active_set.solve(*form, found, max_iterations=ACTIVE_SET_ITERATIONS)
            spent += certified.iterations
            if self._is_accepted(certified):
                return x, replace(certified, solver="highs", iterations=spent)
        return found, replace(record, iterations=spent)

    def solve_exactly(self) -> tuple[np.ndarray | None, SolveRecord]:
        """Like `solve`, polished, and if that is not exact the minimiser of problem (7.6)."""
        x, record = self.solve(is_polished=True)
        if x is not None and not self.is_exact(x):
            tau, x = self.secondary(x)
            record = replace(record, tau=tau)
        return x, record

    def solve_by_rows(self) -> tuple[np.ndarray, SolveRecord]:
        """By `dual_newton`, at a cost of rows and positive cells, not of cells squared."""
        x, record = dual_newton.solve(dual_problem(self.problem, self.quadratic, self.constraints))
        _, slope_size = sizes(self.quadratic, self.constraints, x)
        return x, replace(
            record,
            primal_residual=self.violation(x),
            dual_residual=record.dual_residual / slope_size,
            objective_gap=record.objective_gap / (1.0 + self.objective(x)),
        )

    def _solve_by_highs(self, guess: np.ndarray) -> tuple[np.ndarray | None, SolveRecord]:
        """By HiGHS: the quadratic program, or should its solver give up, the nearest point in the
        L1 norm to `guess` (c, k). Without multipliers nothing is certified.
        """
        found = self.solve_with_highs(HIGHS_ITERATIONS if self.problem.rows else None)
        iterations = found.iterations
        if found.x is None:
            found = self._nearest(guess)
            iterations += found.iterations
        x, primal, certified = None, np.inf, np.inf
        if found.x is not None:
            x = np.maximum(found.x[: guess.size].reshape(self.shape), 0.0)
            primal, certified = self.violation(x), np.nan
        return x, SolveRecord(
            solver="highs",
            status=found.status,
            iterations=iterations,
            primal_residual=primal,
            dual_residual=certified,
            objective_gap=certified,
        )

    def _nearest(self, target: np.ndarray) -> HighsResult:
        """Minimises the sum of |x - target| subject to every constraint of the pass."""
        c, k = self.shape
        n = c * k
        cell = np.arange(n).reshape(c, k)
        program = LinearProgram(3 * n)
        one = sparse.eye_array(n)
        program.add_matrix(sparse.hstack([one, -one, one]), target.ravel())
        self._add_constraints(program, cell)
        return program.solve(np.repeat([0.0, 1.0, 1.0], n))

    @cached_property
    def _size(self) -> float:
        """Largest count in constraints or answers, in records."""
        counts = self.problem.parent_counts
        largest = (
            np.abs(self.quadratic.answers).max(initial=1.0)
            if counts is None
            else counts.max(initial=1)
        )
        return float(largest)

    def _is_met(self, record: SolveRecord) -> bool:
        return record.primal_residual <= TOLERANCE + ROUNDING * self._size

    def _is_accepted(self, record: SolveRecord) -> bool:
        return record.status is SolveStatus.OPTIMAL and self._is_met(record)

    def is_exact(self, x: np.ndarray) -> bool:
        """Whether `x` violates the constraints by no more than rounding error."""
        return self.violation(x) <= EXACT + ROUNDING * self._size

    def violation(self, x: np.ndarray) -> float:
        """Largest violation of a constraint by `x` (c, k), in records."""
        problem = self.problem
        largest = max(0.0, float(-x.min(initial=0.0)))
        if problem.parent_counts is not None:
            sums = x.sum(axis=0) - problem.parent_counts
            largest = max(largest, float(np.abs(sums).max(initial=0.0)))
        of_type = sum_rows(x, problem.type_of_cell, problem.lower.shape[1])
        largest = max(largest, float((of_type - problem.upper).max(initial=0.0)))
        largest = max(largest, float((problem.lower - of_type).max(initial=0.0)))
        targets = self.constraints.targets
        answers = np.zeros(targets.shape)
        for rows in self.constraints.pin_rows:
            held = sum_rows(x, rows, targets.shape[1])
            np.add.at(answers, self.constraints.group_of_child, held)
        for rows in problem.rows:
            sums = rows.sums(x)
            largest = max(largest, float((rows.lower - sums).max(initial=0.0)))
            largest = max(largest, float((sums - rows.upper).max(initial=0.0)))
        return max(largest, float(np.abs(answers - targets).max(initial=0.0)))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of children and of cells."""
        return self.problem.n_children, self.problem.cells.size

    def solve_with_highs(self, iteration_limit: int | None = None) -> HighsResult:
        """The same quadratic program with query answers as variables: sparse and diagonal."""
        program, cell, cost, diagonal = self.as_program()
        lower = np.where(np.arange(program.n_columns) < cell.size, 0.0, -np.inf)
        return program.solve(cost, lower, diagonal=diagonal, iteration_limit=iteration_limit)

    def as_program(self) -> tuple[LinearProgram, np.ndarray, np.ndarray, np.ndarray]:
        """Constraints, columns (c, k) of the cells, linear and diagonal quadratic costs.

        The columns after the cells are the children's answers, the variables of the quadratic.
        """
        c, k = self.shape
        cell, linear = np.arange(c * k).reshape(c, k), np.zeros(c * k)
        form, covariance = self.quadratic, self.quadratic.covariance
        rows, answers = self._counted, form.answers
        precision = form.scale[:, None] * np.repeat(
            form.weights[form.profile], np.diff(form.starts), axis=1
        )
        if covariance.rest.size:
            # L'x in place of answers, where P = L L'.
            roots = [np.linalg.cholesky(covariance.matrix(i)).T for i in range(c)]
            rows, linear = sparse.block_diag(roots), -covariance.pull.ravel()
            answers = (rows @ covariance.centre.ravel()).reshape(c, k)
            precision = np.ones((c, k))
        program = LinearProgram(c * k + answers.size)
        program.add_matrix(
            sparse.hstack([rows, -sparse.eye_array(answers.size)]), np.zeros(answers.size)
        )
        self._add_constraints(program, cell)
        cost = np.concatenate([linear, -(precision * answers).ravel()])
        return program, cell, cost, np.concatenate([np.zeros(c * k), precision.ravel()])

    @cached_property
    def _counted(self) -> sparse.sparray:
        """0/1 matrix (c n, c k) from the children's cells to their answers, side by side."""
        return _counting_matrix(self.quadratic.labels, self.quadratic.answers)

    def _add_constraints(self, program: LinearProgram, cell: np.ndarray) -> None:
        """Every constraint of the pass on the columns `cell` of shape (c, k)."""
        add_constraints(program, self.problem, cell)
        if self.is_pinned:
            pin_rows, targets = self.constraints.pin_rows, self.constraints.targets
            program.add_matrix(_counting_matrix(pin_rows, targets), targets.ravel())

    def secondary(self, x: np.ndarray) -> tuple[float, np.ndarray | None]:
        """Problem (7.6): the smallest tolerance, and a feasible point that attains it.

        Minimises tau over tau and the children's histograms y subject to |B (y - x)| <= tau for
        the pass's queries B, and every constraint of the pass.
        """
        c, k = x.shape
        cell = np.arange(c * k).reshape(c, k)
        program = LinearProgram(c * k + 1)
        answers = self._counted @ x.ravel()
        tau = np.ones((answers.size, 1))
        for sign in (1.0, -1.0):
            within = sparse.hstack([sign * self._counted, -tau])
            program.add_matrix(within, np.full(answers.size, -np.inf), sign * answers)
        self._add_constraints(program, cell)
        result = program.solve(np.append(np.zeros(c * k), 1.0))
        if result.x is None:
            return np.inf, None
        return float(result.x[-1]), np.maximum(result.x[:-1], 0.0).reshape(c, k)


def _counting_matrix(labels: np.ndarray, answers: np.ndarray) -> sparse.csr_array:
    """0/1 matrix (c n, c k) from the children's cells to the rows of `answers` (c, n) in which the
    labellings (., k) count them, side by side."""
    c, n = answers.shape
    return rows_by_child(sum(incidence(label, n) for label in labels), c)


def _constraints(problem: SiblingProblem, pins: Pins) -> Constraints:
    """Constraints of a pass except linear rows, in the form for compiled code."""
    c, k = problem.n_children, problem.cells.size
    group_of_child = np.arange(c)
    if pins.labels:
        widths = [target.shape[1] for target in pins.targets]
        offset = np.cumsum([0, *widths[:-1]])
        pin_rows = np.array(pins.labels, dtype=np.int64) + offset[:, None]
        targets = np.hstack(pins.targets)
    elif problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        pin_rows = np.zeros((1, k), dtype=np.int64)
        group_of_child = group.astype(np.int64)
        targets = totals[:, None].astype(np.float64)
    else:
        pin_rows, targets = np.zeros((0, k), dtype=np.int64), np.zeros((0, 0))
    counts, lower, upper = problem.parent_counts, problem.lower, problem.upper
    type_starts = np.searchsorted(problem.type_of_cell, np.arange(lower.shape[1] + 1))
    # Cells under no sum that must be zero need not be zero.
    allowed = (upper > 0)[:, problem.type_of_cell]
    if counts is not None:
        allowed = allowed & (counts > 0)
    for rows in pin_rows:
        allowed = allowed & (targets[group_of_child] > EXACT)[:, rows]
    if any(is_refined(problem.type_of_cell, rows) for rows in pin_rows):
        # Earlier passes met the bounds, and their margins imply them.
        lower, upper = np.zeros_like(lower), np.full_like(upper, NO_BOUND)
    return Constraints(
        np.zeros(k) if counts is None else counts.astype(np.float64),
        counts is not None,
        pin_rows,
        group_of_child,
        np.ascontiguousarray(targets),
        type_starts.astype(np.int64),
        lower.astype(np.float64, order="C"),
        upper.astype(np.float64, order="C"),
        np.ascontiguousarray(allowed),
    )
