"""The released file: all rows of the tables, level by level, as Parquet and as text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.stamps import write_rows
from ..estimation import SCHEMA, TITLES
from ..ingest.ingest import read_plan
from ..plan import UNIVERSE

SUPPLEMENTAL_DHC = "supplemental_dhc"
"""The file's name, without its ending."""


def released_rows(run: RunDirectory) -> pa.Table:
    """The rows of all levels, table by table."""
    levels = [pq.read_table(run.estimates(UNIVERSE, level)) for level in read_plan(run).levels]
    whole = pa.concat_tables([table.replace_schema_metadata(None) for table in levels])
    parts = [whole.filter(pa.compute.equal(whole["table"], name)) for name in TITLES]
    return pa.concat_tables(parts).cast(SCHEMA).combine_chunks()


def write_tables(run: RunDirectory, *, is_private: bool) -> None:
    """Write both files, the text last; text is comma-delimited, with a header."""
    rows = released_rows(run).replace_schema_metadata(None)
    stem = run.unchecked_release / SUPPLEMENTAL_DHC
    write_rows(stem, rows.schema, rows.to_batches(), is_private)
