"""Multi-pass constrained least squares for the children of one parent.

Problem (7.5) of the TopDown paper: pass k minimises the precision-weighted squared distance to
its own noisy answers over non-negative histograms that meet the invariants and add up to the
parent, with the margins of earlier passes pinned. Problem (7.6) then finds the smallest tolerance
within which the pinned margins can be met exactly. Its minimiser, which meets every constraint
exactly, is what later passes are pinned to, so the tolerance is spent once and does not grow.

An earlier pass needs only the cells' classes that its own queries, the pins and the bounded types
tell apart: a histogram of classes always lifts to one of cells (see `SiblingProblem.coarsened`).

A pass is solved by the active-set method from the guess of a few iterations of ADMM, from more of
them if that cycles, and at last by HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit

from tasks.estimation import active_set, admm, highs
from tasks.estimation.highs import LinearProgram, SolveStatus
from tasks.estimation.problem import (
    Measurements,
    QueryMeasurement,
    SiblingProblem,
    joint_classes,
    rows_on_support,
    sum_rows,
)
from tasks.estimation.programs import add_constraints

TOLERANCE = 1e-6
"""Largest distance, in records, between an estimate and the constraints it must meet."""
EXACT = 1e-9
"""Violation of a constraint, in records, that counts as none."""
ROUNDING = 1e-12
"""Allowance for rounding error, relative to the largest count."""
ATTEMPTS = ((10, 1e-8, 20), (100, 1e-2, 100), (100, 1e-1, 500))
"""Iterations of ADMM behind each attempt of the active-set method, its softness and most of its
iterations."""
PROXIMAL_WEIGHT = 1e-4
"""Weight of the proximal term, relative to the mean of the Hessian's diagonal."""
PROXIMAL_STEPS = 100


@dataclass(frozen=True)
class PassRecord:
    """How one pass ended.

    solver : "active set" or "highs".
    primal : largest violation of a constraint, in records.
    dual : largest violation of a multiplier's sign or of stationarity, relative to the largest
        gradient term.
    gap : bound on the suboptimality, relative to the objective (plus one).
    tau : smallest tolerance within which the pass's margins can be met, in records.
    """

    solver: str
    status: SolveStatus
    iterations: int
    primal: float
    dual: float
    gap: float
    tau: float = 0.0


@dataclass(frozen=True)
class LeastSquaresResult:
    """`x` of shape `(c, k)`, non-negative reals; `success` is False if a pass had no solution."""

    success: bool
    x: np.ndarray | None
    passes: tuple[PassRecord, ...] = ()


@dataclass(frozen=True)
class Pins:
    """Margins to hold: the row of every cell (one labelling a query) and targets (c, n_rows)."""

    labels: tuple[np.ndarray, ...] = ()
    targets: tuple[np.ndarray, ...] = ()


def solve_passes(
    problem: SiblingProblem,
    measurements: Measurements,
    passes: Sequence[Sequence[str]],
) -> LeastSquaresResult:
    """Run the passes in order; each is a sequence of names of measured queries.

    Queries without measurements are ignored; a pass without any is skipped.
    """
    records: list[PassRecord] = []
    pins = Pins()
    solution = np.zeros((problem.n_children, problem.cells.size))
    measured = [[measurements[name] for name in names if name in measurements] for names in passes]
    measured = [asked for asked in measured if asked]
    for number, asked in enumerate(measured):
        labels = [rows_on_support(m.query, problem.cells) for m in asked]
        if number == len(measured) - 1:
            pass_problem = PassProblem.build(problem, asked, labels, pins)
            solution, record = pass_problem.solve()
            records.append(record)
            if solution is None:
                return LeastSquaresResult(False, None, tuple(records))
            continue
        classes = joint_classes([problem.type_of_cell, *labels, *pins.labels])
        first = np.unique(classes, return_index=True)[1]
        coarse_labels = [label[first] for label in labels]
        pass_problem = PassProblem.build(
            problem.coarsened(classes),
            asked,
            coarse_labels,
            Pins(tuple(label[first] for label in pins.labels), pins.targets),
        )
        x, record = pass_problem.solve()
        if x is not None and not pass_problem.is_exact(x):
            tau, x = pass_problem.secondary(x)
            record = replace(record, tau=tau)
        records.append(record)
        if x is None:
            return LeastSquaresResult(False, None, tuple(records))
        pins = Pins(
            (*pins.labels, *labels),
            (*pins.targets, *(sum_rows(x, label) for label in coarse_labels)),
        )
    return LeastSquaresResult(True, solution, tuple(records))


