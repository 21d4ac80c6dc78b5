"""Parquet files of a run, stamped as they are written if the run is not private.

A run that is not private says so in every file from its first byte on: files that are written
once, such as measurements, are never written again, and an interrupted run must leave no file that
looks private. The run directory of a file decides, whose `NOT PRIVATE.txt` is written before all
other files.

Tables that several tasks have written in parts are put together in one pair of files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .directory import RunDirectory
from .files import NOT_PRIVATE, STAMP_FILE, STAMP_KEY, Recording, replacing, write_once

if TYPE_CHECKING:
    import pandas as pd

_SETTINGS = "settings.toml"

VALUES = "value"
"""Column of measured or exact values in the files of measurements."""
INTEGER_LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))
"""Type of the numbers in a row of noisy measurements."""
WRITTEN_AT_ONCE = 1 << 18
"""Bytes: Parquet has several writes of each column, of which tables have hundreds."""

Columns = Mapping[str, Any]
"""A batch of rows: its columns, Arrow's arrays, by name."""

Frames = TypeVar("Frames")
"""A data class whose fields are frames."""


def schema_without_nulls(**kinds: pa.DataType) -> pa.Schema:
    """The schema of columns without nulls, by their types."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def stamp_at(path: Path) -> dict[str, str]:
    """Metadata of the Parquet file at a path: a stamp if it is in the directory of a run that is
    not private."""
    for folder in path.absolute().parents:
        if (folder / _SETTINGS).exists():
            return {STAMP_KEY: NOT_PRIVATE} if (folder / STAMP_FILE).exists() else {}
    return {}


def stamped(schema: pa.Schema, path: Path) -> pa.Schema:
    """The schema of the Parquet file at a path, with the stamp if need be."""
    metadata = stamp_at(path)
    return schema.with_metadata({**(schema.metadata or {}), **metadata}) if metadata else schema


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table in one step, with the stamp if need be; `options` as of `pq.write_table`."""
    table = table.replace_schema_metadata(stamped(table.schema, path).metadata)
    with replacing(path) as part:
        pq.write_table(table, part, **options)


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame without its index, as `write_parquet` does."""
    write_parquet(path, pa.Table.from_pandas(frame, preserve_index=False))


def write_frames(folder: Path, frames: Any) -> None:
    """Write the frames of a data class into a folder, each under the name of its field."""
    for path in _files_of(folder, type(frames)):
        write_frame(path, getattr(frames, path.stem))


def has_frames(folder: Path, kind: type[Any]) -> bool:
    """Whether `write_frames` has written all frames of a data class."""
    return all(path.exists() for path in _files_of(folder, kind))


def read_frames(folder: Path, kind: type[Frames]) -> Frames:
    """Read the frames that `write_frames` wrote."""
    return kind(*(pq.read_table(path).to_pandas() for path in _files_of(folder, kind)))


def _files_of(folder: Path, kind: type[Any]) -> list[Path]:
    return [folder / f"{field.name}.parquet" for field in fields(kind)]


def write_parquet_once(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    recording: Recording | None = None,
    row_group_size: int | None = None,
) -> Path:
    """Write batches as `write_once` does, one row group each, or more of at most `row_group_size`
    rows.

    The column `VALUES` holds noisy counts, small numbers of which few repeat: packed in no more
    bits than they need, they take less room and time than in a dictionary.

    An existing file is kept, and then nothing is taken from `batches`: an iterator that draws
    noise draws none. `recording` sees to it that the file is recorded before others can read it.
    """
    in_file = {field.name: _name_in_file(field) for field in schema}
    values = in_file.pop(VALUES)

    def write(file: BinaryIO) -> None:
        with pq.ParquetWriter(
            file,
            stamped(schema, path),
            compression="zstd",
            compression_level=1,
            use_dictionary=list(in_file.values()),
            column_encoding={values: "DELTA_BINARY_PACKED"},
        ) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=row_group_size)

    return write_once(path, write, recording)


def _name_in_file(field: pa.Field) -> str:
    """Parquet's name for a column, or for the elements of a column of lists."""
    is_list = pa.types.is_list(field.type)
    return f"{field.name}.list.{field.type.value_field.name}" if is_list else str(field.name)


@dataclass(frozen=True)
class RowsForm:
    """How rows are written; see `text_rows` and `parquet_rows`."""

    delimiter: str = ","
    is_quoted: bool = True
    keeps_types: bool = True


def write_rows(
    stem: Path,
    schema: pa.Schema,
    batches: Iterable[Columns],
    form: RowsForm = RowsForm(),
    **options: Any,
) -> Path:
    """Write batches as Parquet and as text, whose path is returned; see `rows_written`."""
    with rows_written(stem, schema, form, **options) as write:
        for batch in batches:
            write(batch)
    return stem.with_suffix(".csv")


@contextmanager
def rows_written(
    stem: Path, schema: pa.Schema, form: RowsForm, **options: Any
) -> Iterator[Callable[[Columns], None]]:
    """Yield a function that writes a batch of columns as Parquet and as text.

    Both files are stamped if the run is not private; the text has a header, and appears last.
    `options` are those of Parquet.
    """
    with (
        replacing(stem.with_suffix(".csv")) as csv,
        replacing(stem.with_suffix(".parquet")) as parquet,
        text_rows(csv, schema, form) as lines,
        parquet_rows(parquet, schema, form.keeps_types, **options) as writer,
    ):

        def write(batch: Columns) -> None:
            rows = pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)
            writer.write_batch(rows)
            lines.write_batch(rows)

        yield write


