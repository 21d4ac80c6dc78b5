"""Estimating the children of one parent: least squares, then the rounder, with their fallbacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from spineflow.tasks.runs.errors import SolveFailed
from spineflow.tasks.topdown.estimation import least_squares, rounder
from spineflow.tasks.topdown.estimation.infeasibility import (
    conflicting_constraint,
    infeasible_constraint,
)
from spineflow.tasks.topdown.estimation.problem import Measurements, SiblingProblem
from spineflow.tasks.topdown.workload.queries import MarginalQuery


@dataclass(frozen=True)
class SolveRecord:
    """How one solve ended, as it is kept with the estimates.

    stage : "least squares 1", ..., "rounder", or "settled" where nothing was left to estimate.
    solver : "active set", "flow", "highs" as the fallback of either, or "none".
    iterations : of all methods together; of the flow, augmenting paths.
    primal_residual : largest violation of a constraint, in records.
    dual_residual : largest violation of a multiplier's sign or of stationarity, relative to the
        largest gradient term; NaN where HiGHS's solution could not be certified.
    objective_gap : bound on the suboptimality, relative to the objective (plus one); NaN likewise.
    tau : the pass's tolerance, problem (7.6), in records.
    relaxed : the fail-safe dropped the agreement with earlier passes.
    """

    parent: str
    stage: str
    solver: str
    status: str
    n_children: int
    n_cells: int
    iterations: int = 0
    primal_residual: float = 0.0
    dual_residual: float = 0.0
    objective_gap: float = 0.0
    tau: float = 0.0
    relaxed: bool = False


@dataclass(frozen=True)
class Passes:
    """Passes of the least squares (names of queries) and of the rounder (chains of queries)."""

    least_squares: tuple[tuple[str, ...], ...]
    rounder: tuple[tuple[MarginalQuery, ...], ...]


def settled_estimate(problem: SiblingProblem) -> np.ndarray | None:
    """The children's counts `(c, k)` where the parent's leave no choice, else None.

    That is an only child, or a parent without records.
    """
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
) -> tuple[np.ndarray, tuple[SolveRecord, ...]]:
    """Non-negative integer histograms `(c, k)` of the children, and how they were found.

    Raises SolveFailed, naming the geounit and the constraint, if no histogram can meet the
    constraints. Should only the passes be in conflict, they are merged into one, then dropped:
    parent sums, bounds and invariants hold in any case.
    """
    broken = infeasible_constraint(problem)
    if broken is not None:
        raise _infeasible(parent, broken)
    c, k = problem.n_children, problem.cells.size

    def record(stage: str, solver: str, status: str, **facts) -> SolveRecord:
        return SolveRecord(parent, stage, solver, status, c, k, **facts)

    settled = settled_estimate(problem)
    if settled is not None:
        return settled, (record("settled", "none", "optimal"),)

    records: list[SolveRecord] = []
    merged = [name for names in passes.least_squares for name in names]
    for attempt, least_squares_passes in enumerate((passes.least_squares, (tuple(merged),))):
        result = least_squares.solve_passes(problem, measurements, least_squares_passes)
        records += [
            record(
                f"least squares {number}",
                entry.solver,
                entry.status.value,
                iterations=entry.iterations,
                primal_residual=entry.primal,
                dual_residual=entry.dual,
                objective_gap=entry.gap,
                tau=entry.tau,
                relaxed=attempt > 0,
            )
            for number, entry in enumerate(result.passes, 1)
        ]
        if result.success:
            break
    else:
        raise _infeasible(parent, conflicting_constraint(problem))
    rounded = rounder.solve_passes(problem, result.x, passes.rounder)
    records.append(
        record(
            "rounder",
            rounded.solver,
            rounded.status.value,
            iterations=rounded.iterations,
            relaxed=rounded.relaxed,
        )
    )
    if rounded.x is None:
        raise _infeasible(parent, conflicting_constraint(problem))
    return rounded.x, tuple(records)


def _infeasible(parent: str, constraint: str | None) -> SolveFailed:
    """The error for children that have no solution, naming the constraint where one is found."""
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
