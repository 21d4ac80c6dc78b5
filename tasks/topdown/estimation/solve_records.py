"""How solves of the estimation ended."""

from __future__ import annotations

from dataclasses import dataclass

from ...solvers.highs import SolveStatus


@dataclass(frozen=True)
class SolveRecord:
    """How one solve ended, as it is kept with the estimates.

    parent : empty before the solve's siblings are told.
    stage : "least squares 1", ..., "rounder", or "settled" where nothing was left to estimate.
    solver : "active set", "dual newton", "admm", "flow", "highs" as the fallback of others, or
        "none"; the rounder's with ", exchange" where one followed.
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
