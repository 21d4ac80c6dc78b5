"""What all solutions of a block's tables have in common: the least and the greatest of figures.

A figure whose least and greatest agree is proven from the release alone, whatever else is open
[GenerateVerify2025]; a withheld cell is protected as far as its range is wide.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ...solvers.highs import HighsResult, SolveStatus, solve
from .reconstruction import Effort
from .systems import UNBOUNDED, TableSystem, tighten


def ranges(
    system: TableSystem,
    lower: np.ndarray,
    upper: np.ndarray,
    wanted: sparse.csr_array,
    *,
    integral: bool = True,
    effort: Effort | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest of `wanted @ x` of one block over x >= 0 within the bounds.

    `lower` and `upper` have shape `(rows,)`. With `integral` x is whole, else any real histogram,
    as in the rules of cell suppression. Within the limits of the effort; where they are met, the
    range is as wide as what is proven. Infinite where nothing bounds a figure; NaN without any x.
    """
    effort = effort or Effort()
    low, high = np.zeros(system.n_cells, np.int64), np.full(system.n_cells, UNBOUNDED)
    bounds = (lower.astype(np.int64), upper.astype(np.int64))
    n_wanted = wanted.shape[0]
    if integral and not tighten(*system.indices, *bounds, low, high):
        return np.full(n_wanted, np.nan), np.full(n_wanted, np.nan)
    free = np.flatnonzero(high > low)
    matrix = sparse.csr_array(sparse.csc_array(system.matrix)[:, free], dtype=float)
    fixed = system.matrix @ np.where(high > low, 0, low)
    used = np.flatnonzero(np.diff(matrix.indptr))
    part = sparse.csr_array(matrix[used])
    row_lower, row_upper = (_finite(end - fixed)[used] for end in bounds)
    wanted = sparse.csr_array(wanted, dtype=float)
    base = wanted @ np.where(high > low, 0, low)
    open_part = sparse.csr_array(sparse.csc_array(wanted)[:, free]).toarray()
    found = np.stack([base, base]).astype(float)

    def solved(cost: np.ndarray) -> HighsResult:
        return solve(
            cost,
            part,
            row_lower,
            row_upper,
            _finite(low[free]),
            _finite(high[free]),
            integral=np.ones(len(free), dtype=bool) if integral else None,
            node_limit=effort.solver_nodes,
            time_limit=effort.seconds,
        )

    if solved(np.zeros(len(free))).status is SolveStatus.INFEASIBLE:
        return np.full(n_wanted, np.nan), np.full(n_wanted, np.nan)
    for row in np.flatnonzero(open_part.any(axis=1)):
        for place, sign in enumerate((1.0, -1.0)):
            result = solved(sign * open_part[row])
            proven = result.bound
            if result.status is SolveStatus.OPTIMAL:
                proven = result.objective
            elif result.status is not SolveStatus.LIMIT:
                proven = -np.inf
            found[place, row] += sign * proven
    return found[0], found[1]


def _finite(values: np.ndarray) -> np.ndarray:
    """Bounds as floats, unbounded ones infinite."""
    return np.where(values >= UNBOUNDED // 2, np.inf, np.asarray(values, dtype=float))
