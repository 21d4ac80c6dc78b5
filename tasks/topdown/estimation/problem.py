"""The estimation problem of one parent: its children's histograms on the parent's support.

Shapes use c for the number of children, k for the number of cells in the support, and T for the
number of cell types that carry bounds (group-quarters types for persons, one for housing units).

How solves of the estimation ended.

The constraints of siblings as rows of a linear program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from ...census.queries import MarginalQuery, incidence
from ...solvers.highs import LinearProgram, SolveStatus
from ..spine.files import Family


@dataclass(frozen=True)
class SolveRecord:
    """Outcome of one solve, stored with the estimates.

    parent : empty until the solve's siblings are known.
    stage : "least squares 1", ..., "rounder", or "settled" where nothing was left to estimate.
    solver : "active set", "dual newton", "flow", "highs" as the fallback of others, or "none"; the
        rounder's with ", exchange" where one followed, whose moves are iterations.
    iterations : of all methods together; of the flow, augmenting paths.
    primal_residual : largest violation of a constraint, in records.
    dual_residual : largest violation of a multiplier's sign or of stationarity, relative to the
        largest gradient term; NaN where HiGHS's solution could not be certified.
    objective_gap : sum of the products of multipliers and slacks, which bounds the suboptimality,
        relative to the objective (plus one); NaN where HiGHS's solution could not be certified.
    tau : smallest tolerance within which the pass's margins can be met, problem (7.6), in records.
    relaxed : the fail-safe dropped the agreement with earlier passes, or the rounder's 0/1 box.
    """

    parent: str = ""
    stage: str = ""
    solver: str = "none"
    status: SolveStatus = SolveStatus.OPTIMAL
    n_children: int = 0
    n_cells: int = 0
    iterations: int = 0
    primal_residual: float = 0.0
    dual_residual: float = 0.0
    objective_gap: float = 0.0
    tau: float = 0.0
    relaxed: bool = False


class Solution(NamedTuple):
    """A solve's `x` of shape `(c, k)`, None if it found none, and its record."""

    x: np.ndarray | None
    record: SolveRecord


NO_BOUND = 10**12
"""Stands for the absence of an upper bound on a count."""


