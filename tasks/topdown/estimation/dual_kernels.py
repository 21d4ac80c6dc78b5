"""The compiled loops of `dual_newton`, whose docstring has the terms, and the records they take.

Everywhere `ease` (k, c) is 1 / g.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

DENSE = 4
"""One in how many cells moves where a product goes through all, several at a time."""


class Rows(NamedTuple):
    """The rows of a problem, as compiled code takes them.

    start (k + 1,), row, weight : the rows that count each cell, and with which weight.
    place (r, c) : the multiplier of each row and child, -1 where the row does not count the child.
    target, give (n,) : m and 1 / w of each multiplier; h and 0 of a row that must hold.
    bounded, lower, upper (b,) : multipliers of rows between bounds, whose target is 0, and these.
    """

    start: np.ndarray
    row: np.ndarray
    weight: np.ndarray
    place: np.ndarray
    target: np.ndarray
    give: np.ndarray
    bounded: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def of_children(self, y: np.ndarray) -> np.ndarray:
        """Multipliers `y` (n,) by row and child (r, c), 0 where a row does not count the child."""
        return np.where(self.place >= 0, y[self.place], 0.0)

    def gathered(self, of_children: np.ndarray) -> np.ndarray:
        """Sums (n,) over the children that share a multiplier, of (r, c)."""
        is_in = self.place >= 0
        return np.bincount(self.place[is_in], of_children[is_in], self.target.size)


class Movable(NamedTuple):
    """The cells that a step can move, cell by cell: those of cell j are starts[j] to starts[j + 1].

    starts (k + 1,). child, h (f,) : the child of each, and H's diagonal there. ease (k, c) : of
    these cells, 0 of all others. is_shared : whether the children's sum of a cell is fixed.
    """

    starts: np.ndarray
    child: np.ndarray
    h: np.ndarray
    ease: np.ndarray
    is_shared: bool

    @property
    def is_dense(self) -> bool:
        """Whether so many cells can move that going through all of them costs less."""
        return DENSE * self.child.size >= self.ease.size

    @property
    def cell(self) -> np.ndarray:
        """(f,)."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))


class Inverses(NamedTuple):
    """What preconditions a linear system.

    blocks (c, b, b), places (c, b) : inverses of the children's own matrices, and the multipliers
        that they are of, -1 beyond their number. alone (n,) : inverse diagonal of the multipliers
        that stand in no block, 0 of others. common (q, c), of_common (q,) : multipliers of the rows
        that count every child, and the inverse sum of their diagonals.
    """

    blocks: np.ndarray
    places: np.ndarray
    alone: np.ndarray
    common: np.ndarray
    of_common: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def add_of_rows(rows: Rows, dense: np.ndarray, out: np.ndarray) -> None:
    """Add R' times `dense` (r, c) to `out` (k, c)."""
    start, row, weight = rows.start, rows.row, rows.weight
    for j in range(start.size - 1):
        for e in range(start[j], start[j + 1]):
            for i in range(out.shape[1]):
                out[j, i] += weight[e] * dense[row[e], i]


@njit(cache=True, nogil=True, error_model="numpy")
def add_to_rows(rows: Rows, x: np.ndarray, out: np.ndarray) -> None:
    """Add R times the cells `x` (k, c) to `out` (r, c)."""
    start, row, weight = rows.start, rows.row, rows.weight
    for j in range(start.size - 1):
        for e in range(start[j], start[j + 1]):
            for i in range(x.shape[1]):
                out[row[e], i] += weight[e] * x[j, i]


@njit(cache=True, nogil=True, error_model="numpy")
def cells_at(
    rows: Rows,
    dense: np.ndarray,
    centre: np.ndarray,
    ease: np.ndarray,
    allowed: np.ndarray,
    parent: np.ndarray,
    x: np.ndarray,
    sums: np.ndarray,
) -> float:
    """Write the cells (k, c) at multipliers `dense` (r, c), and their sums by row (r, c).

    Returns what they contribute to the dual function: their distance to the centre, less R'y x.
    `ease` is 1 / g.
    """
    start, row, weight = rows.start, rows.row, rows.weight
    k, c = centre.shape
    sums[:] = 0.0
    value = 0.0
    slope, wish, own = np.empty(c), np.empty(c), np.empty(c)
    for j in range(k):
        slope[:] = 0.0
        for e in range(start[j], start[j + 1]):
            for i in range(c):
                slope[i] += weight[e] * dense[row[e], i]
        for i in range(c):
            own[i] = ease[j, i] if allowed[j, i] else 0.0
            wish[i] = centre[j, i] + slope[i] * own[i]
        if parent.size:
            _project(wish, own, parent[j])
        for i in range(c):
            x[j, i] = max(0.0, wish[i])
        for i in range(c):
            # The distance of a cell to the centre, and its pull, in one array for their sum.
            moved = x[j, i] - centre[j, i]
            wish[i] = 0.5 * moved * moved / ease[j, i] - slope[i] * x[j, i]
        value += _sum(wish)
        for e in range(start[j], start[j + 1]):
            for i in range(c):
                sums[row[e], i] += weight[e] * x[j, i]
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _sum(values: np.ndarray) -> float:
    """The sum of some values, in four parts that do not wait for each other, in a fixed order."""
    n = values.size // 4 * 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, n, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(n, values.size):
        a += values[i]
    return (a + b) + (c + d)


