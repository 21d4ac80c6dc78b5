"""Parquet files of a run, stamped as they are written if the run is not private.

A run that protects nobody says so in every file from its first byte on: what is written once, as
measurements are, is never written again, and whoever stops such a run half way has no file that
looks like another's. What writes a file far from the settings learns it from the run directory
that the file lies in, whose `NOT PRIVATE.txt` is there before everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .files import NOT_PRIVATE, STAMP_FILE, STAMP_KEY, replacing
from .writing import Recording, write_once

_SETTINGS = "settings.toml"

VALUES = "value"
"""Column of what was measured, or is exact, in the files of measurements."""
INTEGER_LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))
"""Type of the numbers that a row of noisy measurements holds."""


def stamp(*, is_private: bool) -> dict[str, str]:
    """Metadata of the Parquet files of a run; empty if it is private."""
    return {} if is_private else {STAMP_KEY: NOT_PRIVATE}


def stamp_at(path: Path) -> dict[str, str]:
    """Metadata of the Parquet file at a path: a stamp if the run directory that it lies in is of a
    run that is not private."""
    for folder in path.absolute().parents:
        if (folder / _SETTINGS).exists():
            return stamp(is_private=not (folder / STAMP_FILE).exists())
    return {}


def stamped(schema: pa.Schema, metadata: dict[str, str]) -> pa.Schema:
    """A schema with metadata beside its own.

    >>> stamped(pa.schema([]), stamp(is_private=False)).metadata
    {b'spineflow': b'NOT PRIVATE'}
    """
    return schema.with_metadata({**(schema.metadata or {}), **metadata}) if metadata else schema


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table in one step, with the stamp if need be; `options` as of `pq.write_table`."""
    table = table.replace_schema_metadata(stamped(table.schema, stamp_at(path)).metadata)
    with replacing(path) as part:
        pq.write_table(table, part, **options)


def write_parquet_once(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    metadata: dict[str, str],
    *,
    recording: Recording | None = None,
    row_group_size: int | None = None,
) -> Path:
    """Write batches as `write_once` does, one row group each, or more of at most `row_group_size`
    rows; `metadata` is the stamp. The column `VALUES` holds noisy counts, small numbers of
    which few repeat: packed in no more bits than they need, they take less room and time than in a
    dictionary.

    An existing file is kept, and then nothing is taken from `batches`: an iterator that draws
    noise draws none. `recording` sees to it that the file is recorded before others can read it.
    """

    in_file = {field.name: _name_in_file(field) for field in schema}
    values = in_file.pop(VALUES)

    def write(file: BinaryIO) -> None:
        with pq.ParquetWriter(
            file,
            stamped(schema, metadata),
            compression="zstd",
            compression_level=1,
            use_dictionary=list(in_file.values()),
            column_encoding={values: "DELTA_BINARY_PACKED"},
        ) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=row_group_size)

    return write_once(path, write, recording)


def _name_in_file(field: pa.Field) -> str:
    """What Parquet calls a column, or the elements of one of lists."""
    is_list = pa.types.is_list(field.type)
    return f"{field.name}.list.{field.type.value_field.name}" if is_list else str(field.name)


def write_text_and_parquet(
    stem: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    is_private: bool,
    is_quoted: bool = True,
) -> None:
    """Write rows as `stem`.csv, comma-delimited under a header, and as `stem`.parquet, stamped if
    they are not private; texts are quoted where they must be, unless nothing `is_quoted`."""
    options = pyarrow.csv.WriteOptions(
        include_header=False, quoting_style="needed" if is_quoted else "none"
    )
    of_parquet = schema.with_metadata(None if is_private else stamp(is_private=False))
    with (
        replacing(stem.with_suffix(".csv")) as text_part,
        replacing(stem.with_suffix(".parquet")) as parquet_part,
        text_part.open("wb") as sink,
        pq.ParquetWriter(parquet_part, of_parquet, compression="zstd") as parquet_writer,
    ):
        header = "" if is_private else f"# {NOT_PRIVATE}\n"
        sink.write((header + ",".join(schema.names) + "\n").encode())
        with pyarrow.csv.CSVWriter(sink, schema, write_options=options) as text_writer:
            for batch in batches:
                parquet_writer.write_batch(batch)
                text_writer.write_batch(batch)
