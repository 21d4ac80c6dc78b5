"""Constraints by tables on the people of a block: a matrix of whole numbers with bounds on its
rows.

A block is a histogram x >= 0 of integers over the cells of a schema, a published table cell the sum
of some of them. All blocks share the matrix `A`; a release gives each block bounds of its rows,
`lower <= A x <= upper`: equal where the release is exact, an interval for rounding, coarsening and
bounded noise, 0 to `UNBOUNDED` for withheld figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ...census.queries import incidence

UNBOUNDED = 1 << 40
"""Upper bound of a row of which nothing is known."""


class Lines(NamedTuple):
    """Rows or columns of a matrix as compiled code takes them: where each starts, and the place
    across and the entry of everything in it, in 64 bits."""

    start: np.ndarray
    across: np.ndarray
    entry: np.ndarray

    @classmethod
    def of(cls, compressed: sparse.csr_array | sparse.csc_array) -> Lines:
        """Return the lines along the compressed axis: rows of a CSR array, columns of a CSC
        array."""
        parts = compressed.indptr, compressed.indices, compressed.data
        return cls(*(part.astype(np.int64) for part in parts))


@dataclass(frozen=True)
class TableSystem:
    """`matrix` has a row for every published figure and a column for every cell of the schema.

    Its entries are whole numbers: 1 where a table counts the cell, its age where ages are summed.
    Raises ValueError if they are not.
    """

    matrix: sparse.csr_array

    def __post_init__(self) -> None:
        if not np.issubdtype(self.matrix.dtype, np.integer):
            raise ValueError("rows of tables have whole numbers as coefficients")

    @property
    def n_cells(self) -> int:
        return self.matrix.shape[1]

    @property
    def n_rows(self) -> int:
        return self.matrix.shape[0]

    @cached_property
    def lines(self) -> tuple[Lines, Lines]:
        """Rows and columns of the matrix."""
        return rows_and_columns(self.matrix)


def rows_and_columns(matrix: sparse.csr_array) -> tuple[Lines, Lines]:
    """Rows and columns of a matrix."""
    return Lines.of(sparse.csr_array(matrix)), Lines.of(sparse.csc_array(matrix))


def system_of_tables(codes: Sequence[np.ndarray]) -> TableSystem:
    """The system of tables, each given by the table cell of every cell of the schema.

    A code of -1 is outside the table's universe. Rows come table by table, in the order of the
    codes from 0 to the largest. Raises ValueError if the tables' codes differ in length.
    """
    if len({len(code) for code in codes}) != 1:
        raise ValueError("every table must give a code to every cell of the schema")
    rows = [incidence(np.asarray(code), int(np.max(code)) + 1) for code in codes]
    return TableSystem(sparse.csr_array(sparse.vstack(rows)))


@njit(nogil=True, cache=True)
def tighten(
    rows: Lines,
    cells: Lines,
    row_lower: np.ndarray,
    row_upper: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> bool:
    """Narrow bounds of cells, in place, by every row alone until no row narrows any.

    Row r bounds cell c by row_upper[r] less the least of the other cells from above, and by
    row_lower[r] less the most of them from below, over c's coefficient. Returns whether no row was
    found to be impossible; every solution is then within the bounds, which it need not attain.
    """
    n_rows = len(row_lower)
    least, most = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    waiting = np.ones(n_rows, np.bool_)
    queue = np.empty(n_rows, np.int64)
    for row in range(n_rows):
        queue[row] = row
        for place in range(rows.start[row], rows.start[row + 1]):
            cell, entry = rows.across[place], rows.entry[place]
            least[row] += entry * (lower[cell] if entry > 0 else upper[cell])
            most[row] += entry * (upper[cell] if entry > 0 else lower[cell])
    head, length = 0, n_rows
    while length:
        row = queue[head]
        head = (head + 1) % n_rows
        length -= 1
        waiting[row] = False
        if least[row] > row_upper[row] or most[row] < row_lower[row]:
            return False
        for place in range(rows.start[row], rows.start[row + 1]):
            cell, entry = rows.across[place], rows.entry[place]
            if lower[cell] == upper[cell]:
                continue
            if entry > 0:
                largest = row_upper[row] - least[row] + entry * lower[cell]
                smallest = row_lower[row] - most[row] + entry * upper[cell]
            else:
                smallest = -(row_upper[row] - least[row] + entry * upper[cell])
                largest = -(row_lower[row] - most[row] + entry * lower[cell])
            size = abs(entry)
            highest = min(upper[cell], largest // size)
            lowest = max(lower[cell], -((-smallest) // size))
            if highest == upper[cell] and lowest == lower[cell]:
                continue
            if highest < lowest:
                return False
            for at in range(cells.start[cell], cells.start[cell + 1]):
                other = cells.across[at]
                change = cells.entry[at]
                if change > 0:
                    least[other] += change * (lowest - lower[cell])
                    most[other] += change * (highest - upper[cell])
                else:
                    least[other] += change * (highest - upper[cell])
                    most[other] += change * (lowest - lower[cell])
                if not waiting[other]:
                    waiting[other] = True
                    queue[(head + length) % n_rows] = other
                    length += 1
            lower[cell], upper[cell] = lowest, highest
    return True


@njit(nogil=True, cache=True)
def enumerate_solutions(
    rows: Lines,
    cells: Lines,
    row_lower: np.ndarray,
    row_upper: np.ndarray,
    cell_upper: np.ndarray,
    most_solutions: int,
    most_nodes: int,
) -> tuple[np.ndarray, bool]:
    """All integer solutions between 0 and `cell_upper`, and whether they are all.

    Depth first: the cell with the fewest values left takes its lowest, or is above it. Stops at
    `most_solutions` solutions or `most_nodes` nodes of the search.
    """
    n_cells = len(cell_upper)
    found = np.empty((most_solutions, n_cells), np.int64)
    n_found, nodes, depth, deepest = 0, 0, 1, 512
    lowers = np.empty((deepest, n_cells), np.int64)
    uppers = np.empty((deepest, n_cells), np.int64)
    lowers[0], uppers[0] = 0, cell_upper
    while depth:
        depth -= 1
        nodes += 1
        if nodes > most_nodes:
            return found[:n_found], False
        lower, upper = lowers[depth].copy(), uppers[depth].copy()
        if not tighten(rows, cells, row_lower, row_upper, lower, upper):
            continue
        chosen, gap = -1, 0
        for cell in range(n_cells):
            width = upper[cell] - lower[cell]
            if width > 0 and (chosen < 0 or width < gap):
                chosen, gap = cell, width
        if chosen < 0:
            if n_found == most_solutions:
                return found[:n_found], False
            found[n_found] = lower
            n_found += 1
            continue
        if depth + 2 > deepest:
            return found[:n_found], False
        lowers[depth], uppers[depth] = lower, upper
        lowers[depth, chosen] += 1
        lowers[depth + 1], uppers[depth + 1] = lower, upper
        uppers[depth + 1, chosen] = lower[chosen]
        depth += 2
    return found[:n_found], True


def components(matrix: sparse.csr_array, binding: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Number of the component of every cell, by the binding rows that tie free cells; else -1."""
    n_free = int(free.sum())
    row, cell = matrix[binding][:, free].nonzero()
    shape = (n_free + int(binding.sum()),) * 2
    ties = sparse.csr_array((np.ones(len(row)), (n_free + row, cell)), shape=shape)
    number = np.full(len(free), -1)
    number[free] = connected_components(ties, directed=False)[1][:n_free]
    return number
