"""The compiled loops of `dual_newton`, whose docstring defines the terms, and their records.

Everywhere `ease` (k, c) is 1 / g.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, objmode

from .quadratic import BLOCK_ENTRIES

TOGETHER = 64
"""Most rows of blocks that are inverted together."""
FORCING, SYSTEM_ITERATIONS = 1e-1, 1000
"""Largest remainder of a linear system, relative to its right-hand side, and most iterations."""


class Rows(NamedTuple):
    """The rows of a problem in the form for compiled code.

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


class Round(NamedTuple):
    """A round's dual function: the problem's rows, parent and allowed cells, the centre and ease of
    its cells (k, c), target and give (n,), and the centre (b,) and ease of its slacks."""

    rows: Rows
    parent: np.ndarray
    allowed: np.ndarray
    centre: np.ndarray
    ease: np.ndarray
    target: np.ndarray
    give: np.ndarray
    slack_centre: np.ndarray
    slack_ease: float


class Movable(NamedTuple):
    """The children's cells that a step can move, by cell: starts[j] to starts[j + 1] for cell j.

    starts (k + 1,). child, h (f,) : the child of each, and H's diagonal there. ease (k, c) : of
    these cells, 0 of all others. is_shared : whether the children's sum of a cell is fixed.
    """

    starts: np.ndarray
    child: np.ndarray
    h: np.ndarray
    ease: np.ndarray
    is_shared: bool


class Inverses(NamedTuple):
    """Preconditioner of a linear system.

    blocks (c, b, b), places (c, b) : inverses of the children's own matrices, and their
        multipliers, -1 beyond their number. alone (n,) : inverse diagonal of the multipliers in no
        block, 0 for others. common (q, c), of_common (q,) : multipliers of the rows that count
        every child, and the inverse sum of their diagonals.
    """

    blocks: np.ndarray
    places: np.ndarray
    alone: np.ndarray
    common: np.ndarray
    of_common: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def spread(rows: Rows, y: np.ndarray, out: np.ndarray) -> None:
    """Write multipliers `y` (n,) by row and child (r, c), 0 where a row counts not the child."""
    place = rows.place
    for q in range(place.shape[0]):
        for i in range(place.shape[1]):
            out[q, i] = y[place[q, i]] if place[q, i] >= 0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def gather(rows: Rows, of_children: np.ndarray, out: np.ndarray) -> None:
    """Write sums (n,) over the children that share a multiplier, of (r, c)."""
    place = rows.place
    out[:] = 0.0
    for q in range(place.shape[0]):
        for i in range(place.shape[1]):
            if place[q, i] >= 0:
                out[place[q, i]] += of_children[q, i]


@njit(cache=True, nogil=True, error_model="numpy")
def add_to_rows(rows: Rows, x: np.ndarray, out: np.ndarray) -> None:
    """Add R times the cells `x` (k, c) to `out` (r, c)."""
    start, row, weight = rows.start, rows.row, rows.weight
    for j in range(start.size - 1):
        for e in range(start[j], start[j + 1]):
            for i in range(x.shape[1]):
                out[row[e], i] += weight[e] * x[j, i]


@njit(cache=True, nogil=True, error_model="numpy")
def write_cells(one: Round, dense: np.ndarray, x: np.ndarray) -> float:
    """Write the cells of a round, (k, c), at multipliers `dense` (r, c).

    Returns their contribution to the dual function: their distance to the centre, less R'y x.
    `ease` is 1 / g.
    """
    start, row, weight = one.rows.start, one.rows.row, one.rows.weight
    centre, ease, allowed, parent = one.centre, one.ease, one.allowed, one.parent
    k, c = centre.shape
    value = 0.0
    slope, wish, own, left = np.empty(c), np.empty(c), np.empty(c), np.empty(c, dtype=np.int64)
    for j in range(k):
        slope[:] = 0.0
        for e in range(start[j], start[j + 1]):
            for i in range(c):
                slope[i] += weight[e] * dense[row[e], i]
        for i in range(c):
            own[i] = ease[j, i] if allowed[j, i] else 0.0
            wish[i] = centre[j, i] + slope[i] * own[i]
        if parent.size:
            project_to_sum(wish, own, parent[j], left)
        for i in range(c):
            x[j, i] = max(0.0, wish[i])
        for i in range(c):
            # The distance of a cell to the centre, and its pull, in one array for their sum.
            moved = x[j, i] - centre[j, i]
            wish[i] = 0.5 * moved * moved / ease[j, i] - slope[i] * x[j, i]
        value += _sum(wish)
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _sum(values: np.ndarray) -> float:
    """The sum of some values, in four independent parts, in a fixed order."""
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
def pairwise_sum(values: np.ndarray) -> float:
    """The sum of some values (n,), by halves, so that rounding errors grow as log n."""
    if values.size <= 128:
        return _sum(values)
    half = values.size // 2
    return pairwise_sum(values[:half]) + pairwise_sum(values[half:])