@dataclass(frozen=True)
class QueryMeasurement:
    """Noisy answers to one query group for every child.

    `values` has shape `(c, n_rows)`; `precision` `(c,)` is the inverse of the noise variance, up
    to a factor common to all queries and children; 0 where a child was not measured. Measured on
    demand, `values` has the answers of `rows` alone, which ascend.
    """

    query: MarginalQuery
    values: np.ndarray
    precision: np.ndarray
    rows: np.ndarray | None = None

    def of_family(self, family: Family) -> QueryMeasurement:
        """The answers of a family's children, cut from a shard's."""
        part = slice(family.start, family.stop)
        return QueryMeasurement(self.query, self.values[part], self.precision[part], self.rows)

    def answers(self, cells: np.ndarray) -> np.ndarray:
        """The answer `(c, k)` of the row that holds each of `cells` (k,), which was measured."""
        rows = self.query.row_of_cell[cells]
        return self.values[:, rows if self.rows is None else np.searchsorted(self.rows, rows)]


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Weighted sums of cells, in children or in groups of them, that lie between bounds.

    matrix : (R, k) weights of the cells. group_of_child : (c,) the group of each child, -1 where
    it is in none. lower, upper : (n_groups, R) bounds on the sums over each group.
    """

    name: str
    matrix: sparse.csr_array
    group_of_child: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def labels(self) -> np.ndarray:
        """Row `(k,)` of every cell among the distinct columns of the matrix."""
        dense = self.matrix.toarray()
        return np.unique(dense, axis=1, return_inverse=True)[1].reshape(-1)

    def sums(self, x: np.ndarray) -> np.ndarray:
        """Weighted sums `(n_groups, R)` of histograms `x` (c, k)."""
        return incidence(self.group_of_child, len(self.lower)) @ (self.matrix @ x.T).T


@dataclass(frozen=True)
class SiblingProblem:
    """Constraints on the children of one parent, whatever has been measured.

    geocodes : (c,) the children's geocodes, for messages.
    cells : (k,) cells of the support, in increasing order of type, then of cell number.
    type_of_cell : (k,) type of each cell.
    parent_counts : (k,) the parent's count in each cell, or None at the root of the spine.
    lower, upper : (c, T) bounds on the number of records of each type in each child; `NO_BOUND`
        means no upper bound.
    grouped_totals : the group (c,) of each child, and exact totals (n_groups,) of the groups (the
        two parts of a split state, or one housing-unit count per child); None without groups.
    rows : further linear constraints, which no network has.
    """

    geocodes: Sequence[str] | np.ndarray
    cells: np.ndarray
    type_of_cell: np.ndarray
    parent_counts: np.ndarray | None
    lower: np.ndarray
    upper: np.ndarray
    grouped_totals: tuple[np.ndarray, np.ndarray] | None = None
    rows: tuple[LinearRows, ...] = ()

    @property
    def n_children(self) -> int:
        """Number of children."""
        return len(self.geocodes)

    def coarsened(
        self, labels: Sequence[np.ndarray]
    ) -> tuple[SiblingProblem, np.ndarray, np.ndarray]:
        """The same problem on the classes of cells that types, linear rows and these labellings do
        not distinguish; the class of every cell (k,), in increasing order of type, and the first
        cell of every class, which names it.

        Every solution of the coarse problem lifts to one of the fine problem (share each class
        among its cells as the parent does), so nothing feasible is lost or gained.
        """
        told_apart = [self.type_of_cell, *labels, *(rows.labels() for rows in self.rows)]
        classes = joint_classes(told_apart)
        first = np.unique(classes, return_index=True)[1]
        counts = self.parent_counts
        if counts is not None:
            counts = np.bincount(classes, counts, first.size).astype(np.int64)
        coarse = replace(
            self,
            cells=self.cells[first],
            type_of_cell=self.type_of_cell[first],
            parent_counts=counts,
            rows=tuple(
                replace(rows, matrix=sparse.csr_array(rows.matrix[:, first])) for rows in self.rows
            ),
        )
        return coarse, classes, first


def rows_on_support(query: MarginalQuery, cells: np.ndarray) -> np.ndarray:
    """Dense row numbers `(k,)` of the query's rows that meet the support."""
    row = query.row_of_cell[cells]
    is_used = np.zeros(query.n_rows, dtype=np.int64)
    is_used[row] = 1
    return (np.cumsum(is_used) - 1)[row]


def numbered(is_chosen: np.ndarray) -> np.ndarray:
    """Number `(n,)` of each that is chosen among the chosen, -1 of the others."""
    return np.where(is_chosen, np.cumsum(is_chosen) - 1, -1)


