"""The Chebyshev projection by a general solver, for comparison: any minimiser, as HiGHS finds it.

For one parent: minimise alpha subject to |x - y| <= alpha, y >= 0, sum y = c, all integer. With
alpha fixed, the rows are bounds and one sum, so that every vertex of the polytope is integral if
alpha is; hence the integer optimum is the optimum of the linear relaxation, rounded up. Two linear
programs over many parents therefore solve their integer programs: one for the levels, and one for
a vertex at the rounded levels, which no heuristic chooses among the minimisers.
"""

from __future__ import annotations

import numpy as np

from ...runs.errors import SolveFailed
from ...solvers.highs import LinearProgram, SolveStatus
from ...tables.columns import cut_at

CHILDREN_PER_SOLVE = 4096
"""Children of consecutive parents that share a linear program: calls cost, and so does size."""

ROUNDING = 1e-6
"""An optimal level this little above an integer is that integer."""


def chebyshev_by_highs(values: np.ndarray, offsets: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """A minimiser of the Chebyshev distance in every segment, shapes as in `projection`.

    Raises SolveFailed if HiGHS does not return an integral optimum.

    >>> y = chebyshev_by_highs(np.array([0, -1, 1]), np.array([0, 3]), np.array([2]))
    >>> int(y.sum()), int(abs(y - [0, -1, 1]).max())
    (2, 1)
    """
    values, offsets = np.asarray(values, dtype=np.int64), np.asarray(offsets, dtype=np.int64)
    totals = np.asarray(totals, dtype=np.int64)
    result = np.zeros_like(values)
    for start, stop in cut_at(np.diff(offsets), CHILDREN_PER_SOLVE):
        part = slice(offsets[start], offsets[stop])
        own = offsets[start : stop + 1] - offsets[start]
        result[part] = _solve_parents(values[part], own, totals[start:stop])
    return result


def _solve_parents(values: np.ndarray, offsets: np.ndarray, totals: np.ndarray) -> np.ndarray:
    n, n_parents = values.size, totals.size
    parent = np.repeat(np.arange(n_parents), np.diff(offsets))
    child = np.arange(n)
    infinite = np.full(n, np.inf)
    program = LinearProgram(n + n_parents)
    program.add_rows(parent, child, 1.0, totals)
    pair_rows, pair_columns = np.tile(child, 2), np.concatenate([child, n + parent])
    signs = np.repeat([1.0, -1.0], n)
    program.add_rows(pair_rows, pair_columns, signs, -infinite, values)
    program.add_rows(pair_rows, pair_columns, abs(signs), values, infinite)
    cost = np.concatenate([np.zeros(n), np.ones(n_parents)])
    levels = _optimum(cost, program)[n:]
    level = np.ceil(levels - ROUNDING)[parent]

    sums = LinearProgram(n)
    sums.add_rows(parent, child, 1.0, totals)
    return _optimum(np.zeros(n), sums, np.maximum(0, values - level), values + level).astype(
        np.int64
    )


def _optimum(cost: np.ndarray, program: LinearProgram, *bounds: np.ndarray) -> np.ndarray:
    """The solution, brought to integers where it is one to within `ROUNDING`."""
    found = program.solve(cost, *bounds)
    if found.status is not SolveStatus.OPTIMAL or found.x is None:
        raise SolveFailed(
            f"HiGHS ended a Chebyshev projection as {found.status}; use the mechanism 'inftda'."
        )
    whole = np.rint(found.x)
    if not cost.any() and np.abs(found.x - whole).max(initial=0.0) > ROUNDING:
        raise SolveFailed(
            "HiGHS returned a fractional Chebyshev projection; use the mechanism 'inftda'."
        )
    return whole if not cost.any() else found.x