@njit(cache=True, nogil=True, error_model="numpy")
def largest_of(values: np.ndarray) -> float:
    """The largest absolute value of some (n,): 0 if there are no values, NaN if any is."""
    largest = 0.0
    for i in range(values.size):
        size = abs(values[i])
        if np.isnan(size):
            return size
        if size > largest:
            largest = size
    return largest


@njit(cache=True, nogil=True, error_model="numpy")
def project_to_sum(wish: np.ndarray, own: np.ndarray, total: float, left: np.ndarray) -> None:
    """Shift `wish` (n,) in proportion to `own` so that its positive parts sum to `total`.

    Michelot's projection: entries that the common shift makes negative drop out and become zero,
    until none does; entries whose `own` is 0 cannot move. `left` (n,) is scratch for the remaining
    entries.
    """
    shares, weights = _sum(wish), _sum(own)
    n = 0
    for i in range(wish.size):
        if own[i] > 0.0:
            left[n] = i
            n += 1
    while weights > 0.0:
        shift = (total - shares) / weights
        stay, is_settled = 0, True
        shares, weights = 0.0, 0.0
        for i in left[:n]:
            moved = wish[i] + shift * own[i]
            if moved > 0.0:
                shares += wish[i]
                weights += own[i]
                left[stay] = i
                stay += 1
            else:
                is_settled &= moved >= 0.0
                wish[i] = 0.0
        n = stay
        if is_settled:
            for i in left[:n]:
                wish[i] += shift * own[i]
            return


@njit(cache=True, nogil=True, error_model="numpy")
def movable_cells(x: np.ndarray, ease: np.ndarray, is_shared: bool) -> Movable:
    """The cells of x (k, c) that a step can move.

    They are positive; a cell positive in one child only cannot move where the children's sum is
    fixed.
    """
    k, c = x.shape
    starts = np.zeros(k + 1, dtype=np.int64)
    most = np.count_nonzero(x > 0.0)
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
        if is_shared and n - first < 2:
            n = first
        for f in range(first, n):
            own = ease[j, child[f]]
            of_movable[j, child[f]] = own
            h[f] = own * (1.0 - own / eases) if is_shared else own
        starts[j + 1] = n
    return Movable(starts, child[:n], h[:n], of_movable, is_shared)


@njit(cache=True, error_model="numpy")
def inverses_of(rows: Rows, movable: Movable, diagonal: np.ndarray) -> Inverses:
    """The preconditioner of R H R' + diagonal; without blocks where these would be too large."""
    place = rows.place
    r, c = place.shape
    number, sizes = _number_rows(rows, movable)
    width = sizes.max() if c else 0
    if c * width * width > BLOCK_ENTRIES:
        width = 0
    blocks = np.zeros((c, width, width))
    places = np.full((c, width), -1, dtype=np.int64)
    full = diagonal.copy()
    if width:
        _add_blocks(rows, movable, number, blocks)
    else:
        _add_diagonal(rows, movable, full)
    alone = 1.0 / full
    for i in range(c if width else 0):
        for q in range(r):
            a = number[q, i]
            if a >= 0:
                p = place[q, i]
                blocks[i, a, a] += diagonal[p]
                places[i, a], alone[p] = p, 0.0
    # NumPy's inverse and Numba's are of two libraries, whose last bits differ.
    with objmode():
        _invert(blocks, sizes)
    is_common = np.zeros(r, dtype=np.bool_)
    if movable.is_shared:
        for q in range(r):
            is_common[q] = (place[q] >= 0).all()
    common = place[is_common]
    of_common = np.empty(common.shape[0])
    for q in range(common.shape[0]):
        of_common[q] = 1.0 / pairwise_sum(diagonal[common[q]])
    return Inverses(blocks, places, alone, common, of_common)


