"""A linear program to which columns are added, solved from its last basis each time.

Column generation solves many programs of which each has a few columns more than the one before, and
diving for whole numbers many that differ in a few bounds. Kept in HiGHS, each takes a few steps of
the simplex method.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from .highs import quiet_solver

_DUAL, _PRIMAL = 1, 4
"""What HiGHS calls the two simplex methods: new bounds leave a basis optimal but for feasibility,
and new columns leave it feasible."""

_QUICKLY: dict[str, bool | int | float | str] = {
    "presolve": "off",
    "mip_allow_restart": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_heuristic_run_feasibility_jump": False,
}
"""Of small programs HiGHS solves no smaller ones besides, which takes it most of its time; nor
does it begin anew. Nor does it look for reductions first: in some of a household or two that have
no whole solution it never ends (1.15), and hears of no limit."""


@dataclass(frozen=True)
class GrownSolution:
    """Values of the columns in the order of their addition, and the objective.

    duals : prices of the rows, none of an integer program. bound : no solution is below it.
    """

    x: np.ndarray
    objective: float
    duals: np.ndarray
    bound: float


class GrowingProgram:
    """Minimise cost'x subject to bounds on rows and columns; columns may be added at any time."""

    def __init__(self, row_lower: np.ndarray, row_upper: np.ndarray) -> None:
        self._solver = quiet_solver()
        self._solver.setOptionValue("presolve", "off")
        n, none = len(row_lower), np.zeros(0, dtype=np.int32)
        starts = np.zeros(n, dtype=np.int32)
        self._solver.addRows(n, row_lower, row_upper, 0, starts, none, np.zeros(0))
        self._method = _PRIMAL
        self.n_columns = 0

    def add(
        self, cost: np.ndarray, starts: np.ndarray, rows: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Add columns that are not negative; their entries stand end to end, those of each from
        `starts` on. Returns their numbers."""
        n = len(cost)
        if n:
            self._solver.addCols(
                n,
                cost.astype(np.float64),
                np.zeros(n),
                np.full(n, np.inf),
                len(rows),
                starts.astype(np.int32),
                rows.astype(np.int32),
                values.astype(np.float64),
            )
            self._method = _PRIMAL
        self.n_columns += n
        return self.n_columns - n + np.arange(n)

    def bound(self, columns: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Set the bounds of some columns."""
        self._solver.changeColsBounds(
            len(columns),
            columns.astype(np.int32),
            lower.astype(np.float64),
            upper.astype(np.float64),
        )
        self._method = _DUAL

    def solved(self, iteration_limit: int) -> GrownSolution | None:
        """An optimal solution, found from the last basis; None where none is within the limit."""
        self._solver.setOptionValue("simplex_strategy", self._method)
        self._solver.setOptionValue("simplex_iteration_limit", iteration_limit)
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = self._solver.getSolution()
        objective = float(self._solver.getInfo().objective_function_value)
        return GrownSolution(
            np.array(found.col_value), objective, np.array(found.row_dual), objective
        )

    def solved_in_integers(
        self,
        integral: np.ndarray,
        most: np.ndarray,
        node_limit: int,
        gap: tuple[float, float],
        known: np.ndarray | None,
    ) -> GrownSolution | None:
        """The best solution found with whole numbers in the columns `integral`, by so many nodes
        and to that share of its objective, or that much; None where none was found. `known` is one
        to begin with; `most` are numbers that no column has more of by the rows alone, without
        which HiGHS spends most of its time on bounds that reduced costs might give (1.15).
        """
        solver = quiet_solver()
        solver.passModel(self._without_empty_rows())
        options = _QUICKLY | {
            "mip_max_nodes": node_limit,
            "mip_rel_gap": gap[0],
            "mip_abs_gap": gap[1],
        }
        for name, value in options.items():
            solver.setOptionValue(name, value)
        n = len(integral)
        numbers = integral.astype(np.int32)
        solver.changeColsBounds(n, numbers, np.zeros(n), most.astype(np.float64))
        solver.changeColsIntegrality(n, numbers, np.ones(n, dtype=np.uint8))
        if known is not None:
            begun = highspy.HighsSolution()
            begun.col_value = known.tolist()
            solver.setSolution(begun)
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != highspy.kSolutionStatusFeasible:
            return None
        x = np.array(solver.getSolution().col_value)
        none = np.zeros(0)
        return GrownSolution(
            x, float(info.objective_function_value), none, float(info.mip_dual_bound)
        )

    def _without_empty_rows(self) -> highspy.HighsLp:
        """The program without rows that no column has an entry in and that hold all the same: most
        slots of a catalogue are of no pattern of a block."""
        own, lp = self._solver.getLp(), highspy.HighsLp()
        lower, upper = np.array(own.row_lower_), np.array(own.row_upper_)
        row = np.array(own.a_matrix_.index_, dtype=np.int32)
        is_kept = (lower > 0) | (upper < 0)
        is_kept[row] = True
        place = np.cumsum(is_kept, dtype=np.int32) - 1
        lp.num_col_, lp.num_row_ = own.num_col_, int(is_kept.sum())
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = own.col_cost_, own.col_lower_, own.col_upper_
        lp.row_lower_, lp.row_upper_ = lower[is_kept], upper[is_kept]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.value_ = own.a_matrix_.start_, own.a_matrix_.value_
        lp.a_matrix_.index_ = place[row]
        return lp
