"""HiGHS behind one small interface: arrays in, a result with our own status out."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import highspy
import numpy as np
from scipy import sparse


class SolveStatus(StrEnum):
    """How a solve ended, whatever solver was behind it."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    LIMIT = "limit"
    FAILED = "failed"


_STATUS = {
    highspy.HighsModelStatus.kOptimal: SolveStatus.OPTIMAL,
    highspy.HighsModelStatus.kModelEmpty: SolveStatus.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: SolveStatus.INFEASIBLE,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: SolveStatus.INFEASIBLE,
    highspy.HighsModelStatus.kIterationLimit: SolveStatus.LIMIT,
    highspy.HighsModelStatus.kTimeLimit: SolveStatus.LIMIT,
    highspy.HighsModelStatus.kSolutionLimit: SolveStatus.LIMIT,
}

_local = threading.local()


@dataclass(frozen=True)
class HighsResult:
    """`x` is the optimal solution, None if it was not found.

    For an integer program that met a limit, `incumbent` is the best solution found, if any, and no
    solution has an objective below `bound`.
    """

    status: SolveStatus
    x: np.ndarray | None
    objective: float
    iterations: int
    incumbent: np.ndarray | None = None
    bound: float = -np.inf


def _solver() -> highspy.Highs:
    """The solver of this thread."""
    solver = getattr(_local, "solver", None)
    if solver is None:
        solver = _local.solver = quiet_solver()
    return solver


def quiet_solver() -> highspy.Highs:
    """A new solver that prints nothing and has one thread."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


def solve(
    cost: np.ndarray,
    matrix: sparse.csr_array,
    row_lower: np.ndarray,
    row_upper: np.ndarray,
    column_lower: np.ndarray,
    column_upper: np.ndarray,
    *,
    diagonal: np.ndarray | None = None,
    integral: np.ndarray | None = None,
    iteration_limit: int | None = None,
    node_limit: int | None = None,
    time_limit: float = np.inf,
) -> HighsResult:
    """Minimise cost'x + x' diag(diagonal) x / 2 subject to bounds on rows and columns.

    `integral` marks integer columns (linear objectives only); `node_limit` ends their search after
    so many nodes.
    Infinite bounds are `np.inf`. A `time_limit` in seconds makes the status depend on the machine:
    for baselines alone.
    """
    n_rows, n_columns = matrix.shape
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n_columns, n_rows
    lp.col_cost_ = np.asarray(cost, dtype=np.float64)
    lp.col_lower_ = np.asarray(column_lower, dtype=np.float64)
    lp.col_upper_ = np.asarray(column_upper, dtype=np.float64)
    lp.row_lower_ = np.asarray(row_lower, dtype=np.float64)
    lp.row_upper_ = np.asarray(row_upper, dtype=np.float64)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.asarray(matrix.indptr, dtype=np.int32)
    lp.a_matrix_.index_ = np.asarray(matrix.indices, dtype=np.int32)
    lp.a_matrix_.value_ = np.asarray(matrix.data, dtype=np.float64)
    if integral is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(flag)] for flag in integral]
    solver = _solver()
    solver.clearModel()
    solver.passModel(lp if diagonal is None else _with_diagonal(lp, diagonal))
    limit = 2**31 - 1 if iteration_limit is None else iteration_limit
    solver.setOptionValue("simplex_iteration_limit", limit)
    solver.setOptionValue("qp_iteration_limit", limit)
    solver.setOptionValue("mip_max_nodes", 2**31 - 1 if node_limit is None else node_limit)
    # HiGHS counts the time of all its runs together.
    solver.setOptionValue("time_limit", solver.getRunTime() + time_limit)
    solver.run()
    status = _STATUS.get(solver.getModelStatus(), SolveStatus.FAILED)
    info = solver.getInfo()
    x = None
    if status is SolveStatus.OPTIMAL:
        x = np.array(solver.getSolution().col_value, dtype=np.float64)
    iterations = max(info.simplex_iteration_count, info.qp_iteration_count, 0)
    incumbent, bound = x, -np.inf
    if integral is not None:
        bound = float(info.mip_dual_bound)
        if info.primal_solution_status == highspy.kSolutionStatusFeasible:
            incumbent = np.array(solver.getSolution().col_value, dtype=np.float64)
    value = float(info.objective_function_value)
    return HighsResult(status, x, value, int(iterations), incumbent, bound)


def _with_diagonal(lp: highspy.HighsLp, diagonal: np.ndarray) -> highspy.HighsModel:
    """The linear program with a diagonal Hessian."""
    model = highspy.HighsModel()
    model.lp_ = lp
    positive = np.flatnonzero(diagonal)
    starts = np.concatenate([[0], np.cumsum(np.asarray(diagonal) != 0)])
    model.hessian_.dim_ = len(diagonal)
    model.hessian_.format_ = highspy.HessianFormat.kTriangular
    model.hessian_.start_ = starts.astype(np.int32)
    model.hessian_.index_ = positive.astype(np.int32)
    model.hessian_.value_ = np.asarray(diagonal, dtype=np.float64)[positive]
    return model


class LinearProgram:
    """Collects the rows of a linear program as arrays, block by block."""

    def __init__(self, n_columns: int) -> None:
        self.n_columns, self.n_rows = n_columns, 0
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._bounds: list[tuple[np.ndarray, np.ndarray]] = []

    def add_rows(
        self,
        row: np.ndarray,
        column: np.ndarray,
        value: np.ndarray | float,
        lower: np.ndarray,
        upper: np.ndarray | None = None,
    ) -> None:
        """Add `len(lower)` rows; `row` counts from 0 within the block. Without `upper`, sums must
        equal `lower`.
        """
        values = np.broadcast_to(np.asarray(value, dtype=np.float64), np.shape(row))
        self._entries.append((np.asarray(row) + self.n_rows, np.asarray(column), values))
        self._bounds.append((lower, lower if upper is None else upper))
        self.n_rows += len(lower)

    def add_matrix(
        self, matrix: sparse.sparray, lower: np.ndarray, upper: np.ndarray | None = None
    ) -> None:
        """Add the rows of a matrix, as `add_rows` does."""
        entries = sparse.coo_array(matrix)
        self.add_rows(entries.row, entries.col, entries.data, lower, upper)

    def matrix(self) -> sparse.csr_array:
        """The constraint matrix, shape `(n_rows, n_columns)`."""
        if not self._entries:
            return sparse.csr_array((0, self.n_columns))
        row, column, value = map(np.concatenate, zip(*self._entries, strict=True))
        return sparse.csr_array((value, (row, column)), shape=(self.n_rows, self.n_columns))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the rows."""
        lower, upper = zip((np.zeros(0), np.zeros(0)), *self._bounds, strict=True)
        return np.concatenate(lower), np.concatenate(upper)

    def solve(
        self,
        cost: np.ndarray,
        lower: np.ndarray | float = 0.0,
        upper: np.ndarray | float = np.inf,
        **options: Any,
    ) -> HighsResult:
        """Minimise cost'x, x between the bounds of the columns; see `solve` for `options`."""
        of_columns = (np.full(self.n_columns, bound, float) for bound in (lower, upper))
        return solve(cost, self.matrix(), *self.bounds(), *of_columns, **options)