def joint_classes(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Classes `(k,)` of cells that agree in every labelling, ordered by the first labelling."""
    joint = labels[0].astype(np.int64)
    for label in labels[1:]:
        joint = np.unique(joint * (int(label.max(initial=0)) + 1) + label, return_inverse=True)[1]
    return joint.reshape(-1)


@njit(cache=True, nogil=True)
def is_refined(coarse: np.ndarray, fine: np.ndarray) -> bool:
    """Whether cells that share a row of the labelling `fine` share one of `coarse`."""
    row = np.full(fine.max() + 1 if fine.size else 0, -1, dtype=np.int64)
    for j in range(fine.size):
        if row[fine[j]] < 0:
            row[fine[j]] = coarse[j]
        elif row[fine[j]] != coarse[j]:
            return False
    return True


def sum_rows(x: np.ndarray, label: np.ndarray, n_rows: int | None = None) -> np.ndarray:
    """Answers `(c, n_rows)` of a query to `x` (c, k), given the row of each of the k columns."""
    n = int(label.max(initial=-1)) + 1 if n_rows is None else n_rows
    return _sums(np.ascontiguousarray(x, dtype=np.float64), label, n)


@njit(cache=True, nogil=True)
def _sums(x: np.ndarray, label: np.ndarray, n_rows: int) -> np.ndarray:
    sums = np.zeros((x.shape[0], n_rows))
    for i in range(x.shape[0]):
        for j in range(label.size):
            sums[i, label[j]] += x[i, j]
    return sums


@dataclass(frozen=True)
class Pins:
    """Margins to hold: the row of every cell (one labelling a query) and targets (c, n_rows)."""

    labels: tuple[np.ndarray, ...] = ()
    targets: tuple[np.ndarray, ...] = ()

    def finest(self) -> Pins:
        """The margins that no other implies."""
        kept: list[int] = []
        sizes = [target.shape[1] for target in self.targets]
        for q in sorted(range(len(sizes)), key=lambda q: -sizes[q]):
            if not any(is_refined(self.labels[q], self.labels[other]) for other in kept):
                kept.append(q)
        return Pins(tuple(self.labels[q] for q in kept), tuple(self.targets[q] for q in kept))

    def at(self, cells: np.ndarray) -> Pins:
        """These margins on `cells`, each representing a class."""
        return Pins(tuple(label[cells] for label in self.labels), self.targets)

    def with_answers(
        self, labels: Sequence[np.ndarray], x: np.ndarray, cells: np.ndarray | slice = slice(None)
    ) -> Pins:
        """These and the margins by further `labels` (k,) of `x` (c, n) on n classes represented by
        `cells`; on all cells by default.
        """
        targets = [sum_rows(x, label[cells]) for label in labels]
        return Pins((*self.labels, *labels), (*self.targets, *targets))


def rows_by_child(rows: sparse.csr_array, n_children: int) -> sparse.csr_array:
    """Rows `(R, k)` of cells for every child (c R, c k), children side by side."""
    return sparse.kron(sparse.eye_array(n_children), rows, "csr")


Measurements = Mapping[str, QueryMeasurement]
"""Measurements of a geolevel's children by query name."""


def add_constraints(
    program: LinearProgram,
    problem: SiblingProblem,
    column: np.ndarray,
    base: np.ndarray | None = None,
) -> bool:
    """Add parent sums, totals of groups, bounds of types and linear rows; False if fixed cells
    break one.

    `column` (c, k) gives the program's column of each cell, -1 where the cell is fixed; `base`
    (c, k) is a constant added to each cell's column, 0 by default.
    """
    c, k = column.shape
    free, columns = column.ravel() >= 0, column[column >= 0]
    possible = True
    for matrix, lower, upper in _sums_between_bounds(problem):
        held = 0.0 if base is None else matrix @ base.ravel()
        lower = np.where(lower <= -NO_BOUND, -np.inf, lower - held)
        upper = np.where(upper >= NO_BOUND, np.inf, upper - held)
        own = matrix[:, free]
        is_used = np.diff(own.indptr) > 0
        possible &= not np.any(~is_used & ((lower > 0) | (upper < 0)))
        entries = sparse.coo_array(own[is_used])
        program.add_rows(
            entries.row, columns[entries.col], entries.data, lower[is_used], upper[is_used]
        )
    return bool(possible)


def _sums_between_bounds(
    problem: SiblingProblem,
) -> Iterator[tuple[sparse.csr_array, np.ndarray, np.ndarray]]:
    """Matrices (R, c k) on the children's cells side by side, and bounds (R,) on the sums."""
    c, k = problem.n_children, problem.cells.size
    if problem.parent_counts is not None:
        every = sparse.kron(np.ones((1, c)), sparse.eye_array(k), "csr")
        yield every, problem.parent_counts, problem.parent_counts
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        yield sparse.kron(incidence(group, totals.size), np.ones((1, k)), "csr"), totals, totals
    of_type = incidence(problem.type_of_cell, problem.lower.shape[1])
    yield rows_by_child(of_type, c), problem.lower.ravel(), problem.upper.ravel()
    for rows in problem.rows:
        into = incidence(rows.group_of_child, len(rows.lower))
        yield sparse.kron(into, rows.matrix, "csr"), rows.lower.ravel(), rows.upper.ravel()
