"""The released file: all rows of the tables, level by level, as Parquet and as text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.files import NOT_PRIVATE, STAMP_KEY, replacing
from ..estimation.estimate import SCHEMA
from ..ingest.files import read_plan
from ..paths import estimates_file
from ..workload.rows import TITLES

SUPPLEMENTAL_DHC = "supplemental_dhc"
"""The file's name, without its ending."""


def released_rows(run: RunDirectory) -> pa.Table:
    """The rows of all levels, table by table."""
    levels = [pq.read_table(estimates_file(run, level)) for level in read_plan(run).levels]
    whole = pa.concat_tables([table.replace_schema_metadata(None) for table in levels])
    parts = [whole.filter(pa.compute.equal(whole["table"], name)) for name in TITLES]
    return pa.concat_tables(parts).cast(SCHEMA).combine_chunks()


def write_tables(run: RunDirectory, *, is_private: bool) -> None:
    """Write both files, the text first; text is comma-delimited, with a header."""
    table, stem = released_rows(run), run.unchecked_release / SUPPLEMENTAL_DHC
    metadata = None if is_private else {STAMP_KEY: NOT_PRIVATE}
    stamp = "" if is_private else f"# {NOT_PRIVATE}\n"
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    with replacing(stem.with_suffix(".csv")) as part, part.open("wb") as sink:
        sink.write((stamp + ",".join(SCHEMA.names) + "\n").encode())
        pyarrow.csv.write_csv(table, sink, options)
    with replacing(stem.with_suffix(".parquet")) as part:
        pq.write_table(table.replace_schema_metadata(metadata), part, compression="zstd")
