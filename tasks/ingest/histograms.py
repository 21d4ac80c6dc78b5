"""Block histograms: how many records of a universe each block has in each cell of a schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from tasks.files import replacing


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
    histogram = sparse.csr_array(sparse.coo_array((ones, (block, cell)), shape=(n_blocks, n_cells)))
    histogram.sum_duplicates()
    return histogram


def write_histogram(path: Path, histogram: sparse.csr_array, block_geocode: np.ndarray) -> None:
    """Write the non-zero cells as Parquet, atomically: block_geocode, cell, count."""
    entries = sparse.coo_array(histogram)
    codes = pa.DictionaryArray.from_arrays(
        pa.array(entries.row, type=pa.int32()), pa.array(block_geocode, type=pa.string())
    )
    table = pa.table(
        {
            "block_geocode": codes.dictionary_decode(),
            "cell": pa.array(entries.col, type=pa.int64()),
            "count": pa.array(entries.data, type=pa.int64()),
        }
    )
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd")


def read_histogram(path: Path, block_geocode: np.ndarray, *, n_cells: int) -> sparse.csr_array:
    """Read what `write_histogram` wrote; rows in the order of `block_geocode`.

    The blocks may be fewer than were written if those left out have no records, and may come in
    another order. Raises ValueError if a block or cell with records is not among those asked for.
    """
    table = pq.read_table(path)
    row = pd.Index(np.asarray(block_geocode, dtype=object)).get_indexer(
        table["block_geocode"].to_numpy()
    )
    cell = table["cell"].to_numpy()
    if (row < 0).any() or (cell >= n_cells).any():
        raise ValueError(f"{path.name} has records in blocks or cells that are not asked for")
    histogram = sparse.csr_array(
        sparse.coo_array(
            (table["count"].to_numpy(), (row, cell)), shape=(len(block_geocode), n_cells)
        )
    )
    histogram.sum_duplicates()
    return histogram