ROWS_PER_GROUP = 1 << 14
"""Least rows of a group in a table of hundreds of columns: every group has a part for each."""


class GroupedRows:
    """Rows that are written in groups of `ROWS_PER_GROUP` or more, but for the last one."""

    def __init__(self, write: Callable[[pa.Table], object]) -> None:
        self._write = write
        self._rows: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        self._rows.append(rows)
        if sum(map(len, self._rows)) >= ROWS_PER_GROUP:
            self.write()

    def write(self) -> None:
        """Write the rows that are left."""
        if self._rows:
            self._write(pa.concat_tables(self._rows).combine_chunks())
            self._rows = []


@contextmanager
def text_rows(
    file: Path, schema: pa.Schema, form: RowsForm = RowsForm(), beside: Path | None = None
) -> Iterator[pyarrow.csv.CSVWriter]:
    """A writer of rows as text under a header, preceded by a stamp in the directory of a run that
    is not private, or for a file `beside` in one."""
    options = pyarrow.csv.WriteOptions(
        include_header=False,
        delimiter=form.delimiter,
        quoting_style="needed" if form.is_quoted else "none",
    )
    with file.open("wb") as sink:
        first = f"# {NOT_PRIVATE}\n" if stamp_at(beside or file) else ""
        sink.write((first + form.delimiter.join(schema.names) + "\n").encode())
        with pyarrow.csv.CSVWriter(sink, schema, write_options=options) as lines:
            yield lines


@contextmanager
def table_rows(
    path: Path, schema: pa.Schema, run: RunDirectory
) -> Iterator[pyarrow.csv.CSVWriter | pq.ParquetWriter]:
    """A writer of rows as CSV or, by any other name, as Parquet, into a file that appears whole,
    with the stamp of a run that may be elsewhere."""
    with replacing(path) as file:
        if path.suffix == ".csv":
            rows: Any = text_rows(file, schema, beside=run.settings)
        else:
            rows = parquet_rows(file, schema, False, run.settings)
        with rows as writer:
            yield writer


@contextmanager
def parquet_rows(
    file: Path,
    schema: pa.Schema,
    keeps_types: bool = True,
    beside: Path | None = None,
    **options: Any,
) -> Iterator[pq.ParquetWriter]:
    """A writer of rows as Parquet, with the stamp as in `text_rows`; `keeps_types` whether to store
    the types of Arrow as well, and further `options` are Parquet's."""
    metadata = stamp_at(beside or file)
    whole = stamped(schema, beside or file) if keeps_types else schema
    options = {"compression": "zstd", "store_schema": keeps_types} | options
    with (
        pa.OSFile(str(file), "wb") as sink,
        pa.BufferedOutputStream(sink, WRITTEN_AT_ONCE) as buffered,
        pq.ParquetWriter(buffered, whole, **options) as rows,
    ):
        if metadata and not keeps_types:
            rows.add_key_value_metadata(metadata)
        yield rows


_ARROW_SCHEMA = b"ARROW:schema"
"""Key under which a Parquet file stores the types of Arrow, where it does."""


def concatenate_rows(stem: Path, parts: Sequence[Path]) -> Path:
    """Write the Parquet and the text file `stem` from those of all `parts`, in order, and remove
    the parts; returns the path of the text.

    Each part has the two files as `stamps.rows_written` writes them, with the same columns. The
    result has the rows, types and stamp of one file. Large row groups stay as they are; see
    `GroupedRows`. The text appears last.
    """
    with (
        replacing(stem.with_suffix(".csv")) as text,
        replacing(stem.with_suffix(".parquet")) as parquet,
    ):
        _concatenate_parquet(parquet, [part.with_suffix(".parquet") for part in parts])
        _concatenate_text(text, [part.with_suffix(".csv") for part in parts])
    for part in parts:
        for path in (part.with_suffix(".csv"), part.with_suffix(".parquet")):
            path.unlink()
    return stem.with_suffix(".csv")


def _concatenate_text(path: Path, parts: Sequence[Path]) -> None:
    """Write the rows of all parts under the stamp and the header of the first."""
    with path.open("wb") as sink:
        for number, part in enumerate(parts):
            with part.open("rb") as source:
                if number and source.readline().startswith(b"# "):
                    source.readline()
                shutil.copyfileobj(source, sink)


def _concatenate_parquet(path: Path, parts: Sequence[Path]) -> None:
    """Write the rows of all parts, a row group in memory at a time."""
    schema = pq.read_schema(parts[0])
    keeps_types = _ARROW_SCHEMA in (pq.read_metadata(parts[0]).metadata or {})
    with pq.ParquetWriter(path, schema, store_schema=keeps_types, **_options(parts)) as sink:
        if schema.metadata and not keeps_types:
            sink.add_key_value_metadata(schema.metadata)
        rows = GroupedRows(sink.write_table)
        for part in map(pq.ParquetFile, parts):
            for number in range(part.num_row_groups):
                rows.add(part.read_row_group(number))
        rows.write()


def _options(parts: Sequence[Path]) -> dict[str, Any]:
    """Options of Parquet's writer with which the parts were written, by the first that has rows."""
    for metadata in map(pq.read_metadata, parts):
        if metadata.num_row_groups:
            columns = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
            encoded = [one.path_in_schema for one in columns if one.has_dictionary_page]
            return {"compression": columns[0].compression.lower(), "use_dictionary": encoded}
    return {}
