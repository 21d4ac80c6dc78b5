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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ...census.queries import MarginalQuery
from ...runs.errors import SolveFailed
from ...solvers.highs import LinearProgram, solve
from . import interleaved, least_squares, rounder
from .exact_weights import ExactWeights
from .problem import Measurements, SiblingProblem, SolveRecord, add_constraints


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
        counts, found = interleaved.solve_interleaved(
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
    is_crossed = problem.lower > problem.upper
    if is_crossed.any():
        child, kind = np.argwhere(is_crossed)[0]
        return f"the bounds of type {kind} at geounit {problem.geocodes[child]}"
    n_types = problem.lower.shape[1]
    in_support = np.bincount(problem.type_of_cell, minlength=n_types) > 0
    is_absent = (problem.lower > 0) & ~in_support
    if is_absent.any():
        child, kind = np.argwhere(is_absent)[0]
        return (
            f"the lower bound of type {kind} at geounit {problem.geocodes[child]}, a type that "
            "the parent has no records of"
        )
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
        if problem.parent_counts is not None:
            if int(totals.sum()) != int(problem.parent_counts.sum()):
                return (
                    f"the invariant totals of geounits {_name_geounits(problem.geocodes)}, which "
                    "do not add up to the parent's"
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
    n_groups = 0 if types.group_totals is None else types.group_totals.size
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
        child = int(np.flatnonzero(problem.group_of_child == row)[0])
        return f"the invariant total that includes geounit {problem.geocodes[child]}"
    child, cell = divmod(row - n_groups, types.cells.size)
    side, kind = "upper" if is_over else "lower", types.type_of_cell[cell]
    return f"the {side} bound of type {kind} at geounit {problem.geocodes[child]}"


def _name_geounits(geocodes: Sequence[str] | np.ndarray) -> str:
    """The geounits' geocodes, only the first and last of many."""
    if len(geocodes) <= 3:
        return ", ".join(geocodes)
    return f"{geocodes[0]} to {geocodes[-1]}"
