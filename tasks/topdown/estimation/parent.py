"""The TopDown Algorithm for one parent: its children's counts from its own and their noisy answers.

The algorithm of [TopDown2022] goes down the spine; this module is one of its steps. The parent's
histogram is known; all its children are estimated from it at once, first as real numbers by least
squares, then as integers by rounding. Equations have the numbers of its section 7.

**Given**, for c children and the k cells that are not zero in the parent (all other cells are zero
in every child), in records (persons or housing units):

    x^          (k,)      the parent's counts, integers;
    M           (c, n)    noisy answers to the n rows of the stacked queries Q (n, k) of 0 and 1;
    W[i]        (n, n)    diagonal: the inverse variances of child i's noise, one number a query, up
                          to a factor common to all; 0 where the child was not measured;
    l, u        (c, T)    bounds on each child's records of each type of cell;
    t           (G,)      exact totals of G groups of children, which are invariants.

`SiblingProblem` holds all but M and W, which are `Measurements`. A matrix x (c, k) is *feasible* if

    x >= 0,   sum_i x[i, j] = x^[j] for every cell j,
    l[i, T] <= sum of x[i, j] over cells j of type T <= u[i, T],
    sum of x[i, j] over the children i of group g, and all j, = t[g].

The root has no parent and is estimated alone, without the second condition: problems (7.1) and
(7.3) of the paper, where those with children are (7.2) and (7.4).

**1. Settled.** If c = 1 the child's counts are x^; if x^ = 0 all are zero. Nothing is solved.

**2. Least squares**, in K passes (`least_squares`). Pass k takes the queries Q_k with answers M_k:

    (7.5)   x_k = argmin  sum_i (Q_k x[i] - M_k[i])' W_k[i] (Q_k x[i] - M_k[i])
            over feasible x with  |Q_j (x - x_j)| <= tau_j  for all passes j < k,

    (7.6)   tau_k = min tau  over tau and feasible x with  |Q_j (x - x_k)| <= tau,  j <= k.

With K = 1 this is (7.2). Early passes cover counts that are seldom zero, such as totals: were all
asked at once, the bound at zero of many small cells would push their sum, the total, upwards.
Problem (7.6) is needed since x_k meets its constraints only to within floating-point error. If x_k
is not exact, we solve (7.6) with the answers of earlier passes held. The answers of its minimiser,
with no tolerance tau_k, are what later passes are held to. This is always possible, since the
minimiser is feasible, and tolerances do not add up. The last x_K is x~.

**3. Rounding**, in passes (`rounder`). Each cell is rounded to the integer below or above: pass k
finds

    (7.7)   y_k = argmin  sum |Q_k (x~ - floor(x~) - y)|   over y in {0, 1} (c, k)
            with floor(x~) + y feasible and  Q_j y = Q_j y_j  for all passes j < k,

and the estimate is floor(x~) + y of the last pass. The basic rounder (7.4) is the case of one pass
whose only query is the identity. The queries of a pass are nested, each a sum of the rows of
the next, so that the constraints are totally unimodular: the problem is a network flow, whose
optimum is integral. Where the pass of the least squares was wide (`PassProblem.is_wide`), an
exchange of ones recovers accuracy lost on queries that cross these (`exchange`).

**Where it fails.** If no x is feasible, the invariants or bounds contradict each other, and
SolveFailed names the geounit and the constraint. If a pass of the least squares cannot hold the
answers of earlier ones, all queries go into one pass, which holds none; if there was one pass
only, SolveFailed ends the run. If a pass of the rounder has no 0/1 solution, the nearest feasible
integers are taken. In both cases the records of these solves are marked `relaxed`. Feasibility is
never given up.

**Passes that interleave**: least squares and rounder in turn, on few classes of cells. Pass p
finds, for its measured queries Q_p with noisy answers M_p, and its rounder's nested queries R_p,

    x_p = argmin  sum_i (Q_p x[i] - M_p[i])' W_p[i] (Q_p x[i] - M_p[i])   over feasible x with
          R_q x = r_q for all passes q < p,
    y_p = the rounder (7.7) of [TopDown2022] of x_p with the queries R_p, under the same conditions,
    r_p = R_p y_p,

and the last pass's y is the estimate. So a query of few answers is decided in integers before the
cells below it are looked at.

*Classes.* Cells that no measured query, rounder's query, held answer or constraint of a pass
distinguishes are one variable of the pass (`SiblingProblem.coarsened`). A solution on classes lifts
to one on cells, and the matrix of siblings' sums over nested rows is totally unimodular, so that
every pass finds the answers of earlier ones attainable in integers. In the last pass the classes
are the cells.

*Parts.* Where answers of earlier passes separate classes from each other, these are solved on
their own, least squares (`least_squares.PassProblem`) and rounder: small matrices and networks.
Passes with linear rows, and with earlier answers that do not nest, are solved whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ...census.queries import MarginalQuery
from ...runs.errors import SolveFailed
from ...solvers.highs import LinearProgram, solve
from . import least_squares, rounder
from .exact_weights import ExactWeights
from .least_squares import PassProblem
from .problem import (
    Measurements,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    Solution,
    SolveRecord,
    add_constraints,
    is_refined,
    rows_on_support,
)
from .rounder import RoundingPass, retry_anywhere, round_anywhere, round_pass, snap_to_grid

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
        for stage, own in (("least squares", record), ("rounder", result.record)):
            records.append(replace(own, stage=f"{stage} {number}", n_cells=coarse.cells.size))
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

    def solved(self) -> tuple[SolveRecord, Solution]:
        """How the least squares ended, and the rounder with its integers, of all parts."""
        x = np.zeros((self.problem.n_children, self.problem.cells.size), dtype=np.int64)
        records, rounded = [], []
        parts = self.parts()
        for members in parts:
            record, result = (self if len(parts) < 2 else self.at(members)).solved_whole()
            if result.x is None:
                return record, result
            x[:, members] = result.x
            records.append(record)
            rounded.append(result.record)
        worst = max(records, key=lambda record: record.primal_residual)
        last = max(rounded, key=lambda record: (record.relaxed, record.solver))
        return (
            replace(worst, iterations=sum(record.iterations for record in records)),
            Solution(x, replace(last, iterations=sum(record.iterations for record in rounded))),
        )

    def solved_whole(self) -> tuple[SolveRecord, Solution]:
        """How the least squares ended, and the rounder with its integers."""
        one = PassProblem.build(self.problem, self.asked, self.labels, self.pins)
        target, record = one.solve_exactly()
        if target is None:
            return record, Solution(None, record)
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


@dataclass(frozen=True)
class Passes:
    """Passes of the least squares (names of queries) and of the rounder (chains of queries).

    Where they are interleaved, the two passes of one number form a pass of `interleaved`.
    """

    least_squares: tuple[tuple[str, ...], ...]
    rounder: tuple[tuple[MarginalQuery, ...], ...]
    interleaved: bool = False


def settled_estimate(problem: SiblingProblem) -> np.ndarray | None:
    """The children's counts `(c, k)` if the parent's determine them, else None.

    They do for an only child, and for a parent without records or possible cells.
    """
    if not problem.cells.size:
        return np.zeros((problem.n_children, 0), dtype=np.int64)
    if problem.parent_counts is None:
        return None
    if problem.n_children == 1:
        return problem.parent_counts[None, :].astype(np.int64)
    if not problem.parent_counts.any():
        return np.zeros((problem.n_children, problem.cells.size), dtype=np.int64)
    return None


def estimate_children(
    parent: str,
    problem: SiblingProblem,
    measurements: Measurements,
    passes: Passes,
    weights: ExactWeights | None = None,
) -> tuple[np.ndarray, tuple[SolveRecord, ...]]:
    """Non-negative integer histograms `(c, k)` of the children, and how they were found.

    Takes the three steps of the module's docstring. Raises SolveFailed, naming the geounit and the
    constraint, if no histogram can meet the constraints. If only the passes are in conflict, they
    are merged into one: parent sums, bounds and invariants hold in any case. `weights` are those of
    `least_squares.solve_passes`; interleaved passes take none.
    """
    broken = infeasible_constraint(problem)
    if broken is not None:
        raise _infeasible(parent, broken)
    c, k = problem.n_children, problem.cells.size

    settled = settled_estimate(problem)
    if settled is not None:
        return settled, (SolveRecord(parent, "settled", n_children=c, n_cells=k),)

    if passes.interleaved:
        counts, found = solve_interleaved(
            problem, measurements, passes.least_squares, passes.rounder
        )
        if counts is None:
            raise _infeasible(parent, _conflict(problem))
        return counts, tuple(replace(record, parent=parent, n_children=c) for record in found)

    x, is_wide, records = _least_squares(parent, problem, measurements, passes, weights)
    asked = [measurements[name].query for name in _measured_queries(passes, measurements)]
    rounded = rounder.solve_passes(problem, x, passes.rounder, asked if is_wide else ())
    if rounded.x is None:
        raise _infeasible(parent, _conflict(problem))
    records.append(replace(rounded.record, stage="rounder"))
    return rounded.x, tuple(
        replace(record, parent=parent, n_children=c, n_cells=k) for record in records
    )


def _least_squares(
    parent: str,
    problem: SiblingProblem,
    measurements: Measurements,
    passes: Passes,
    weights: ExactWeights | None,
) -> tuple[np.ndarray, bool, list[SolveRecord]]:
    """Step 2 of the module's docstring: x~ `(c, k)`, whether the last pass was wide, and records of
    all passes."""
    records: list[SolveRecord] = []
    attempts = [passes.least_squares]
    measured = [[n for n in names if n in measurements] for names in passes.least_squares]
    if sum(map(bool, measured)) > 1:
        attempts.append((_measured_queries(passes, measurements),))
    for attempt, least_squares_passes in enumerate(attempts):
        result = least_squares.solve_passes(problem, measurements, least_squares_passes, weights)
        records += [
            replace(record, stage=f"least squares {number}", relaxed=attempt > 0)
            for number, record in enumerate(result.passes, 1)
        ]
        if result.x is not None:
            return result.x, result.is_wide, records
    raise _infeasible(parent, _conflict(problem))


def _measured_queries(passes: Passes, measurements: Measurements) -> tuple[str, ...]:
    """The measured queries of all passes of the least squares."""
    return tuple(name for names in passes.least_squares for name in names if name in measurements)


def _conflict(problem: SiblingProblem) -> str | None:
    """Name of a constraint to be dropped; the linear rows if no bound or total conflicts."""
    found = conflicting_constraint(problem)
    if found is None and problem.rows:
        names = ", ".join(dict.fromkeys(rows.name for rows in problem.rows))
        return f"the linear constraints {names} together with its counts and bounds"
    return found


def _infeasible(parent: str, constraint: str | None) -> SolveFailed:
    """The error for children without a solution, naming the constraint if one is found."""
    where = f"The children of geounit {parent}" if parent else "The root of the spine"
    if constraint is None:
        return SolveFailed(
            f"{where} could not be solved, although the constraints do not contradict each other; "
            "report the run's solver records."
        )
    return SolveFailed(
        f"{where} cannot meet {constraint}; check the declared invariants and the bounds of the "
        "settings."
    )


def infeasible_constraint(problem: SiblingProblem) -> str | None:
    """Name of a constraint that no histogram of these children can meet, or None.

    Looks for crossed bounds, for a lower bound on a type that is not in the support, for parent
    counts of a type outside the sum of the children's bounds, and for totals outside the bounds
    or the parent. With totals and the parent's counts both fixed, constraints may conflict where it
    finds none; see `conflicting_constraint`.
    """
    n_types = problem.lower.shape[1]
    in_support = np.bincount(problem.type_of_cell, minlength=n_types) > 0
    for is_broken, words in (
        (problem.lower > problem.upper, "the bounds of type {} at geounit {}"),
        (
            (problem.lower > 0) & ~in_support,
            "the lower bound of type {} at geounit {}, a type that the parent has no records of",
        ),
    ):
        if is_broken.any():
            child, kind = np.argwhere(is_broken)[0]
            return words.format(kind, problem.geocodes[child])
    if problem.parent_counts is not None:
        of_type = np.bincount(problem.type_of_cell, problem.parent_counts, n_types)
        outside = (of_type < problem.lower.sum(axis=0)) | (of_type > problem.upper.sum(axis=0))
        if outside.any():
            return (
                f"the bounds of type {int(np.argmax(outside))} summed over geounits "
                f"{_name_geounits(problem.geocodes)}"
            )
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        n_groups = totals.size
        low = np.bincount(group, problem.lower.sum(axis=1), n_groups)
        high = np.bincount(group, np.where(in_support, problem.upper, 0).sum(axis=1), n_groups)
        outside = (totals < low) | (totals > high)
        if outside.any():
            child = int(np.flatnonzero(group == np.argmax(outside))[0])
            return f"the invariant total that includes geounit {problem.geocodes[child]}"
        if problem.parent_counts is not None and totals.sum() != problem.parent_counts.sum():
            return (
                f"the invariant totals of geounits {_name_geounits(problem.geocodes)}, which do "
                "not add up to the parent's"
            )
    return None


def conflicting_constraint(problem: SiblingProblem) -> str | None:
    """Name of a constraint to be dropped so that the others can hold, or None.

    Minimises the total violation of the children's bounds and totals over non-negative counts per
    child and type that add up to the parent's. It suffices to look at types: constraints do not
    distinguish cells of a type.
    """
    types = replace(problem, rows=()).coarsened([problem.type_of_cell])[0]
    column = np.arange(problem.n_children * types.cells.size).reshape(-1, types.cells.size)
    program = LinearProgram(column.size)
    add_constraints(program, types, column)
    group, totals = types.grouped_totals or (np.zeros(0), np.zeros(0))
    n_groups = totals.size
    n_fixed = program.n_rows - n_groups - column.size
    short = sparse.eye_array(program.n_rows, format="csr")[:, n_fixed:]
    matrix = sparse.csr_array(sparse.hstack([program.matrix(), short, -short]))
    cost = np.repeat([0.0, 1.0], [column.size, 2 * short.shape[1]])
    none, unbounded = np.zeros(cost.size), np.full(cost.size, np.inf)
    result = solve(cost, matrix, *program.bounds(), none, unbounded)
    if result.x is None or result.objective < 0.5:
        return None
    is_over, row = divmod(int(np.argmax(result.x[column.size :])), short.shape[1])
    if row < n_groups:
        child = int(np.flatnonzero(group == row)[0])
        return f"the invariant total that includes geounit {problem.geocodes[child]}"
    child, cell = divmod(row - n_groups, types.cells.size)
    side, kind = "upper" if is_over else "lower", types.type_of_cell[cell]
    return f"the {side} bound of type {kind} at geounit {problem.geocodes[child]}"


def _name_geounits(geocodes: Sequence[str] | np.ndarray) -> str:
    """The geounits' geocodes, only the first and last of many."""
    if len(geocodes) <= 3:
        return ", ".join(geocodes)
    return f"{geocodes[0]} to {geocodes[-1]}"
