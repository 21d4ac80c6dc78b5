"""A pass of the least squares as `dual_newton` takes it: its rows, and the histogram it is near to.

**The fill.** Below the root it shares every cell of the parent among the children as their totals
are, noisy or held. At the root it makes the measured attributes independent as far as the answers
go: a few cycles of raking (iterative proportional fitting [Raking1940]) of a constant to the
noisy answers, of which those below half a record count as half a record, so that noise empties no
cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .dual_kernels import Rows
from .dual_newton import DualProblem
from .elimination import n_own_pins
from .problem import NO_BOUND, LinearRows, SiblingProblem, sum_rows
from .quadratic import Constraints

RAKING_CYCLES = 3
LEAST_ANSWER = 0.5
"""What a noisy answer below it counts as in raking, in records."""


def dual_problem(
    problem: SiblingProblem,
    asked: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    constraints: Constraints,
    scale: np.ndarray,
) -> DualProblem:
    """A pass as `dual_newton` takes it.

    asked : of each query the row that counts each cell (k,), the children's noisy answers (c, R)
    and their precisions (c,). scale : (c,) see `DualProblem`.
    """
    c, k = problem.n_children, problem.cells.size
    stacked = StackedRows(c)
    for row, answers, precision in asked:
        stacked.measure(row, answers, precision)
    for label in constraints.pin_rows:
        first, stop = int(label.min()), int(label.max()) + 1
        held = constraints.targets[:, first:stop]
        stacked.hold(_counted(label - first), constraints.group_of_child, held, held)
    lower, upper = constraints.lower, constraints.upper
    most = np.full(lower.shape[1], NO_BOUND)
    if problem.parent_counts is not None:
        most = np.bincount(problem.type_of_cell, problem.parent_counts, lower.shape[1])
    stacked.hold(
        _counted(problem.type_of_cell),
        np.arange(c),
        np.where(lower > 0.0, lower, -np.inf),
        np.where(upper >= most, np.inf, upper),
    )
    for rows in problem.rows:
        _hold_linear_rows(stacked, rows)
    allowed = np.ascontiguousarray(constraints.allowed.T)
    margins = [(row, answers) for row, answers, _ in asked]
    totals = _totals(constraints, margins)
    fill = proportional_fill(problem.parent_counts, totals, allowed, margins)
    return DualProblem(stacked.stacked(k), problem.parent_counts, allowed, fill, scale)


def _totals(
    constraints: Constraints, margins: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The children's totals (c,): held ones, else those of the query with the fewest answers."""
    c = constraints.allowed.shape[0]
    if n_own_pins(constraints):
        label = constraints.pin_rows[0]
        held = constraints.targets[:, label.min() : label.max() + 1].sum(axis=1)
        return np.asarray(held[constraints.group_of_child])
    if not margins:
        return np.ones(c)
    return np.asarray(min((answers for _, answers in margins), key=np.size).sum(axis=1))


def _counted(label: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries of the rows that count each cell once, by the row of every cell (k,)."""
    return np.arange(label.size), label, np.ones(label.size)


class StackedRows:
    """Collects rows of cells, for the children each or for groups of them, into `Rows`."""

    def __init__(self, n_children: int) -> None:
        self.n_children = n_children
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._places: list[np.ndarray] = []
        self._multipliers: list[np.ndarray] = []
        self._n_rows = self._n_multipliers = 0

    def measure(self, label: np.ndarray, answers: np.ndarray, precision: np.ndarray) -> None:
        """A query's rows: the row of each cell (k,), noisy answers (c, R), precisions (c,)."""
        is_in = np.broadcast_to(precision[:, None] > 0.0, answers.shape)
        give = 1.0 / np.where(precision > 0.0, precision, 1.0)[:, None]
        multipliers = (answers, give, -np.inf, np.inf)
        self._add(_counted(label), np.arange(self.n_children), is_in, multipliers)

    def hold(
        self,
        entries: tuple[np.ndarray, np.ndarray, np.ndarray],
        group_of_child: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
    ) -> None:
        """Rows between bounds (g, R), each of a group of children; -1 is no group.

        `entries` are cells, the row of each, and its weight there. Bounds that are equal are held;
        a pair that bounds nothing is left out.
        """
        upper = np.where(upper >= NO_BOUND, np.inf, upper)
        says = np.isfinite(lower) | np.isfinite(upper)
        is_exact = lower == upper
        target = np.where(is_exact, lower, 0.0)
        lower, upper = np.where(is_exact, -np.inf, lower), np.where(is_exact, np.inf, upper)
        self._add(entries, group_of_child, says, (target, 0.0, lower, upper))

    def _add(
        self,
        entries: tuple[np.ndarray, np.ndarray, np.ndarray],
        group_of_child: np.ndarray,
        is_in: np.ndarray,
        multipliers: tuple[np.ndarray | float, ...],
    ) -> None:
        """Rows with their multipliers: target, give, lower and upper, each as (g, R)."""
        cells, rows, weights = entries
        number = np.full(is_in.shape, -1, dtype=np.int64)
        number[is_in] = self._n_multipliers + np.arange(np.count_nonzero(is_in))
        place = np.where(group_of_child[:, None] >= 0, number[group_of_child], -1)
        self._entries.append((cells, rows + self._n_rows, weights))
        self._places.append(place.T)
        of_rows = [np.broadcast_to(part, is_in.shape)[is_in] for part in multipliers]
        self._multipliers.append(np.array(of_rows))
        self._n_rows += is_in.shape[1]
        self._n_multipliers += int(np.count_nonzero(is_in))

    def stacked(self, n_cells: int) -> Rows:
        """All rows, in the order of the cells that they count."""
        cell, row, weight = (
            np.concatenate([entries[part] for entries in self._entries]) for part in range(3)
        )
        order = np.argsort(cell, kind="stable")
        start = np.searchsorted(cell[order], np.arange(n_cells + 1))
        target, give, lower, upper = np.hstack(self._multipliers)
        bounded = np.flatnonzero((give == 0.0) & (np.isfinite(lower) | np.isfinite(upper)))
        return Rows(
            start.astype(np.int64),
            row[order].astype(np.int64),
            weight[order].astype(np.float64),
            np.ascontiguousarray(np.vstack(self._places)),
            target,
            give,
            bounded,
            lower[bounded],
            upper[bounded],
        )


def _hold_linear_rows(stacked: StackedRows, rows: LinearRows) -> None:
    """Hold weighted rows, each scaled so that its largest weight, if it has any, is one."""
    matrix = rows.matrix.tocoo()
    largest = abs(rows.matrix).max(axis=1).toarray().ravel()
    largest[largest == 0.0] = 1.0
    stacked.hold(
        (matrix.col, matrix.row, matrix.data / largest[matrix.row]),
        rows.group_of_child,
        rows.lower / largest,
        rows.upper / largest,
    )


def proportional_fill(
    parent: np.ndarray | None,
    totals: np.ndarray,
    allowed: np.ndarray,
    margins: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The histograms (k, c) that many optima are told apart by; see the module's docstring.

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
