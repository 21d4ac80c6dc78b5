"""Writers of the input tables in the three layouts that the readers accept."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from .layouts import TableLayout

FileLayout = Literal["parquet", "delimited", "fixed_width"]
Columns = Mapping[str, np.ndarray]
"""Columns of a table by name, shape `(n_rows,)` each: integers or texts."""


def write_table(
    path: Path, columns: Columns, layout: TableLayout, file_layout: FileLayout, delimiter: str = "|"
) -> None:
    """Write a table; a `path` that ends in `.gz` is gzipped (not for Parquet).

    Fixed-width lines hold the columns that the layout places; numbers are padded with zeros on
    the left, and a table without a fixed-width layout raises ValueError.
    """
    if file_layout == "parquet":
        pq.write_table(pa.table(dict(columns)), path, compression="zstd")
        return
    content = (
        delimited_text(columns, delimiter)
        if file_layout == "delimited"
        else fixed_width_text(columns, layout)
    )
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def delimited_text(columns: Columns, delimiter: str = "|") -> bytes:
    """A header with the column names, then the rows, unquoted."""
    sink = pa.BufferOutputStream()
    sink.write((delimiter.join(columns) + "\n").encode())
    pacsv.write_csv(
        pa.table(dict(columns)),
        sink,
        pacsv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none"),
    )
    return sink.getvalue().to_pybytes()


def fixed_width_text(columns: Columns, layout: TableLayout) -> bytes:
    """Lines of the layout's length, filled with spaces where no column stands."""
    line_length = layout.fixed_length
    n_rows = len(next(iter(columns.values())))
    lines = np.full((n_rows, line_length + 1), ord(" "), dtype=np.uint8)
    lines[:, -1] = ord("\n")
    for field in layout.fields:
        if field.name not in columns:
            continue
        values = columns[field.name]
        start, end = field.place
        width = end - start
        if np.issubdtype(values.dtype, np.integer):
            powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
            digits = values.astype(np.int64)[:, None] // powers % 10
            lines[:, start:end] = digits + ord("0")
        else:
            characters = values.astype(f"S{width}").view(np.uint8).reshape(n_rows, width)
            lines[:, start:end] = np.where(characters, characters, ord(" "))
    return lines.tobytes()
