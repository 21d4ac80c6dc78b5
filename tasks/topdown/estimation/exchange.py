"""Exchange after the rounder: move ones to bring answers to crossing queries close to x~'s.

The rounder's queries are nested, so that problem (7.7) of [TopDown2022] sees no margin across
them. Where x~ is spread over many cells, each a fraction of a record, it takes the largest
fractions, and the small ones' share of every other margin is lost. This is the local search that
follows: from floor(x~) + y it lowers

    sum over children, asked queries and their rows of |answer of floor(x~) + y - answer of x~|

with every cell still rounded up or down. A move takes a one in cell j from child a to child b, and
a one in cell l from b to a; at the root, which has no siblings, from j to l. So every child keeps
its total, and every cell its sum over siblings. Moves are made only between cells that the kept
labellings do not distinguish (the rounder's queries, linear rows), and none breaks a type's bounds.

At the root, unless cells themselves were measured, the search begins with ones spread along the
cells as in systematic sampling, so that unmeasured queries also get their shares. If its result is
farther off than the rounder's, it begins with the latter, as elsewhere.

A sweep goes through the pairs of siblings. For each it takes the cells whose one costs least to
move, at most `VISITS`, and for each of these the best cell to move back, by a scan of all: to keep
them in order would cost more, since every move changes it. The move is made if the sum falls. A
pair without changes since its last fruitless visit is skipped. Sweeps continue until one finds
nothing, within `SWEEPS` and `LOOKS`. All arithmetic is in integers, in units of 2^-24 records, and
ties go to the first cell, so that every machine finds the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from .network_flow import UNIT
from .problem import SiblingProblem, joint_classes, sum_rows

SWEEPS, VISITS = 20, 300
"""Most sweeps, and most cells whose one a sweep tries to move between two siblings."""
LOOKS = 1500
"""Most looks at a cell in a search, for each cell of a child."""


def exchange_records(
    problem: SiblingProblem,
    target: np.ndarray,
    x: np.ndarray,
    kept: Sequence[np.ndarray],
    asked: Sequence[np.ndarray],
) -> tuple[np.ndarray, int]:
    """`x` (c, k) after the search of the module's docstring, and the number of moves.

    target : (c, k) on the rounder's grid; each x is its floor or one more. kept, asked :
    row of every cell (k,) in each labelling whose answers stay, and in each asked query.
    """
    k, base = problem.cells.size, np.floor(target)
    sizes = [int(label.max(initial=-1)) + 1 for label in asked]
    starts = np.cumsum([0, *sizes[:-1]])
    columns = np.array([label + start for label, start in zip(asked, starts, strict=True)])
    # Moves stay within the classes of cells that the kept labellings do not distinguish.
    linear = [rows.labels() for rows in problem.rows]
    classes = joint_classes([np.zeros(k, dtype=np.int64), *kept, *linear])

    def errors(x: np.ndarray) -> np.ndarray:
        """Answers of x less the target's, (c, R), in units."""
        found = np.hstack([sum_rows(x - target, label) for label in asked])
        return np.rint(found * UNIT).astype(np.int64)

    def search(x: np.ndarray) -> tuple[np.ndarray, int]:
        """x after the search, and the number of moves."""
        ones = (x - base).astype(np.int8)
        of_type = sum_rows(x, problem.type_of_cell, problem.lower.shape[1])
        state = _State(
            ones,
            target > base,
            errors(x),
            np.ascontiguousarray(columns.T, dtype=np.int64),
            problem.type_of_cell.astype(np.int64),
            of_type.astype(np.int64),
            problem.lower.astype(np.int64),
            problem.upper.astype(np.int64),
        )
        has_parent = problem.parent_counts is not None
        moves = _exchange(state, *_sort_by_class(classes), has_parent, LOOKS * ones.size)
        return base.astype(np.int64) + ones, moves

    if problem.parent_counts is None and k not in sizes:
        # The ones of each class and type where a systematic sample has them.
        ones = (x - base).astype(np.int8)
        fraction = np.rint((target - base) * UNIT).astype(np.int64)
        _spread(ones, fraction, *_sort_by_class(joint_classes([classes, problem.type_of_cell])))
        found, moves = search(base.astype(np.int64) + ones)
        if np.abs(errors(found)).sum() <= np.abs(errors(x)).sum():
            return found, moves
    return search(x)


