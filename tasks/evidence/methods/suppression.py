"""Suppression: cells are withheld, and further cells to prevent recomputing them.

Small counts are the primary cells. They could be computed from totals and the other cells, so
secondary cells are withheld with them, which leave each a wide enough interval to an attacker with
all published values, all sums of the table, and the rule that zeros are never withheld. That is
verified by linear programs in both directions. Cells are chosen one after the other, which
withholds more than the least that would do. Each table is protected separately, as is usual: sums
of other tables may reveal withheld cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from ...solvers.highs import SolveStatus, solve
from ..ingest import PublishedTable

LEAST = 1
"""The least count that is withheld: a zero never is, which every reader of the rule knows."""


def with_totals(counts: np.ndarray) -> np.ndarray:
    """A two-way table `(m, n)` with the totals of its columns, rows, and all `(m + 1, n + 1)`."""
    down = np.vstack([counts, counts.sum(axis=0)])
    return np.column_stack([down, down.sum(axis=1)])


def intervals(
    counts: np.ndarray, withheld: np.ndarray, asked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest value `(k,)` that an attacker computes of withheld cells of a table.

    counts : (m, n). withheld : (m + 1, n + 1) mask of cells and totals. asked : (k,) positions of
        cells among all of these, row by row.

    Raises ValueError if the solver ends without an answer.
    """
    own = np.flatnonzero(withheld)
    known = np.where(withheld, 0, with_totals(counts)).ravel()
    at = np.arange(known.size).reshape(withheld.shape)
    lines = [*at, *at.T]
    sums = sparse.lil_array((len(lines), known.size))
    for number, line in enumerate(lines):
        sums[[number], line[:-1]] = 1
        sums[number, int(line[-1])] = -1
    side = -(sums @ known)
    matrix = sparse.csr_array(sums[:, own])
    has_cells = np.diff(matrix.indptr) > 0
    matrix, side = matrix[has_cells], side[has_cells]
    place = {int(cell): number for number, cell in enumerate(own)}
    lower, upper = np.full(len(own), LEAST), np.full(len(own), np.inf)
    found = np.empty((2, len(asked)))
    for number, cell in enumerate(asked):
        for which, sign in enumerate((1.0, -1.0)):
            cost = np.zeros(len(own))
            cost[place[int(cell)]] = sign
            result = solve(cost, matrix, side, side, lower, upper)
            if result.x is not None and result.status is SolveStatus.OPTIMAL:
                found[which, number] = result.x[place[int(cell)]]
            elif which == 1:
                found[which, number] = np.inf
            else:
                raise ValueError(f"an attacker's program ended as {result.status}")
    return found[0], found[1]


def with_secondary(
    counts: np.ndarray, threshold: int, above: np.ndarray | None = None
) -> np.ndarray:
    """Mask `(m + 1, n + 1)` of the cells and totals of a two-way table `(m, n)` to withhold.

    above : (n,) mask of the totals of columns that are withheld already; others are published.

    Primary are the counts from 1 to below the threshold. Each is protected by a rectangle of cells
    that are not zero, itself at one corner (the hypercube method): the gain of one corner is the
    loss of its two neighbours, and the gain of the opposite one. A corner loses at most its count
    above `LEAST`, so that an attacker's interval is at least

        min(cell, opposite) + min(neighbour in its row, neighbour in its column) - 2 LEAST

    wide, which must be the threshold or more. A rectangle may include totals of rows, or withheld
    totals of columns, which change with their cells. Among the rectangles that are wide enough, the
    one with the least additional withheld count is taken. If there is no such rectangle, the cell
    is withheld alone, and its interval may be narrower.
    """
    m, n = counts.shape
    whole = with_totals(counts)
    withheld = np.zeros(whole.shape, dtype=bool)
    primary = (counts > 0) & (counts < threshold)
    withheld[:m, :n] = primary
    if above is not None:
        withheld[m, :n] = above
    rows, columns = np.nonzero(primary)
    # The smallest first: their rectangles need the largest corners, which serve others too.
    for at in np.argsort(counts[rows, columns], kind="stable"):
        _protect(whole, withheld, int(rows[at]), int(columns[at]), threshold)
    return withheld


