"""Integer projections of noisy children onto their parent's count, many parents at once.

Parent p has the children `values[offsets[p]:offsets[p + 1]]`, integers x that noise may have made
negative, and a count c >= 0. Both projections find integers y >= 0 with sum y = c:

- the Chebyshev one minimises max |x - y|. It is the one of the many minimisers found by Algorithm 2
  of [InfTDA2024].
- the Euclidean one minimises sum (x - y)^2 over the integers, without rounding a relaxation.

Algorithm 2 starts from a sum that is too large and goes over the children in a fixed order again
and again, each time allowed to take one more from every child. All its passes but the last treat
every child equally, so that they have a closed form, a water level: after a pass at level t, y =
max(0, x - t). The level is found from sorted partial sums, and one last pass in the same order
takes the remainder. The Euclidean minimiser has the same form, with levels of either sign. Time is
d log d for d children.

`smallest_first` visits the children in ascending order of x, which removes small values, probably
noise; otherwise in descending order, which keeps them. Equal values are taken in their given order.

The Chebyshev projection by a general solver, for comparison: any minimiser, as HiGHS finds it.

For one parent: minimise alpha subject to |x - y| <= alpha, y >= 0, sum y = c, all integer. With
alpha fixed, the rows are bounds and one sum, so that every vertex of the polytope is integral if
alpha is; hence the integer optimum is the optimum of the linear relaxation, rounded up. Two linear
programs over many parents therefore solve their integer programs: one for the levels, and one for
a vertex at the rounded levels, which no heuristic chooses among the minimisers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...runs.errors import SolveFailed
from ...solvers.highs import LinearProgram, SolveStatus
from ...tables.columns import cut_into_runs


def integer_projection(
    values: np.ndarray,
    offsets: np.ndarray,
    totals: np.ndarray,
    *,
    is_euclidean: bool = False,
    smallest_first: bool = True,
) -> np.ndarray:
    """Algorithm 2, or the nearest integer point in the L2 norm, on every segment: `values` (n,),
    `offsets` (k + 1,), `totals` (k,), all int64.

    Returns y, shape `(n,)`, int64. Raises ValueError for a negative total, or a positive one
    without children.

    >>> integer_projection(np.array([0, -1, 1]), np.array([0, 3]), np.array([2])).tolist()
    [0, 0, 2]
    """
    values, offsets, totals = (
        np.ascontiguousarray(array, dtype=np.int64) for array in (values, offsets, totals)
    )
    if (totals < 0).any():
        raise ValueError("a parent's count is negative")
    if (totals[np.diff(offsets) == 0] > 0).any():
        raise ValueError("a parent with a positive count has no children")
    result = np.empty_like(values)
    _project_segments(values, offsets, totals, smallest_first, not is_euclidean, result)
    return result


@njit(nogil=True, cache=True)
def _project_segments(
    values: np.ndarray,
    offsets: np.ndarray,
    totals: np.ndarray,
    smallest_first: bool,
    chebyshev: bool,
    result: np.ndarray,
) -> None:
    for p in range(totals.size):
        x = values[offsets[p] : offsets[p + 1]]
        y = result[offsets[p] : offsets[p + 1]]
        if totals[p] == 0:
            y[:] = 0
        elif chebyshev:
            _project_chebyshev(x, totals[p], smallest_first, y)
        else:
            order = _sort_indices(x, smallest_first)
            level = _water_level(x, totals[p], smallest_first, order)
            _fill_to_level(x, totals[p], level, order, y)


@njit(nogil=True, cache=True)
def _project_chebyshev(x: np.ndarray, total: int, smallest_first: bool, y: np.ndarray) -> None:
    """Lines 2 to 12 of Algorithm 2; `level` is its t."""
    missing = total - x.sum()
    step = -(-missing // x.size)
    level = 0
    excess = -total
    for i in range(x.size):
        z = max(step, -x[i])
        level = max(level, abs(z))
        y[i] = x[i] + z
        excess += y[i]
    if excess == 0:
        return
    room = 0
    for i in range(x.size):
        room += y[i] - max(0, x[i] - level)
    order = _sort_indices(x, smallest_first)
    if room < excess:
        _fill_to_level(x, total, _water_level(x, total, smallest_first, order), order, y)
    else:
        _take(x, excess, level, order, y)


@njit(nogil=True, cache=True)
def _fill_to_level(x: np.ndarray, total: int, level: int, order: np.ndarray, y: np.ndarray) -> None:
    """y = max(0, x - level) where the sum allows it: the last pass, from the level before."""
    excess = -total
    for i in range(x.size):
        y[i] = max(0, x[i] - level + 1)
        excess += y[i]
    _take(x, excess, level, order, y)


@njit(nogil=True, cache=True)
def _take(x: np.ndarray, excess: int, level: int, order: np.ndarray, y: np.ndarray) -> None:
    """Lower y in the given order, no further than max(0, x - level), until `excess` is gone."""
    for i in order:
        if excess == 0:
            return
        taken = min(excess, y[i] - max(0, x[i] - level))
        y[i] -= taken
        excess -= taken


@njit(nogil=True, cache=True)
def _water_level(x: np.ndarray, total: int, smallest_first: bool, order: np.ndarray) -> int:
    """The smallest integer t with sum max(0, x - t) <= total.

    While t is no less than the (k + 1)-th largest value, the sum is the sum of the k largest less k
    t; the first k for which the t of equality, rounded up, is that large gives the level.
    """
    top = 0
    level = 0
    for k in range(1, x.size + 1):
        top += x[order[x.size - k]] if smallest_first else x[order[k - 1]]
        level = -(-(top - total) // k)
        if k < x.size:
            following = x[order[x.size - k - 1]] if smallest_first else x[order[k]]
            if level >= following:
                return level
    return level


@njit(nogil=True, cache=True)
def _sort_indices(x: np.ndarray, smallest_first: bool) -> np.ndarray:
    """Indices of x in ascending or descending order, equal values in their given order."""
    return np.argsort(x if smallest_first else -x, kind="mergesort")


CHILDREN_PER_SOLVE = 4096
"""Children of consecutive parents that share a linear program: calls cost, and so does size."""

ROUNDING = 1e-6
"""An optimal level this little above an integer is that integer."""


def chebyshev_by_highs(values: np.ndarray, offsets: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """A minimiser of the Chebyshev distance in every segment; arrays as for
    `integer_projection`.

    Raises SolveFailed if HiGHS does not return an integral optimum.

    >>> y = chebyshev_by_highs(np.array([0, -1, 1]), np.array([0, 3]), np.array([2]))
    >>> int(y.sum()), int(abs(y - [0, -1, 1]).max())
    (2, 1)
    """
    result = np.zeros_like(values)
    for start, stop in cut_into_runs(np.diff(offsets), CHILDREN_PER_SOLVE):
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
