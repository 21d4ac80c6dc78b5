"""Block histograms: how many records of a universe each block has in each cell of a schema.

Blocks by their geocodes, as the digests of census tables go through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ...geography.texts import TextIndex
from ..ledger.recognition import DIGITS_BELOW_COUNTY
from ..runs.files import replacing
from ..runs.stamps import stamped
from ..tables.columns import GrowingArray, sorted_with_rows

ROWS_PER_GROUP = 1 << 16
"""Rows of a row group of a histogram's file: the least that a reader of one block has to read."""

_SCHEMA = pa.schema({"block_geocode": pa.string(), "cell": pa.int64(), "count": pa.int64()})


def block_histogram(
    block: np.ndarray, cell: np.ndarray, *, n_blocks: int, n_cells: int
) -> sparse.csr_array:
    """Count records by block and cell.

    `block` and `cell` give every record's position among the blocks and its cell number, shape
    `(n_records,)` each. Returns int64 counts, shape `(n_blocks, n_cells)`, cells ascending in
    every row and zeros not stored.

    >>> block_histogram(np.array([0, 0, 2]), np.array([1, 1, 0]), n_blocks=3, n_cells=2).toarray()
    array([[0, 2],
           [0, 0],
           [1, 0]])
    """
    ones = np.ones(len(block), dtype=np.int64)
    return sparse.csr_array(sparse.coo_array((ones, (block, cell)), shape=(n_blocks, n_cells)))


