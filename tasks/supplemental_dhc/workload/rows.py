"""The rows of the published tables: sums of measured cells, and averages of two such sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runs.files import read_declared

LARGEST_AVERAGE = 10
"""Persons of a household, or of a family, on average at most."""


@dataclass(frozen=True)
class Cells:
    """Some cells of a measure, added up."""

    measure: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table, numbered as in production.

    counted : the cells that are added up.
    of : the households that their number is divided by; None in a table of counts.
    whole : the cells of which `counted` are some, and whose average lies between `smallest` and
        `LARGEST_AVERAGE`; the same as `counted` where the row is the whole.
    """

    table: str
    number: int
    label: str
    counted: Cells
    of: Cells | None = None
    whole: Cells | None = None
    smallest: int = 1

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that the row is made of."""
        return (
            (self.counted.measure,) if self.of is None else (self.counted.measure, self.of.measure)
        )


def _rows(table: str, declared: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of a table, as `presets/tables.toml` declares them."""
    for number, row in enumerate(declared["rows"], start=1):
        counted, of, whole = Cells(declared["measure"], tuple(row["cells"])), None, None
        if "of" in row:
            of = Cells(declared["households"], tuple(row["of"]))
            whole = Cells(declared["measure"], tuple(row.get("whole", row["cells"])))
        yield Row(table, number, row["label"], counted, of, whole, declared.get("smallest", 1))


_DECLARED = read_declared(Path(__file__).parent / "presets" / "tables.toml")

ROWS = tuple(row for table, declared in _DECLARED.items() for row in _rows(table, declared))
"""All rows, table by table."""

TITLES: Mapping[str, str] = {table: declared["title"] for table, declared in _DECLARED.items()}
"""What the tables are of."""
