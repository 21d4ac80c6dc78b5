"""The block estimates of a run of the 2020 presets, read for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.tasks.topdown.release.microdata import BlockCounts


def block_counts(
    block_geocode: Sequence[str], counts: sparse.csr_array | np.ndarray
) -> BlockCounts:
    """Counts `(n_blocks, n_cells)` of blocks in any order, as microdata are written of them."""
    geocode = np.array(block_geocode, dtype=object)
    order = np.argsort(geocode)
    return BlockCounts(pa.array(geocode[order], pa.string()), sparse.csr_array(counts)[order])


def counts_of_table(table: pa.Table, n_cells: int, blocks: Sequence[str] = ()) -> BlockCounts:
    """Counts of a table of block_geocode, cell and count, and of further blocks without any."""
    geocode = table["block_geocode"].to_pylist()
    known = sorted({*geocode, *blocks})
    row = np.array([known.index(code) for code in geocode], dtype=np.int64)
    where = row, table["cell"].to_numpy()
    counts = sparse.coo_array((table["count"].to_numpy(), where), shape=(len(known), n_cells))
    return block_counts(known, sparse.csr_array(counts))


def read_block_estimates(run_directory: Path, universe: str) -> pa.Table:
    """block_geocode, cell, count: a block's geocode on any spine ends with its 16 digits."""
    files = sorted((run_directory / "estimates" / universe / "Block").glob("*.parquet"))
    tables = [pq.read_table(path, columns=["geocode", "cell", "count"]) for path in files]
    table = pa.concat_tables(tables, promote_options="permissive")
    return table.set_column(
        0, "block_geocode", pc.utf8_slice_codeunits(table["geocode"], start=-16)
    )