@njit(cache=True, nogil=True, error_model="numpy")
def _number_rows(rows: Rows, movable: Movable) -> tuple[np.ndarray, np.ndarray]:
    """The number (r, c) in its child's block of each row that counts a cell that can move, -1 of
    others; and how many each child has (c,)."""
    start, row, starts, child = rows.start, rows.row, movable.starts, movable.child
    r, c = rows.place.shape
    number, sizes = np.full((r, c), -1, dtype=np.int64), np.zeros(c, dtype=np.int64)
    for j in range(start.size - 1):
        for f in range(starts[j], starts[j + 1]):
            for e in range(start[j], start[j + 1]):
                number[row[e], child[f]] = 0
    for q in range(r):
        for i in range(c):
            if number[q, i] == 0 and rows.place[q, i] >= 0:
                number[q, i] = sizes[i]
                sizes[i] += 1
            else:
                number[q, i] = -1
    return number, sizes


@njit(cache=True, nogil=True, error_model="numpy")
def _add_blocks(rows: Rows, movable: Movable, number: np.ndarray, out: np.ndarray) -> None:
    """Add each child's own R H R' to `out` (c, b, b), rows by their `number` (r, c)."""
    start, row, weight = rows.start, rows.row, rows.weight
    starts, child, h = movable.starts, movable.child, movable.h
    for j in range(start.size - 1):
        for f in range(starts[j], starts[j + 1]):
            i = child[f]
            for e in range(start[j], start[j + 1]):
                a = number[row[e], i]
                for d in range(start[j], start[j + 1]):
                    b = number[row[d], i]
                    if a >= 0 and b >= 0:
                        out[i, a, b] += weight[e] * weight[d] * h[f]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_diagonal(rows: Rows, movable: Movable, out: np.ndarray) -> None:
    """Add the diagonal of R H R' to `out` (n,)."""
    start, row, weight = rows.start, rows.row, rows.weight
    place, starts, child, h = rows.place, movable.starts, movable.child, movable.h
    for j in range(start.size - 1):
        for f in range(starts[j], starts[j + 1]):
            for e in range(start[j], start[j + 1]):
                p = place[row[e], child[f]]
                if p >= 0:
                    out[p] += weight[e] * weight[e] * h[f]


def _invert(blocks: np.ndarray, sizes: np.ndarray) -> None:
    """Invert the first rows and columns of each block (c, b, b) in place, as many as its size (c,).

    Blocks of one size go together where they are small, since a call takes longer than one of them.
    """
    for size in sorted(set(sizes.tolist()) - {0}):
        of_size = np.flatnonzero(sizes == size)
        for some in np.array_split(of_size, of_size.size) if size > TOGETHER else (of_size,):
            blocks[some, :size, :size] = np.linalg.inv(blocks[some, :size, :size])


@njit(cache=True, nogil=True, error_model="numpy")
def _times(
    rows: Rows, movable: Movable, diagonal: np.ndarray, y: np.ndarray, out: np.ndarray
) -> None:
    """Write (R H R' + diagonal) y to `out` (n,)."""
    start, row, weight = rows.start, rows.row, rows.weight
    starts, ease = movable.starts, movable.ease
    r, c = rows.place.shape
    dense, sums = np.empty((r, c)), np.zeros((r, c))
    spread(rows, y, dense)
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
    gather(rows, sums, out)
    out += diagonal * y


@njit(cache=True, nogil=True, error_model="numpy")
def _precondition(inverses: Inverses, right: np.ndarray, out: np.ndarray) -> None:
    """Write the preconditioner of `Inverses` times `right` (n,) to `out`."""
    blocks, places, common = inverses.blocks, inverses.places, inverses.common
    out[:] = inverses.alone * right
    own, moved = np.zeros(places.shape[1]), np.empty(places.shape[1])
    for i in range(places.shape[0] if own.size else 0):
        for a in range(own.size):
            own[a] = right[places[i, a]] if places[i, a] >= 0 else 0.0
        np.dot(blocks[i], own, moved)
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
) -> tuple[np.ndarray, int]:
    """Solve (R H R' + diagonal) y = right to within `FORCING` of its largest entry; and how long
    that took. A direction in which rounding errors leave no curvature ends it."""
    n = right.size
    y, remainder = np.zeros(n), right.copy()
    moved, better = np.empty(n), np.empty(n)
    _precondition(inverses, remainder, better)
    direction = better.copy()
    product = np.dot(remainder, better)
    limit = FORCING * largest_of(right)
    for number in range(1, SYSTEM_ITERATIONS + 1):
        _times(rows, movable, diagonal, direction, moved)
        curvature = np.dot(direction, moved)
        if not curvature > 0.0:
            return y, number
        length = product / curvature
        y += length * direction
        remainder -= length * moved
        if largest_of(remainder) <= limit:
            return y, number
        _precondition(inverses, remainder, better)
        new = np.dot(remainder, better)
        turn = new / product
        direction = better + turn * direction
        product = new
    return y, SYSTEM_ITERATIONS
