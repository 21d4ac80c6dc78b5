"""Tables that several tasks have written in parts, put together in one pair of files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from .files import replacing
from .stamps import GroupedRows, WrittenFiles

_ARROW_SCHEMA = b"ARROW:schema"
"""Key under which a Parquet file stores the types of Arrow, where it does."""


def concatenate_rows(stem: Path, parts: Sequence[Path]) -> WrittenFiles:
    """Write the Parquet and the text file `stem` from those of all `parts`, in order, and remove
    the parts.

    Each part has the two files as `stamps.rows_written` writes them, with the same columns. The
    result has the rows, types and stamp of one file. Large row groups stay as they are; see
    `GroupedRows`. The text appears last.
    """
    with (
        replacing(stem.with_suffix(".csv")) as text,
        replacing(stem.with_suffix(".parquet")) as parquet,
    ):
        n_rows = _concatenate_parquet(parquet, [part.with_suffix(".parquet") for part in parts])
        _concatenate_text(text, [part.with_suffix(".csv") for part in parts])
    for part in parts:
        for path in (part.with_suffix(".csv"), part.with_suffix(".parquet")):
            path.unlink()
    return WrittenFiles(stem.with_suffix(".parquet"), stem.with_suffix(".csv"), n_rows)


def _concatenate_text(path: Path, parts: Sequence[Path]) -> None:
    """Write the rows of all parts under the stamp and the header of the first."""
    with path.open("wb") as sink:
        for number, part in enumerate(parts):
            with part.open("rb") as source:
                if number and source.readline().startswith(b"# "):
                    source.readline()
                shutil.copyfileobj(source, sink)


def _concatenate_parquet(path: Path, parts: Sequence[Path]) -> int:
    """Write the rows of all parts, a row group in memory at a time; returns their number."""
    schema = pq.read_schema(parts[0])
    keeps_types = _ARROW_SCHEMA in (pq.read_metadata(parts[0]).metadata or {})
    n_rows = 0
    with pq.ParquetWriter(path, schema, store_schema=keeps_types, **_options(parts)) as sink:
        if schema.metadata and not keeps_types:
            sink.add_key_value_metadata(schema.metadata)
        rows = GroupedRows(sink.write_table)
        for part in map(pq.ParquetFile, parts):
            for number in range(part.num_row_groups):
                rows.add(part.read_row_group(number))
            n_rows += part.metadata.num_rows
        rows.write()
    return n_rows


def _options(parts: Sequence[Path]) -> dict[str, Any]:
    """Options of Parquet's writer with which the parts were written, by the first that has rows."""
    for metadata in map(pq.read_metadata, parts):
        if metadata.num_row_groups:
            columns = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
            encoded = [one.path_in_schema for one in columns if one.has_dictionary_page]
            return {"compression": columns[0].compression.lower(), "use_dictionary": encoded}
    return {}
