"""The Census Edited File (CEF) layout: columns of the three input tables.

A field's `kind` says how its text is brought to one form, whatever the file's format and types:

- `number`: a whole number; leading zeros are dropped, so `028`, `28` and the integer 28 agree.
- `code`: digits of a fixed width; integers are padded with zeros on the left.
- `key`: an identifier that is only compared for equality.
- `text`: anything else.

Blanks are stripped from both ends of every text, and what is then empty counts as blank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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

    def field(self, name: str) -> Field:
        """The field of a column; a column outside the layout is plain text."""
        return self._by_name.get(name) or Field(name, "text")


PERSONS_LAYOUT = TableLayout(
    "persons",
    (
        Field("RTYPE", "number", 0, 1),
        Field("MAFID", "key", 1, 10),
        Field("CUF_PNC", "number", 10, 15),
        Field("BCUSTATEFP", "code", 15, 17, width=2),
        Field("QSEX", "number", 22, 23),
        Field("QAGE", "number", 23, 26),
        Field("QSPAN", "code", 42, 46, width=4),
        Field("CENHISP", "number", 47, 48),
        *(Field(f"QRACE{i + 1}", "code", 48 + 4 * i, 52 + 4 * i, width=4) for i in range(8)),
        Field("CENRACE", "number", 81, 83),
        Field("RELSHIP", "number", 85, 87),
        Field("QGQTYP", "number", 87, 90),
    ),
    line_length=91,
)

UNITS_LAYOUT = TableLayout(
    "units",
    (
        Field("RTYPE", "number", 0, 1),
        Field("MAFID", "key", 1, 10),
        Field("BCUSTATEFP", "code", 10, 12, width=2),
        Field("FINAL_POP", "number", 17, 22),
        Field("TEN", "number", 29, 30),
        Field("VACS", "number", 32, 33),
        Field("QGQTYP", "number", 33, 36),
        Field("OIDTB", "key", 37, 59),
    ),
    line_length=76,
)

BLOCK_KEY = "OIDTABBLK"
"""Column with the identifier of a block."""

AIAN_COLUMN, RACE_COLUMN = "AIANNHCE", "CENRACE"
"""Columns with a block's AIAN area, and with a person's combination of races."""

GEOCODE_FIELDS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
"""The parts of a 16-digit block geocode: state, county, tract, block group, block."""

GEOGRAPHY_LAYOUT = TableLayout(
    "geography",
    (
        Field(BLOCK_KEY, "key"),
        Field("TABBLKST", "code", width=2),
        Field("TABBLKCOU", "code", width=3),
        Field("TABTRACTCE", "code", width=6),
        Field("TABBLKGRPCE", "code", width=1),
        Field("TABBLK", "code", width=4),
        Field("AIANNHCE", "code", width=4),
        Field("COUSUBFP", "code", width=5),
        Field("PLACEFP", "code", width=5),
    ),
)

LAYOUTS: Mapping[str, TableLayout] = {
    layout.table: layout for layout in (PERSONS_LAYOUT, UNITS_LAYOUT, GEOGRAPHY_LAYOUT)
}
"""Layout of each input table by its name in the settings."""
