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
distinguishes are one variable of the pass (`SiblingProblem.coarsened`). A solution on classes lifts
to one on cells, and the matrix of siblings' sums over nested rows is totally unimodular, so that
every pass finds the answers of earlier ones attainable in integers. In the last pass the classes
are the cells.

**Parts.** Where answers of earlier passes separate classes from each other, these are solved on
their own, least squares (`least_squares.PassProblem`) and rounder: small matrices and networks.
Passes with linear rows, and with earlier answers that do not nest, are solved whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ...census.queries import MarginalQuery
from .least_squares import PassProblem
from .problem import (
    Measurements,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    SolveRecord,
    is_refined,
    rows_on_support,
)
from .rounder import (
    RounderResult,
    RoundingPass,
    retry_anywhere,
    round_anywhere,
    round_pass,
    snap_to_grid,
)

TOGETHER = 100
"""Classes of small parts that are solved together, since a solve takes longer to begin than one of
them takes."""


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
    passes = [
        ([measurements[name] for name in names if name in measurements], chain)
        for names, chain in zip(least_squares, rounder, strict=True)
    ]
    passes = [(asked, chain) for asked, chain in passes if asked]
    records: list[SolveRecord] = []
    held = Pins()
    counts = np.zeros((problem.n_children, problem.cells.size), dtype=np.int64)
    if not passes:
        return round_anywhere(problem, counts.astype(np.float64)).x, ()
    for number, (asked, chain) in enumerate(passes, 1):
        queried = [rows_on_support(m.query, problem.cells) for m in asked]
        rounded = [rows_on_support(query, problem.cells) for query in chain]
        # Cells that no type, query or earlier answer distinguishes are one class, whose count this
        # pass determines. The last pass gives each cell its own.
        is_last = number == len(passes)
        every = [np.arange(problem.cells.size)]
        coarse, _, first = problem.coarsened(
            every if is_last else [*queried, *rounded, *held.labels]
        )
        pins = held.at(first).finest()
        one = _Pass(
            coarse,
            asked,
            [label[first] for label in queried],
            [label[first] for label in rounded],
            pins,
        )
        record, result = one.solved()
        for stage, solve in (("least squares", record), ("rounder", result.record)):
            records.append(replace(solve, stage=f"{stage} {number}", n_cells=coarse.cells.size))
        if result.x is None:
            return None, tuple(records)
        counts = result.x
        held = held.with_answers(rounded, counts, first)
    return counts, tuple(records)


@dataclass(frozen=True)
class _Pass:
    """A pass on its classes of cells, or some of these: measurements with the row of each class,
    the same for the rounder's chain, and the answers of earlier passes that no others imply.
    """

    problem: SiblingProblem
    asked: Sequence[QueryMeasurement]
    labels: Sequence[np.ndarray]
    chain: Sequence[np.ndarray]
    pins: Pins

    def solved(self) -> tuple[SolveRecord, RounderResult]:
        """How the least squares ended, and the rounder with its integers, of all parts."""
        x = np.zeros((self.problem.n_children, self.problem.cells.size), dtype=np.int64)
        records, results = [], []
        parts = self.parts()
        for members in parts:
            record, result = (self if len(parts) < 2 else self.at(members)).solved_whole()
            if result.x is None:
                return record, result
            x[:, members] = result.x
            records.append(record)
            results.append(result)
        worst = max(records, key=lambda record: record.primal_residual)
        last = max(results, key=lambda result: (result.relaxed, result.solver))
        return (
            replace(worst, iterations=sum(record.iterations for record in records)),
            replace(last, x=x, iterations=sum(result.iterations for result in results)),
        )

    def solved_whole(self) -> tuple[SolveRecord, RounderResult]:
        """How the least squares ended, and the rounder with its integers."""
        one = PassProblem.build(self.problem, self.asked, self.labels, self.pins)
        target, record = one.solve_exactly()
        if target is None:
            return record, RounderResult(record.status, None)
        rounding = RoundingPass(self.problem, snap_to_grid(target), self.chain, self.pins)
        return record, retry_anywhere(round_pass(rounding), self.problem, rounding.target)

    def parts(self) -> list[np.ndarray]:
        """Positions of classes that no query and no sum joins with others; small parts together."""
        k, pins = self.problem.cells.size, self.pins
        if (
            k <= TOGETHER
            or self.problem.rows
            or len(pins.labels) != 1
            or not is_refined(self.problem.type_of_cell, pins.labels[0])
        ):
            return [np.arange(k)]
        held = pins.labels[0]
        rows = [label for label in (*self.labels, *self.chain) if not is_refined(label, held)]
        part = connected_parts([held, *rows])
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(part[order]) != 0])
        bundles = np.unique(np.searchsorted(starts, np.arange(TOGETHER, k, TOGETHER)))
        found = np.split(order, starts[bundles[bundles < starts.size]])
        return [members[np.argsort(held[members], kind="stable")] for members in found]

    def at(self, members: np.ndarray) -> _Pass:
        """The pass on the classes at these positions, which are parts: the answers of earlier
        passes are the types of cells there, and imply all bounds."""
        problem, held = self.problem, self.pins.labels[0]
        kind, used = _dense(held[members]), np.unique(held[members])
        targets = self.pins.targets[0][:, used]
        exact = np.rint(targets).astype(np.int64)
        counts = None if problem.parent_counts is None else problem.parent_counts[members]
        cells = problem.cells[members]
        return _Pass(
            SiblingProblem(problem.geocodes, cells, kind, counts, exact, exact),
            self.asked,
            [_dense(label[members]) for label in self.labels],
            [_dense(label[members]) for label in self.chain],
            Pins((kind,), (targets,)),
        )


def _dense(label: np.ndarray) -> np.ndarray:
    """A labelling with its rows renumbered, without empty ones."""
    return np.unique(label, return_inverse=True)[1].reshape(-1)


def connected_parts(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Number `(k,)` of the part of each class; classes that share a row of one of the labellings
    (k,) are in one part.

    >>> connected_parts([np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])])
    array([0, 1, 1, 1])
    """
    k, n = labels[0].size, 0
    rows = []
    for label in labels:
        rows.append(label + k + n)
        n += int(label.max(initial=-1)) + 1
    pairs = np.tile(np.arange(k), len(rows)), np.concatenate(rows)
    graph = sparse.coo_array((np.ones(pairs[0].size), pairs), (k + n, k + n))
    _, part = sparse.csgraph.connected_components(graph, directed=False)
    return _dense(part[:k])
