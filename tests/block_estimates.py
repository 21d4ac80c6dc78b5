"""The block estimates of a run of the 2020 presets, read for tests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def read_block_estimates(run_directory: Path, universe: str) -> pa.Table:
    """block_geocode, cell, count: a block's geocode on any spine ends with its 16 digits."""
    files = sorted((run_directory / "estimates" / universe / "Block").glob("*.parquet"))
    tables = [pq.read_table(path, columns=["geocode", "cell", "count"]) for path in files]
    table = pa.concat_tables(tables, promote_options="permissive")
    return table.set_column(
        0, "block_geocode", pc.utf8_slice_codeunits(table["geocode"], start=-16)
    )