@njit(cache=True, nogil=True)
def _assemble(answers, labels, weights, profile, hessians, b):
    """H = sum_q w_q A_q'A_q for every profile, and b = sum_q w_q A_q' answers for every child."""
    n_queries, k = labels.shape
    for m in range(weights.shape[0]):
        for q in range(n_queries):
            weight = weights[m, q]
            if weight != 0.0:
                for i in range(k):
                    for j in range(k):
                        if labels[q, i] == labels[q, j]:
                            hessians[m, i, j] += weight
    for i in range(b.shape[0]):
        for q in range(n_queries):
            weight = weights[profile[i], q]
            for j in range(k):
                b[i, j] += weight * answers[i, labels[q, j]]


@njit(cache=True, nogil=True)
def _squared_distance(x, answers, labels, weights, profile, scale):
    """The objective: half the weighted squared distance between A x and the answers."""
    distance = 0.0
    residual = np.empty(answers.shape[1])
    for i in range(x.shape[0]):
        residual[:] = -answers[i]
        for q in range(labels.shape[0]):
            for j in range(x.shape[1]):
                residual[labels[q, j]] += x[i, j]
        for q in range(labels.shape[0]):
            first = labels[q].min()
            last = labels[q].max()
            weight = 0.5 * scale[i] * weights[profile[i], q]
            for r in range(first, last + 1):
                distance += weight * residual[r] * residual[r]
    return distance


