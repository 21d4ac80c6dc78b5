"""Layouts of input tables: their columns, and the canonical form of their texts.

A field's `kind` determines the canonical form of its text, for all formats and types of files:

- `number`: a whole number; leading zeros are dropped, so `028`, `28` and the integer 28 agree.
- `code`: digits of a fixed width; integers are padded with zeros on the left.
- `key`: an identifier that is only compared for equality.
- `text`: anything else.

Blanks are stripped from both ends of every text, and an empty result counts as blank.

The Census Edited File (CEF) layout: columns of the three input tables, and fixed-width places.

`presets/cef_layout.toml` declares them.

No other part of the tables knows their names; `tasks/census/presets/cef_2020.toml` declares the
attributes by which persons and units are counted.

Writers of the input tables in the three layouts that the readers accept.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ..runs.files import read_declared

Kind = Literal["number", "code", "key", "text"]


@dataclass(frozen=True)
class Field:
    """A column: its name, kind, place in a fixed-width line, and width of a `code`."""

    name: str
    kind: Kind
    start: int | None = None
    end: int | None = None
    width: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """First character in a fixed-width line, and the one after the last.

        Raises ValueError for a column that has no place in such a line.
        """
        if self.start is None or self.end is None:
            raise ValueError(f"the column {self.name} has no place in a fixed-width line")
        return self.start, self.end

    @property
    def digits(self) -> int:
        """`width` of a code that has one; raises ValueError for any other column."""
        if self.width is None:
            raise ValueError(f"the column {self.name} is no code of a fixed width")
        return self.width


@dataclass(frozen=True)
class TableLayout:
    """The columns of a table; `line_length` is set where a fixed-width layout exists.

    `column_names` says in messages whose names these are: "CEF", or "expected" where the
    settings name them.
    """

    table: str
    fields: tuple[Field, ...]
    line_length: int | None = None
    column_names: str = "CEF"
    _by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {entry.name: entry for entry in self.fields})

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the order of the layout."""
        return tuple(self._by_name)

    @property
    def fixed_length(self) -> int:
        """`line_length` of a table that has one; raises ValueError for any other."""
        if self.line_length is None:
            raise ValueError(f"the {self.table} table has no fixed-width layout")
        return self.line_length

    @classmethod
    def expected(cls, table: str, kinds: Mapping[str, Kind]) -> TableLayout:
        """The layout of a table whose columns the settings name, given their kinds by name."""
        fields = tuple(Field(name, kind) for name, kind in kinds.items())
        return cls(table, fields, column_names="expected")

    def field(self, name: str) -> Field:
        """The field of a column; a column outside the layout is plain text."""
        return self._by_name.get(name) or Field(name, "text")


_DECLARED = read_declared(Path(__file__).parent / "presets" / "cef_layout.toml")

LAYOUTS: Mapping[str, TableLayout] = {
    table: TableLayout(
        table, tuple(Field(**field) for field in own["fields"]), own.get("line_length")
    )
    for table, own in _DECLARED.items()
}
"""Layout of each input table by its name in the settings."""

PERSONS_LAYOUT, UNITS_LAYOUT = LAYOUTS["persons"], LAYOUTS["units"]
GEOGRAPHY_LAYOUT = LAYOUTS["geography"]

BLOCK_KEY = "OIDTABBLK"
"""Column with the identifier of a block."""

AIAN_COLUMN, RACE_COLUMN = "AIANNHCE", "CENRACE"
"""Columns with a block's AIAN area, and with a person's combination of races."""

GEOCODE_FIELDS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
"""The parts of a 16-digit block geocode: state, county, tract, block group, block."""


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
    """Lines of the layout's length, filled with spaces between columns."""
    line_length = layout.fixed_length
    n_rows = len(next(iter(columns.values())))
    lines = np.full((n_rows, line_length + 1), ord(" "), dtype=np.uint8)
    lines[:, -1] = ord("\n")
    for column in layout.fields:
        if column.name not in columns:
            continue
        values = columns[column.name]
        start, end = column.place
        width = end - start
        if np.issubdtype(values.dtype, np.integer):
            powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
            digits = values.astype(np.int64)[:, None] // powers % 10
            lines[:, start:end] = digits + ord("0")
        else:
            characters = values.astype(f"S{width}").view(np.uint8).reshape(n_rows, width)
            lines[:, start:end] = np.where(characters, characters, ord(" "))
    return lines.tobytes()
