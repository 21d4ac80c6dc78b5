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

Texts of delimited tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from ..runs.files import read_declared

Kind = Literal["number", "code", "key", "text"]


@dataclass(frozen=True)
class Field:
    """A column: its name, kind, place in a fixed-width line, and width of a `code`."""

    name: str
    kind: Kind
    place: tuple[int, int] | None = None
    """First character in a fixed-width line, and the one after the last."""
    width: int | None = None


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

    @cached_property
    def _by_name(self) -> Mapping[str, Field]:
        return {entry.name: entry for entry in self.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the order of the layout."""
        return tuple(self._by_name)

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

GEOGRAPHY_LAYOUT = LAYOUTS["geography"]

BLOCK_KEY = "OIDTABBLK"
"""Column with the identifier of a block."""

AIAN_COLUMN, RACE_COLUMN = "AIANNHCE", "CENRACE"
"""Columns with a block's AIAN area, and with a person's combination of races."""

GEOCODE_FIELDS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
"""The parts of a 16-digit block geocode: state, county, tract, block group, block."""


def delimited_text(columns: Mapping[str, np.ndarray], delimiter: str = "|") -> bytes:
    """A header with the names of columns `(n_rows,)`, then the rows, unquoted."""
    sink = pa.BufferOutputStream()
    sink.write((delimiter.join(columns) + "\n").encode())
    pacsv.write_csv(
        pa.table(dict(columns)),
        sink,
        pacsv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none"),
    )
    return sink.getvalue().to_pybytes()
