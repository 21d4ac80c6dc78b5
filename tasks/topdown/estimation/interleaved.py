"""Passes that interleave: least squares and rounder in turn, on few classes of cells.

In the passes of `parent` all of the least squares comes before all of the rounder. Here pass p
finds, for its measured queries Q_p with noisy answers M_p, and its rounder's nested queries R_p,

    x_p = argmin  sum_i (Q_p x[i] - M_p[i])' W_p[i] (Q_p x[i] - M_p[i])   over feasible x with
          R_q x = r_q for all passes q < p,
    y_p = the rounder (7.7) of [TopDown2022] of x_p with the queries R_p, under the same conditions,
    r_p = R_p y_p,

and the last pass's y is the estimate. So a query of few answers is decided in integers before the
cells below it are looked at.

**Classes.** Cells that no measured query, rounder's query, held answer or constraint of a pass
tells apart are one variable of the pass (`SiblingProblem.coarsened`). A solution on classes lifts
to one on cells, and the matrix of siblings' sums over nested rows is totally unimodular, so that
every pass finds the answers of earlier ones attainable in integers. In the last pass the classes
are the cells.

**Parts.** Where held answers separate classes from each other, they are solved on their own. The
rounder's parts are networks of `rounder.round_by_flow`; the least squares' are those of
`labelled_least_squares`, in which no matrix of cells by cells stands.

Problems with linear rows, with totals of groups of children that other answers do not settle, with
exact answers that do not nest, or with siblings whose precisions are not proportional go the way of
`least_squares.PassProblem` and of one rounder for all classes, which take all of these, on arrays
of as many entries as there are pairs of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...census.queries import MarginalQuery
from ...solvers.highs import SolveStatus
from . import labelled_least_squares
from .labelled_least_squares import LabelledProblem, Sums, connected_parts
from .least_squares import PassProblem, profiles
from .problem import (
    Measurements,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    SolveRecord,
    is_refined,
    numbered,
    rows_on_support,
)
from .rounder import (
    RounderResult,
    RoundingPass,
    on_grid,
    or_anywhere,
    round_anywhere,
    round_pass,
)

SNAP = 10.0 * labelled_least_squares.TOLERANCE
"""A least-squares value this near to an integer is that integer."""


def solve_interleaved(
    problem: SiblingProblem,
    measurements: Measurements,
    least_squares: Sequence[Sequence[str]],
    rounder: Sequence[Sequence[MarginalQuery]],
) -> tuple[np.ndarray | None, tuple[SolveRecord, ...]]:
    """Integer histograms `(c, k)` of the children by the module's passes, and how the two solves
    of each ended.

    Pass p takes the queries `least_squares[p]`, of which those without measurements are ignored,
    and the chain `rounder[p]`, coarsest first. A pass without measurements is skipped. None where
    a pass has no solution.
    """
    whole = problem.cells.size
    type_is_possible = np.any(problem.upper > 0, axis=0)
    possible = np.flatnonzero(type_is_possible[problem.type_of_cell])
    problem = _of_used_types(problem.on_cells(possible))
    passes = [
        ([measurements[name] for name in names if name in measurements], chain)
        for names, chain in zip(least_squares, rounder, strict=True)
    ]
    passes = [(asked, chain) for asked, chain in passes if asked]
    records: list[SolveRecord] = []
    held = Pins()
    counts = np.zeros((problem.n_children, problem.cells.size), dtype=np.int64)
    if not passes:
        found = round_anywhere(problem, counts.astype(np.float64)).x
        return None if found is None else _spread(found, possible, whole), ()
    for number, (asked, chain) in enumerate(passes, 1):
        queried = [rows_on_support(m.query, problem.cells) for m in asked]
        rounded = [rows_on_support(query, problem.cells) for query in chain]
        # Cells that no type, query or earlier answer tells apart are one class, whose count is what
        # this pass decides. The last pass gives each cell its own.
        is_last = number == len(passes)
        every = [np.arange(problem.cells.size)]
        coarse, _, first = problem.coarsened(
            every if is_last else [*queried, *rounded, *held.labels]
        )
        pins = held.at(first).finest()
        one = _Pass(coarse, asked, [label[first] for label in queried], pins)
        target, record = one.least_squares()
        if target is None:
            return None, tuple(records)
        result = one.rounded(target, [label[first] for label in rounded])
        for stage, solve in (("least squares", record), ("rounder", result.record)):
            records.append(replace(solve, stage=f"{stage} {number}", n_cells=coarse.cells.size))
        if result.x is None:
            return None, tuple(records)
        counts = result.x
        held = held.with_answers(rounded, counts, first)
    return _spread(counts, possible, whole), tuple(records)


def _of_used_types(problem: SiblingProblem) -> SiblingProblem:
    """The problem with the types of its cells alone, numbered anew."""
    used, label = np.unique(problem.type_of_cell, return_inverse=True)
    return replace(
        problem,
        type_of_cell=label.reshape(-1).astype(np.int64),
        lower=problem.lower[:, used],
        upper=problem.upper[:, used],
    )


def _spread(counts: np.ndarray, cells: np.ndarray, n_cells: int) -> np.ndarray:
    """Counts of the cells at some positions, and none of the others."""
    found = np.zeros((len(counts), n_cells), dtype=np.int64)
    found[:, cells] = counts
    return found


class _Pass:
    """One pass on its classes of cells."""

    def __init__(
        self,
        problem: SiblingProblem,
        asked: Sequence[QueryMeasurement],
        labels: Sequence[np.ndarray],
        pins: Pins,
    ) -> None:
        self.problem, self.asked, self.labels, self.pins = problem, asked, labels, pins
        self.sums = Sums.of(problem, pins)

    def least_squares(self) -> tuple[np.ndarray | None, SolveRecord]:
        """x `(c, k)` on the classes, None if there is none; and how the solve ended."""
        labelled = self._labelled()
        if labelled is None:
            one = PassProblem.build(self.problem, self.asked, self.labels, self.pins)
            return one.solve_exactly()
        x, record = labelled_least_squares.solve(labelled)
        return np.maximum(x, 0.0), record

    def _labelled(self) -> LabelledProblem | None:
        """The least squares in the form of `labelled_least_squares`, if they have it."""
        if self.sums is None:
            return None
        precision = np.array([m.precision for m in self.asked], dtype=np.float64)
        if (precision.max(axis=0) <= 0.0).any():
            return None
        weights, _, scale = profiles(precision)
        if len(weights) > 1:
            return None
        sums, cells = self.sums, self.problem.cells
        c, k = self.problem.n_children, cells.size
        diagonal, linear = np.zeros(k), np.zeros((c, k))
        rows: list[np.ndarray] = []
        row_weights: list[np.ndarray] = []
        n_rows = 0
        for measurement, label, weight in zip(self.asked, self.labels, weights[0], strict=True):
            # Answers to sums that are exact say nothing further.
            if weight == 0.0 or ((sums.exact >= 0).all() and is_refined(label, sums.exact)):
                continue
            size = np.bincount(label)
            linear += weight * measurement.answers(cells).astype(np.float64)
            is_alone = size[label] == 1
            diagonal[is_alone] += weight
            several = numbered(size > 1)
            n_several = int(several.max(initial=-1)) + 1
            if n_several:
                rows.append(np.where(several >= 0, n_rows + several, -1)[label])
                row_weights.append(np.full(n_several, weight))
                n_rows += n_several
        return LabelledProblem(
            scale,
            diagonal,
            linear,
            np.array(rows, dtype=np.int64).reshape(len(rows), k),
            np.concatenate(row_weights) if row_weights else np.zeros(0),
            self.problem.parent_counts,
            sums,
        )

    def rounded(self, target: np.ndarray, chain: Sequence[np.ndarray]) -> RounderResult:
        """The rounder of a pass, part by part where held answers make such."""
        whole = np.rint(target)
        target = on_grid(np.where(np.abs(target - whole) <= SNAP, whole, target))
        sums = self.sums
        if sums is None or not sums.targets.shape[1] or (sums.exact < 0).any():
            return _rounded(RoundingPass(self.problem, target, chain, self.pins))
        exact = sums.exact
        within = [label for label in chain if not is_refined(label, exact)]
        part = connected_parts(target.shape[1], [exact, *within, sums.bounded])
        # No exact answer and no query of the chain joins two parts: each is rounded alone, and not
        # at all if its least squares are integers.
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(part[order]) != 0, True])
        x = target.astype(np.int64)
        is_open = (target != x).any(axis=0)
        settled = np.add.reduceat(is_open[order].astype(np.int64), starts[:-1]) == 0
        result = RounderResult(SolveStatus.OPTIMAL, x)
        solver, iterations, relaxed = "flow", 0, False
        for number in np.flatnonzero(~settled):
            members = np.sort(order[starts[number] : starts[number + 1]])
            own = exact[members]
            used, kind = np.unique(own, return_inverse=True)
            by_type = np.argsort(kind.reshape(-1), kind="stable")
            members, kind = members[by_type], kind.reshape(-1)[by_type]
            values = sums.targets[:, used].astype(np.int64)
            parent = self.problem.parent_counts
            small = SiblingProblem(
                self.problem.geocodes,
                self.problem.cells[members],
                kind,
                None if parent is None else parent[members],
                values,
                values,
            )
            levels = [np.unique(label[members], return_inverse=True)[1] for label in within]
            result = _rounded(RoundingPass(small, target[:, members], levels))
            iterations += result.iterations
            relaxed |= result.relaxed
            solver = "highs" if result.solver == "highs" else solver
            if result.x is None:
                return replace(result, iterations=iterations, relaxed=relaxed)
            x[:, members] = result.x
        return RounderResult(SolveStatus.OPTIMAL, x, 0.0, iterations, solver, relaxed)


def _rounded(rounding: RoundingPass) -> RounderResult:
    """By network flow, else by HiGHS; where there is no 0/1 solution, the nearest integers."""
    return or_anywhere(round_pass(rounding), rounding.problem, rounding.target)