def _profiles(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    answers : (c, n) the noisy answers of all queries side by side, rows that meet the support.
    labels : (n_queries, k) column of `answers` that each cell is counted in.
    weights : (m, n_queries) weight of each query, one row for every distinct combination.
    profile, scale : (c,) row of `weights` and factor of each child; the precision of query q at
        child i is scale[i] * weights[profile[i], q], up to a common factor.
    hessians, b : (m, k, k) and (c, k); the objective is
        sum_i scale[i] (x_i' hessians[profile[i]] x_i / 2 - b_i' x_i) and a constant.
    pin_rows, group_of_child, targets, type_starts : see `active_set.solve`; the pins are the
        margins of earlier passes, of which each implies the total, else the groups' totals.
    is_pinned : whether the pins are margins of earlier passes.
    """

    problem: SiblingProblem
    answers: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    profile: np.ndarray
    scale: np.ndarray
    hessians: np.ndarray
    b: np.ndarray
    pin_rows: np.ndarray
    group_of_child: np.ndarray
    targets: np.ndarray
    type_starts: np.ndarray
    is_pinned: bool

    @classmethod
    def build(
        cls,
        problem: SiblingProblem,
        asked: Sequence[QueryMeasurement],
        labels: Sequence[np.ndarray],
        pins: Pins,
    ) -> PassProblem:
        """From measurements and the dense row of each cell in each of them."""
        c, k = problem.n_children, problem.cells.size
        starts = np.cumsum([0, *(int(label.max()) + 1 for label in labels)])
        answers = np.empty((c, starts[-1]))
        columns = np.empty((len(asked), k), dtype=np.int64)
        for q, (measurement, label) in enumerate(zip(asked, labels, strict=True)):
            row = np.empty(starts[q + 1] - starts[q], dtype=np.int64)
            row[label] = measurement.query.row_of_cell[problem.cells]
            answers[:, starts[q] : starts[q + 1]] = measurement.values[:, row]
            columns[q] = label + starts[q]
        weights, profile, scale = _profiles(np.array([m.precision for m in asked], dtype=float))
        hessians = np.zeros((len(weights), k, k))
        b = np.zeros((c, k))
        _assemble(answers, columns, weights, profile, hessians, b)

        group_of_child = np.arange(c)
        if pins.labels:
            widths = [target.shape[1] for target in pins.targets]
            offset = np.cumsum([0, *widths[:-1]])
            pin_rows = np.array(pins.labels, dtype=np.int64) + offset[:, None]
            targets = np.hstack(pins.targets)
        elif problem.group_totals is not None:
            pin_rows = np.zeros((1, k), dtype=np.int64)
            group_of_child = problem.group_of_child.astype(np.int64)
            targets = problem.group_totals[:, None].astype(np.float64)
        else:
            pin_rows, targets = np.zeros((0, k), dtype=np.int64), np.zeros((0, 0))
        n_types = problem.lower.shape[1]
        type_starts = np.searchsorted(problem.type_of_cell, np.arange(n_types + 1))
        return cls(
            problem,
            answers,
            columns,
            weights,
            profile,
            scale,
            hessians,
            b,
            pin_rows,
            group_of_child,
            np.ascontiguousarray(targets),
            type_starts.astype(np.int64),
            bool(pins.labels),
        )

    def objective(self, x: np.ndarray) -> float:
        """Half the precision-weighted squared distance of `x` (c, k) to the noisy answers."""
        return _squared_distance(
            x, self.answers, self.labels, self.weights, self.profile, self.scale
        )

    def solve(self) -> tuple[np.ndarray | None, PassRecord]:
        """The active-set method first; HiGHS where it does not settle."""
        guess = self._even()
        iterations = 0
        for guess_iterations, softness, most in ATTEMPTS:
            guess = self._approach(guess, guess_iterations)
            result = self._settle(guess, softness, most)
            iterations += guess_iterations + result.iterations
            if self._is_accepted(result):
                return result.x, self._record("active set", iterations, result)
        fallback = self.solve_with_highs()
        iterations += fallback.iterations
        if fallback.x is None:
            return None, PassRecord("highs", fallback.status, iterations, np.inf, np.inf, np.inf)
        c, k = self.b.shape
        x = np.maximum(fallback.x[: c * k].reshape(c, k), 0.0)
        result = self._settle(x, *ATTEMPTS[0][1:])
        iterations += result.iterations
        if self._is_accepted(result):
            return result.x, self._record("highs", iterations, result)
        return x, PassRecord(
            "highs", SolveStatus.OPTIMAL, iterations, self.violation(x), np.nan, np.nan
        )

    def _record(
        self, solver: str, iterations: int, result: active_set.ActiveSetResult
    ) -> PassRecord:
        gap = result.gap / (1.0 + self.objective(result.x))
        return PassRecord(solver, SolveStatus.OPTIMAL, iterations, result.primal, result.dual, gap)

    @cached_property
    def _size(self) -> float:
        """Largest count that constraints or answers speak of, in records."""
        counts = self.problem.parent_counts
        largest = np.abs(self.answers).max(initial=1.0) if counts is None else counts.max(initial=1)
        return float(largest)

    def _is_accepted(self, result: active_set.ActiveSetResult) -> bool:
        return result.converged and result.primal <= TOLERANCE + ROUNDING * self._size

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
        answers = np.zeros(self.targets.shape)
        for rows in self.pin_rows:
            held = sum_rows(x, rows, self.targets.shape[1])
            np.add.at(answers, self.group_of_child, held)
        return max(largest, float(np.abs(answers - self.targets).max(initial=0.0)))

    def _even(self) -> np.ndarray:
        """The parent's counts shared evenly; at the root, each cell's own mean answer."""
        counts, c = self.problem.parent_counts, self.problem.n_children
        if counts is not None:
            return np.tile(counts / c, (c, 1))
        diagonal = np.diagonal(self.hessians, axis1=1, axis2=2)[self.profile]
        return np.maximum(self.b, 0.0) / np.maximum(diagonal, 1e-12)

    @cached_property
    def _proximal(self) -> float:
        """Weight of the proximal term: zero where some query tells all cells apart, and so makes
        the Hessians definite."""
        complete = np.ptp(self.labels, axis=1) + 1 == self.b.shape[1]
        if self.weights[:, complete].sum(axis=1).min() > 0.0:
            return 0.0
        trace = np.trace(self.hessians, axis1=1, axis2=2).max() / self.b.shape[1]
        return float(PROXIMAL_WEIGHT * trace) if trace > 0.0 else 1.0

    @cached_property
    def _definite(self) -> np.ndarray:
        """The Hessians, with the proximal term on the diagonal."""
        if self._proximal == 0.0:
            return self.hessians
        return self.hessians + self._proximal * np.eye(self.b.shape[1])

    @cached_property
    def _constraints(self) -> tuple:
        """What both methods need to know of the constraints; see `active_set.solve`."""
        problem = self.problem
        counts = problem.parent_counts
        return (
            None if counts is None else counts.astype(np.float64),
            self.pin_rows,
            self.group_of_child,
            self.targets,
            self.type_starts,
            problem.lower.astype(np.float64),
            problem.upper.astype(np.float64),
            self._allowed,
        )

    @cached_property
    def _allowed(self) -> np.ndarray:
        """Mask (c, k) of the cells that need not be zero: those under no sum that must be."""
        problem = self.problem
        allowed = (problem.upper > 0)[:, problem.type_of_cell]
        if problem.parent_counts is not None:
            allowed = allowed & (problem.parent_counts > 0)
        for rows in self.pin_rows:
            allowed = allowed & (self.targets[self.group_of_child] > EXACT)[:, rows]
        return np.ascontiguousarray(allowed)

    def _approach(self, start: np.ndarray, iterations: int) -> np.ndarray:
        """A few iterations of ADMM, with the siblings' mean Hessian."""
        hessian = self._definite[0]
        if len(self._definite) > 1:
            share = np.bincount(self.profile, self.scale) / self.scale.sum()
            hessian = np.tensordot(share, self._definite, 1)
        b = self.b + self._proximal * start
        return admm.approach(hessian, b, self.scale, *self._constraints, start, iterations)

    def _settle(
        self, start: np.ndarray, softness: float, max_iterations: int
    ) -> active_set.ActiveSetResult:
        """The active-set method; by proximal steps where the Hessians are singular."""
        options = {"softness": softness, "max_iterations": max_iterations}
        if self._proximal == 0.0:
            linear = (self.hessians, self.profile, self.b, self.scale)
            return active_set.solve(*linear, *self._constraints, start, **options)
        iterations = 0
        gradient_size = np.abs(self.scale[:, None] * self.b).max(initial=1e-300)
        x, is_last = start, False
        for _ in range(PROXIMAL_STEPS):
            b = self.b + self._proximal * x
            result = active_set.solve(
                self._definite, self.profile, b, self.scale, *self._constraints, x, **options
            )
            iterations += result.iterations
            moved = np.abs(result.x - x)
            pull = self._proximal * self.scale[:, None] * moved
            x = result.x
            result = replace(
                result,
                iterations=iterations,
                dual=max(result.dual, float(pull.max(initial=0.0)) / gradient_size),
                gap=result.gap + float((pull * x).sum()),
            )
            if not result.converged or is_last:
                return result
            is_last = moved.max() <= EXACT + ROUNDING * self._size
        return replace(result, converged=False)

    def solve_with_highs(self) -> highs.HighsResult:
        """The same quadratic program with query answers as variables: sparse and diagonal."""
        program, cell, cost, diagonal = self.as_program()
        lower = np.zeros(program.n_columns)
        lower[cell.size :] = -np.inf
        upper = np.full(program.n_columns, np.inf)
        return highs.solve(
            cost, program.matrix(), *program.bounds(), lower, upper, diagonal=diagonal
        )

    def as_program(self) -> tuple[LinearProgram, np.ndarray, np.ndarray, np.ndarray]:
        """Constraints, columns (c, k) of the cells, linear and diagonal quadratic costs.

        The columns after the cells are the children's answers, which the quadratic is in.
        """
        c, k = self.b.shape
        n = self.answers.shape[1]
        cell = np.arange(c * k).reshape(c, k)
        answer = c * k + np.arange(c * n).reshape(c, n)
        program = LinearProgram(c * (k + n))
        row = np.arange(c)[:, None, None] * n + self.labels[None, :, :]
        columns = np.repeat(cell[:, None, :], len(self.labels), 1).ravel()
        program.add_rows(
            np.concatenate([row.ravel(), np.arange(c * n)]),
            np.concatenate([columns, answer.ravel()]),
            np.concatenate([np.ones(row.size), -np.ones(c * n)]),
            np.zeros(c * n),
            np.zeros(c * n),
        )
        weight = np.zeros((len(self.weights), n))
        for q, label in enumerate(self.labels):
            weight[:, label.min() : label.max() + 1] = self.weights[:, q, None]
        precision = (self.scale[:, None] * weight[self.profile]).ravel()
        diagonal, cost = np.zeros(program.n_columns), np.zeros(program.n_columns)
        diagonal[c * k :] = precision
        cost[c * k :] = -precision * self.answers.ravel()
        self._add_constraints(program, cell)
        return program, cell, cost, diagonal

    def _add_constraints(self, program: LinearProgram, cell: np.ndarray) -> None:
        """Every constraint of the pass on the columns `cell` of shape (c, k)."""
        c = len(cell)
        add_constraints(program, self.problem, cell)
        if self.is_pinned:
            targets = self.targets.ravel()
            row = np.arange(c)[:, None, None] * self.targets.shape[1] + self.pin_rows[None, :, :]
            columns = np.repeat(cell[:, None, :], len(self.pin_rows), 1)
            program.add_rows(row.ravel(), columns.ravel(), 1.0, targets, targets)

    def secondary(self, x: np.ndarray) -> tuple[float, np.ndarray | None]:
        """Problem (7.6): the smallest tolerance, and a feasible point that attains it.

        Minimises tau over tau and the children's histograms y subject to |B (y - x)| <= tau for
        the pass's queries B, and every constraint of the pass.
        """
        c, k = x.shape
        n = self.answers.shape[1]
        cell = np.arange(c * k).reshape(c, k)
        program = LinearProgram(c * k + 1)
        row = (np.arange(c)[:, None, None] * n + self.labels[None, :, :]).ravel()
        columns = np.repeat(cell[:, None, :], len(self.labels), 1).ravel()
        answers = np.hstack([sum_rows(x, label - label.min()) for label in self.labels]).ravel()
        tau_row, tau_column = np.arange(c * n), np.full(c * n, c * k)
        for sign in (1.0, -1.0):
            program.add_rows(
                np.concatenate([row, tau_row]),
                np.concatenate([columns, tau_column]),
                np.concatenate([np.full(row.size, sign), -np.ones(c * n)]),
                np.full(c * n, -np.inf),
                sign * answers,
            )
        self._add_constraints(program, cell)
        cost = np.zeros(c * k + 1)
        cost[-1] = 1.0
        result = highs.solve(
            cost,
            program.matrix(),
            *program.bounds(),
            np.zeros(c * k + 1),
            np.full(c * k + 1, np.inf),
        )
        if result.x is None:
            return np.inf, None
        return float(result.x[-1]), np.maximum(result.x[:-1], 0.0).reshape(c, k)