class HistogramSum:
    """A histogram `(n_rows, n_cells)` to which records are added some at a time.

    Adding is linear in the records: additions are summed only once they reach an eighth of the sum
    so far. A sum of more than `_MOST_ENTRIES` goes to temporary files and is restarted;
    in the end all of them are sorted and added up.
    """

    def __init__(self, n_rows: int, n_cells: int) -> None:
        self._sum = sparse.csr_array((n_rows, n_cells), dtype=np.int32)
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._size = self._n_records = 0
        # Entries of earlier sums: row and cell as one number, and count.
        self._stored = GrowingArray(np.int64), GrowingArray(np.int64)

    def add(self, row: np.ndarray, cell: np.ndarray, count: np.ndarray) -> None:
        """Add counts of zero or more, shape `(n,)` each; a row and cell may come again."""
        self._parts.append((row.astype(np.int32), cell.astype(np.int32), count))
        self._size += len(row)
        self._n_records += int(count.sum())
        if self._size > max(_FEWEST_HELD, self._sum.nnz // 8):
            self._sum_up()

    def add_histogram(self, counts: sparse.csr_array) -> None:
        """Add the counts of another histogram `(n_rows, n_cells)`."""
        row, cell = sparse.coo_array(counts).coords
        self.add(row, cell, counts.data)

    def total(self) -> sparse.csr_array:
        """The sum so far, int64, cells ascending in every row, zeros not stored.

        Its arrays are mapped from temporary files if they are large.
        """
        self._sum_up()
        if len(self._stored[0]):
            self._store()
            return self._total_of_stored()
        counts = self._sum.data.astype(np.int64)
        return sparse.csr_array(
            (counts, self._sum.indices, self._sum.indptr), shape=self._sum.shape
        )

    def _sum_up(self) -> None:
        """Add the pending records to the sum."""
        if not self._parts:
            return
        row, cell, count = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts, self._size = [], 0
        # No cell has more than the total, so that int32 holds until this is too large.
        count = count.astype(np.int32 if self._n_records < 2**31 else np.int64)
        added = sparse.csr_array(sparse.coo_array((count, (row, cell)), shape=self._sum.shape))
        self._sum = self._sum + added
        if self._sum.nnz > _MOST_ENTRIES:
            self._store()

    def _store(self) -> None:
        """Append the sum to the files, and begin a new one."""
        entries = sparse.coo_array(self._sum)
        row, cell = entries.coords
        self._stored[0].append(row.astype(np.int64) * self._sum.shape[1] + cell)
        self._stored[1].append(entries.data)
        self._sum = sparse.csr_array(self._sum.shape, dtype=np.int32)

    def _total_of_stored(self) -> sparse.csr_array:
        """The sum of all stored entries."""
        n_rows, n_cells = self._sum.shape
        keys, order = sorted_with_rows(self._stored[0].array())
        counts, n_in_row = self._stored[1].array(), np.zeros(n_rows + 1, dtype=np.int64)
        cells, sums = GrowingArray(np.int32), GrowingArray(np.int64)
        start = 0
        while start < len(keys):
            last = keys[min(start + _FEWEST_HELD, len(keys)) - 1]
            stop = int(np.searchsorted(keys, last, side="right"))
            first = np.flatnonzero(np.diff(keys[start:stop], prepend=-1))
            row, cell = np.divmod(keys[start:stop][first], n_cells)
            cells.append(cell)
            sums.append(np.add.reduceat(counts[order[start:stop]], first))
            n_in_row += np.bincount(row + 1, minlength=n_rows + 1)
            start = stop
        data, indices, indptr = sums.array(), cells.array(), np.cumsum(n_in_row)
        index_type = np.int32 if len(data) < 2**31 else np.int64
        arrays = (data, indices.astype(index_type, copy=False), indptr.astype(index_type))
        return sparse.csr_array(arrays, shape=self._sum.shape)


_FEWEST_HELD = 1 << 21
"""Entries that a sum holds before it adds them up."""

_MOST_ENTRIES = 1 << 24
"""Entries of a sum in memory; twice as many bytes for each of them while it is added to."""


def write_histogram(
    path: Path, histogram: sparse.csr_array, block_geocode: np.ndarray | pd.Series
) -> None:
    """Write the non-zero cells as Parquet, atomically: block_geocode, cell, count.

    Rows follow `block_geocode`, in row groups that a reader of a few blocks can skip.
    """
    geocode, indptr = pa.array(block_geocode, pa.string()), histogram.indptr
    schema = stamped(_SCHEMA, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for start in range(0, histogram.nnz, ROWS_PER_GROUP):
            rows = slice(start, min(start + ROWS_PER_GROUP, histogram.nnz))
            first = np.searchsorted(indptr, start, side="right") - 1
            last = np.searchsorted(indptr, rows.stop)
            ends = np.clip(indptr[first : last + 1], start, rows.stop)
            columns = [
                geocode.take(pa.array(np.repeat(np.arange(first, last), np.diff(ends)))),
                pa.array(histogram.indices[rows], type=pa.int64()),
                pa.array(histogram.data[rows], type=pa.int64()),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def read_histogram(path: Path, block_geocode: np.ndarray, *, n_cells: int) -> sparse.csr_array:
    """Read a file of `write_histogram`; rows in the order of `block_geocode`.

    The blocks may be fewer than were written if the missing ones have no records, and may be in
    another order. Raises ValueError if a block or cell with records was not requested.
    """
    n = len(block_geocode)
    return sum_histogram(path, block_geocode, np.arange(n), n_groups=n, n_cells=n_cells)


def sum_histogram(
    path: Path,
    block_geocode: np.ndarray,
    group: np.ndarray,
    *,
    n_groups: int,
    n_cells: int,
    among_others: bool = False,
) -> sparse.csr_array:
    """Sums `(n_groups, n_cells)` of the blocks' histograms: block i counts in `group[i]`.

    Memory is that of the requested blocks, of the sums and of one row group. With `among_others`
    the file's other blocks are skipped, and row groups without requested blocks are not read;
    without, a block with records that was not requested raises ValueError, as a cell of another
    schema always does.
    """
    wanted = TextIndex(block_geocode)
    sums = HistogramSum(n_groups, n_cells)
    with pq.ParquetFile(path, read_dictionary=["block_geocode"]) as file:
        for number in range(file.num_row_groups):
            stored = file.metadata.row_group(number)
            statistics = stored.column(0).statistics
            has_limits = statistics is not None and statistics.has_min_max
            near = wanted.between(statistics.min, statistics.max) if has_limits else wanted
            if not stored.num_rows or (among_others and not len(near)):
                continue
            row_group = file.read_row_group(number).combine_chunks()
            code, cell = row_group["block_geocode"].chunk(0), row_group["cell"].to_numpy()
            position = near.positions(code.dictionary)[code.indices.to_numpy()]
            known = position >= 0
            if (cell >= n_cells).any() or not (among_others or known.all()):
                raise ValueError(
                    f"{path.name} has records in blocks or cells that were not requested"
                )
            count = row_group["count"].to_numpy()
            sums.add(group[position[known]], cell[known], count[known])
    return sums.total()


BLOCK_DIGITS, DIGITS_OF_GEOLEVELS = 16, (0, 2, 5, 11, 12)
"""Digits of a block's geocode, and of the geolevels above it."""


def block_levels(geocode: np.ndarray) -> list[np.ndarray]:
    """The geounits of blocks with these geocodes, integers `(n_blocks,)`, from the nation to block
    groups: by number `(n_blocks,)`.
    """
    prefixes = (geocode // 10 ** (BLOCK_DIGITS - digits) for digits in DIGITS_OF_GEOLEVELS)
    return [np.unique(prefix, return_inverse=True)[1].reshape(-1) for prefix in prefixes]


def numbers_of(geocode: pd.Series) -> np.ndarray:
    """Geocodes of digits as integers, shape `(n_blocks,)`."""
    return np.asarray(pa.array(geocode).cast(pa.int64()))


def counties_of(
    geocode: np.ndarray, table: sparse.csr_array, shape: Sequence[int]
) -> Iterator[list[np.ndarray]]:
    """County by county the geocodes, cells and counts of the cells of blocks that are not zero.

    A cell is given by its position along the last axes `shape` of its schema and those before.
    """
    county = geocode // 10**DIGITS_BELOW_COUNTY
    starts = np.flatnonzero(np.append(True, county[1:] != county[:-1]))[: len(county)]
    for first, last in zip(starts, np.append(starts[1:], len(county)), strict=False):
        entries = slice(table.indptr[first], table.indptr[last])
        if entries.start == entries.stop:
            continue
        block = np.repeat(geocode[first:last], np.diff(table.indptr[first : last + 1]))
        cells = [table.indices[entries]]
        for size in shape:
            cells[:1] = np.divmod(cells[0], size)
        yield [block, *cells, table.data[entries]]