class _State(NamedTuple):
    """State changed by moves and their constraints, in the form for compiled code.

    ones, is_free : (c, k) y, and the cells that are no integers. error : (c, R) answers of
    floor(x~) + y less the answers of x~, in units. asked : (k, n_queries) columns of `error` that
    each cell is counted in. type_of_cell (k,), of_type, lower, upper (c, T) : records of each type,
    and their bounds.
    """

    ones: np.ndarray
    is_free: np.ndarray
    error: np.ndarray
    asked: np.ndarray
    type_of_cell: np.ndarray
    of_type: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def _sort_by_class(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells in the order of their classes, and where each class begins."""
    order = np.argsort(classes, kind="stable")
    return order, np.searchsorted(classes[order], np.arange(int(classes.max(initial=-1)) + 2))


@njit(cache=True, nogil=True)
def _spread(
    ones: np.ndarray, fraction: np.ndarray, order: np.ndarray, class_starts: np.ndarray
) -> None:
    """Place the ones (c, k) of each class anew in proportion to `fraction`, as sums along its cells
    exceed the ones before by a half; a class where these do not fit stays.
    """
    for i in range(ones.shape[0]):
        for number in range(class_starts.size - 1):
            cells = order[class_starts[number] : class_starts[number + 1]]
            n, total = 0, 0
            for j in cells:
                n += ones[i, j]
                total += fraction[i, j]
            placed = np.zeros(cells.size, dtype=np.int8)
            due, left = 0, n
            for place in range(cells.size):
                due += fraction[i, cells[place]] * n
                if left > 0 and fraction[i, cells[place]] > 0 and 2 * due >= total:
                    placed[place] = 1
                    due -= total
                    left -= 1
            if left == 0:
                for place in range(cells.size):
                    ones[i, cells[place]] = placed[place]


@njit(cache=True, nogil=True)
def _exchange(
    state: _State, order: np.ndarray, class_starts: np.ndarray, has_parent: bool, limit: int
) -> int:
    """Sweeps of at most `limit` looks at a cell; returns the moves.

    Neighbouring siblings come first, so that a limit affects all of them alike.
    """
    c = state.ones.shape[0]
    moves, visit = 0, 0
    # Visit of the last change of each child, and of the last fruitless look at each pair.
    changed, seen = np.zeros(c, dtype=np.int64), np.full((c, c), -1, dtype=np.int64)
    for _ in range(SWEEPS):
        before = moves
        for apart in range(1, c if has_parent else 2):
            for a in range(c - apart if has_parent else c):
                b = a + apart if has_parent else -1
                other = b if has_parent else a
                if seen[a, other] >= max(changed[a], changed[other]):
                    continue
                visit += 1
                made, looks = 0, 0
                for number in range(class_starts.size - 1):
                    cells = order[class_starts[number] : class_starts[number + 1]]
                    of_class, looked = _exchange_pair(state, a, b, cells, limit - looks)
                    made += of_class
                    looks += looked
                    if looks >= limit:
                        return moves + made
                limit -= looks
                moves += made
                if made:
                    changed[a] = changed[other] = visit
                else:
                    seen[a, other] = visit
        if moves == before:
            break
    return moves


@njit(cache=True, nogil=True)
def _exchange_pair(state: _State, a: int, b: int, cells: np.ndarray, limit: int) -> tuple[int, int]:
    """Moves of ones between two siblings, or within the one child `a` where b is -1, and looks.

    `giving` are cells whose one can go from a to b, `taking` those whose one can come back.
    """
    giving, taking = _movable(state, a, b, cells, 1), _movable(state, a, b, cells, 0)
    moves, looks = 0, 2 * cells.size
    if giving.size == 0 or taking.size == 0:
        return moves, looks
    rows = np.ascontiguousarray(state.asked[taking].T)
    ahead, slopes = _slopes(state.error, a, b, 1), _slopes(state.error, a, b, -1)
    cost = _costs(ahead, state.asked[giving].T)
    back = _costs(slopes, rows)
    least_back = back.min()
    for place in np.argsort(cost, kind="mergesort")[:VISITS]:
        if looks >= limit:
            break
        given = giving[place]
        of_given = state.asked[given]
        relief = -ahead[of_given] - slopes[of_given]
        gain = -ahead[of_given].sum()
        looks += taking.size
        # Cells that share rows with the given one come back for less, by their relief at most.
        if least_back + relief.sum() >= gain:
            continue
        _move(state, a, b, given, -1)
        best = -1
        totals = _with_relief(back, rows, of_given, relief)
        if totals.min() < gain:
            for other in range(taking.size):
                is_less = totals[other] < gain
                if is_less and _is_feasible_exchange(state, a, b, given, taking[other]):
                    gain, best = totals[other], other
        if best < 0:
            _move(state, a, b, given, 1)
            continue
        _move(state, a, b, taking[best], 1)
        taking[best] = given
        rows[:, best] = of_given
        moves += 1
        ahead, slopes = _slopes(state.error, a, b, 1), _slopes(state.error, a, b, -1)
        back = _costs(slopes, rows)
        least_back = back.min()
        looks += taking.size
    return moves, looks


@njit(cache=True, nogil=True)
def _movable(state: _State, a: int, b: int, cells: np.ndarray, of_a: int) -> np.ndarray:
    """The `cells` in which a has `of_a` ones and b, if any, 1 - `of_a`."""
    found = np.empty(cells.size, dtype=np.int64)
    n = 0
    for j in cells:
        in_a = state.is_free[a, j] and state.ones[a, j] == of_a
        if in_a and (b < 0 or (state.is_free[b, j] and state.ones[b, j] != of_a)):
            found[n] = j
            n += 1
    return found[:n].copy()


@njit(cache=True, nogil=True)
def _slopes(error: np.ndarray, a: int, b: int, sign: int) -> np.ndarray:
    """Cost of each row (R,) if a one that it counts moves from a to b, or back at sign -1."""
    step = sign * UNIT
    slopes = np.abs(error[a] - step) - np.abs(error[a])
    if b >= 0:
        slopes += np.abs(error[b] + step) - np.abs(error[b])
    return slopes


@njit(cache=True, nogil=True)
def _costs(slopes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The sum of the slopes of each cell's `rows` (n_queries, n)."""
    cost = np.zeros(rows.shape[1], dtype=np.int64)
    for q in range(rows.shape[0]):
        for place in range(cost.size):
            cost[place] += slopes[rows[q, place]]
    return cost


@njit(cache=True, nogil=True)
def _with_relief(
    back: np.ndarray, rows: np.ndarray, of_given: np.ndarray, relief: np.ndarray
) -> np.ndarray:
    """The costs `back` (n,) of cells with their `rows` (n_queries, n), and the `relief` of each row
    `of_given` that a cell shares. A loop without branches takes many cells at once.
    """
    totals = back.copy()
    for q in range(rows.shape[0]):
        row, less = of_given[q], relief[q]
        for place in range(totals.size):
            totals[place] += less if rows[q, place] == row else 0
    return totals


@njit(cache=True, nogil=True)
def _move(state: _State, a: int, b: int, j: int, sign: int) -> int:
    """Give a `sign` ones of cell j, which b loses, and return the cost."""
    cost = 0
    for child, step in ((a, sign), (b, -sign)):
        if child >= 0:
            state.ones[child, j] += step
            state.of_type[child, state.type_of_cell[j]] += step
            for row in state.asked[j]:
                before = state.error[child, row]
                state.error[child, row] = before + step * UNIT
                cost += abs(before + step * UNIT) - abs(before)
    return cost


@njit(cache=True, nogil=True)
def _is_feasible_exchange(state: _State, a: int, b: int, given: int, taken: int) -> bool:
    """Whether types keep their bounds if the one of cell `taken` moves to a, after b has got the
    one of cell `given`.
    """
    of_given, of_taken = state.type_of_cell[given], state.type_of_cell[taken]
    if of_given == of_taken:
        return True
    count, lower, upper = state.of_type, state.lower, state.upper
    if count[a, of_given] < lower[a, of_given] or count[a, of_taken] >= upper[a, of_taken]:
        return False
    return b < 0 or (
        count[b, of_given] <= upper[b, of_given] and count[b, of_taken] > lower[b, of_taken]
    )