def _protect(
    whole: np.ndarray, withheld: np.ndarray, row: int, column: int, threshold: int
) -> None:
    """Withhold the rectangle of one cell that costs least."""
    m, n = whole.shape[0] - 1, whole.shape[1] - 1
    spare = np.maximum(whole - LEAST, 0)
    cell, beside, below = spare[row, column], spare[row][None, :], spare[:, column][:, None]
    width = np.minimum(cell, spare) + np.minimum(beside, below)
    # A total gains as much as the cells under it, and bounds nothing: two cells move alone.
    width[m, :], width[:, n] = cell + spare[row], cell + spare[:, column]
    possible = (whole > 0) & (whole[row][None, :] > 0) & (whole[:, column][:, None] > 0)
    possible[m, :] &= withheld[m, :] & withheld[m, column]
    possible[row, :], possible[:, column], possible[m, n] = False, False, False
    cost = np.where(withheld, 0, whole)
    total = cost + cost[row][None, :] + cost[:, column][:, None]
    reached = 0.0
    while reached < threshold and possible.any():
        is_wide = possible & (reached + width >= threshold)
        # Rectangles without a common row or column move independently: their widths add up, so that
        # the widest are taken until one more is enough.
        best = np.where(is_wide, total, np.inf) if is_wide.any() else np.where(possible, -width, 1)
        other_row, other_column = divmod(int(np.argmin(best)), n + 1)
        withheld[row, other_column] = withheld[other_row, column] = True
        withheld[other_row, other_column] = True
        reached += width[other_row, other_column] - (cell if reached else 0)
        # Totals bound nothing, so that several rectangles may share one.
        possible[other_row, : n if other_row < m else 0] = False
        possible[: m if other_column < n else 0, other_column] = False
        possible[other_row, other_column] = False
    if reached < threshold and withheld[m, column]:
        # A cell alone in its row and column moves with both totals, and another against it.
        others = np.where(withheld[m, :n], whole[:m, :n], 0)
        others[row], others[:, column] = 0, 0
        other_row, other_column = divmod(int(np.argmax(others)), n)
        if others[other_row, other_column]:
            withheld[other_row, other_column] = True
            withheld[[row, other_row], n] = True


def verify_suppression(
    counts: np.ndarray,
    withheld: np.ndarray,
    threshold: int,
    share: float,
    generator: np.random.Generator,
) -> tuple[int, int, int]:
    """Numbers of the primary cells of a two-way table `(m, n)`, of a sample of them whose intervals
    linear programs compute in both directions, and of too narrow ones.
    """
    inside = np.zeros(withheld.shape, dtype=bool)
    inside[:-1, :-1] = (counts > 0) & (counts < threshold)
    primary = np.flatnonzero(inside)
    drawn = primary[generator.random(len(primary)) < share]
    if not len(drawn):
        return len(primary), 0, 0
    low, high = intervals(counts, withheld, drawn)
    return len(primary), len(drawn), int((high - low < threshold - 1e-6).sum())


def without_cells(
    counts: np.ndarray, groups: Sequence[np.ndarray], masks: Sequence[np.ndarray]
) -> PublishedTable:
    """Remove the withheld cells, which are known to be at least `LEAST`, at most the rest of their
    row's or column's total, and to add up to the rest of their row's.
    """
    value, high = counts.copy(), counts.copy()
    total = np.stack([counts.sum(axis=1)] * 2)
    for rows, mask in zip(groups, masks, strict=True):
        own, cells = counts[rows], mask[:-1, :-1]
        spare = np.where(cells, own - LEAST, 0)
        by_row = np.where(mask[:-1, -1], np.inf, spare.sum(axis=1))[:, None]
        by_column = np.where(mask[-1, :-1], np.inf, spare.sum(axis=0))[None, :]
        value[rows] = np.where(cells, np.nan, own)
        high[rows] = np.where(cells, LEAST + np.minimum(by_row, by_column), own)
        total[:, rows[mask[:-1, -1]]] = [[0], [np.inf]]
    return PublishedTable(value, np.where(np.isnan(value), LEAST, counts), high, total)