@njit(cache=True, nogil=True, error_model="numpy")
def _project(wish: np.ndarray, own: np.ndarray, total: float) -> None:
    """Shift `wish` (c,) in proportion to `own` so that its positive parts sum to `total`.

    Michelot's projection: children whom the common shift makes negative leave, until none do; what
    has no ease of its own cannot move. Who has left is negative or zero afterwards.
    """
    shares, weights = _sum(wish), _sum(own)
    while weights > 0.0:
        shift = (total - shares) / weights
        is_settled = True
        for i in range(wish.size):
            is_settled &= wish[i] + shift * own[i] >= 0.0
        if is_settled:
            for i in range(wish.size):
                wish[i] += shift * own[i]
            return
        left, weights = 0.0, 0.0
        for i in range(wish.size):
            if own[i] > 0.0 and wish[i] + shift * own[i] > 0.0:
                left += wish[i]
                weights += own[i]
            else:
                own[i], wish[i] = 0.0, 0.0
        shares = left


@njit(cache=True, nogil=True, error_model="numpy")
def _positive(
    x: np.ndarray, ease: np.ndarray, has_parent: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cells that a step can move: starts (k + 1,), child (f,) of each, H's diagonal (f,), and the
    ease (k, c) of these, 0 of others.

    They are positive; an only one of its cell cannot move where the children's sum is fixed.
    """
    k, c = x.shape
    starts = np.zeros(k + 1, dtype=np.int64)
    most = 0
    for j in range(k):
        for i in range(c):
            most += x[j, i] > 0.0
    child, h = np.empty(most, dtype=np.int64), np.empty(most)
    of_movable = np.zeros((k, c))
    n = 0
    for j in range(k):
        first, eases = n, 0.0
        for i in range(c):
            if x[j, i] > 0.0:
                child[n] = i
                eases += ease[j, i]
                n += 1
        if has_parent and n - first < 2:
            n = first
        for f in range(first, n):
            own = ease[j, child[f]]
            of_movable[j, child[f]] = own
            h[f] = own * (1.0 - own / eases) if has_parent else own
        starts[j + 1] = n
    return starts, child[:n], h[:n], of_movable


def movable_cells(x: np.ndarray, ease: np.ndarray, is_shared: bool) -> Movable:
    """The cells of x (k, c) that a step can move; see `_positive`."""
    return Movable(*_positive(x, ease, is_shared), is_shared)


@njit(cache=True, nogil=True)
def counted_rows(rows: Rows, cells: np.ndarray) -> np.ndarray:
    """Whether each row (r,) counts one of some cells."""
    start, row = rows.start, rows.row
    found = np.zeros(rows.place.shape[0], dtype=np.bool_)
    for j in cells:
        for e in range(start[j], start[j + 1]):
            found[row[e]] = True
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def add_block(
    rows: Rows,
    cells: np.ndarray,
    h: np.ndarray,
    number: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add R H R' of one child's positive cells (f,) to `out`, rows by their `number` (r,)."""
    start, row, weight = rows.start, rows.row, rows.weight
    for f in range(cells.size):
        j = cells[f]
        for e in range(start[j], start[j + 1]):
            a = number[row[e]]
            for d in range(start[j], start[j + 1]):
                b = number[row[d]]
                if a >= 0 and b >= 0:
                    out[a, b] += weight[e] * weight[d] * h[f]


@njit(cache=True, nogil=True, error_model="numpy")
def add_diagonal(
    rows: Rows, cell: np.ndarray, child: np.ndarray, h: np.ndarray, out: np.ndarray
) -> None:
    """Add the diagonal of R H R' to `out` (n,)."""
    start, row, weight = rows.start, rows.row, rows.weight
    place = rows.place
    for f in range(cell.size):
        for e in range(start[cell[f]], start[cell[f] + 1]):
            p = place[row[e], child[f]]
            if p >= 0:
                out[p] += weight[e] * weight[e] * h[f]


@njit(cache=True, nogil=True, error_model="numpy")
def _times(
    rows: Rows, movable: Movable, diagonal: np.ndarray, y: np.ndarray, out: np.ndarray
) -> None:
    """Write (R H R' + diagonal) y to `out` (n,)."""
    start, row, weight = rows.start, rows.row, rows.weight
    place, starts, child, ease = rows.place, movable.starts, movable.child, movable.ease
    for p in range(y.size):
        out[p] = diagonal[p] * y[p]
    slope = np.empty(ease.shape[1])
    for j in range(start.size - 1):
        first, last = starts[j], starts[j + 1]
        if first == last:
            continue
        total, eases = 0.0, 0.0
        for f in range(first, last):
            i = child[f]
            s = 0.0
            for e in range(start[j], start[j + 1]):
                p = place[row[e], i]
                if p >= 0:
                    s += weight[e] * y[p]
            slope[f - first] = s
            total += s * ease[j, i]
            eases += ease[j, i]
        mean = total / eases if movable.is_shared else 0.0
        for f in range(first, last):
            i = child[f]
            moved = (slope[f - first] - mean) * ease[j, i]
            for e in range(start[j], start[j + 1]):
                p = place[row[e], i]
                if p >= 0:
                    out[p] += weight[e] * moved


@njit(cache=True, nogil=True, error_model="numpy")
def _times_all(
    rows: Rows, movable: Movable, diagonal: np.ndarray, y: np.ndarray, out: np.ndarray
) -> None:
    """As `_times`, through all cells of a child, which the processor takes several at a time."""
    start, row, weight = rows.start, rows.row, rows.weight
    place, starts, ease = rows.place, movable.starts, movable.ease
    r, c = place.shape
    dense, sums = np.zeros((r, c)), np.zeros((r, c))
    for q in range(r):
        for i in range(c):
            if place[q, i] >= 0:
                dense[q, i] = y[place[q, i]]
    slope, pull = np.empty(c), np.empty(c)
    for j in range(start.size - 1):
        if starts[j] == starts[j + 1]:
            continue
        slope[:] = 0.0
        for e in range(start[j], start[j + 1]):
            for i in range(c):
                slope[i] += weight[e] * dense[row[e], i]
        mean = 0.0
        if movable.is_shared:
            for i in range(c):
                pull[i] = slope[i] * ease[j, i]
            mean = _sum(pull) / _sum(ease[j])
        for i in range(c):
            slope[i] = (slope[i] - mean) * ease[j, i]
        for e in range(start[j], start[j + 1]):
            for i in range(c):
                sums[row[e], i] += weight[e] * slope[i]
    for p in range(y.size):
        out[p] = diagonal[p] * y[p]
    for q in range(r):
        for i in range(c):
            if place[q, i] >= 0:
                out[place[q, i]] += sums[q, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _preconditioned(inverses: Inverses, right: np.ndarray, out: np.ndarray) -> None:
    """Write the preconditioner of `Inverses` times `right` (n,) to `out`."""
    blocks, places, common = inverses.blocks, inverses.places, inverses.common
    for p in range(right.size):
        out[p] = inverses.alone[p] * right[p]
    own = np.zeros(places.shape[1])
    for i in range(places.shape[0]):
        for a in range(own.size):
            own[a] = right[places[i, a]] if places[i, a] >= 0 else 0.0
        moved = np.dot(blocks[i], own)
        for a in range(own.size):
            if places[i, a] >= 0:
                out[places[i, a]] += moved[a]
    for q in range(common.shape[0]):
        total = 0.0
        for i in range(common.shape[1]):
            total += right[common[q, i]]
        total *= inverses.of_common[q]
        for i in range(common.shape[1]):
            out[common[q, i]] += total


@njit(cache=True, nogil=True, error_model="numpy")
def conjugate_gradients(
    rows: Rows,
    movable: Movable,
    diagonal: np.ndarray,
    inverses: Inverses,
    right: np.ndarray,
    forcing: float,
    iterations: int,
    is_dense: bool,
) -> tuple[np.ndarray, int]:
    """Solve (R H R' + diagonal) y = right to within `forcing` of its largest entry; and how long
    that took. A direction in which rounding errors leave no curvature ends it."""
    n = right.size
    y, remainder = np.zeros(n), right.copy()
    direction, moved, better = np.empty(n), np.empty(n), np.empty(n)
    _preconditioned(inverses, remainder, better)
    direction[:] = better
    product = np.dot(remainder, better)
    limit = forcing * np.abs(right).max()
    for number in range(1, iterations + 1):
        if is_dense:
            _times_all(rows, movable, diagonal, direction, moved)
        else:
            _times(rows, movable, diagonal, direction, moved)
        curvature = np.dot(direction, moved)
        if not curvature > 0.0:
            return y, number
        length = product / curvature
        for p in range(n):
            y[p] += length * direction[p]
            remainder[p] -= length * moved[p]
        if np.abs(remainder).max() <= limit:
            return y, number
        _preconditioned(inverses, remainder, better)
        new = np.dot(remainder, better)
        for p in range(n):
            direction[p] = better[p] + new / product * direction[p]
        product = new
    return y, iterations
