"""Tables that records refer to on the way to their areas, of any census: read batch by batch.

Of a table there stay its keys, the area of every row, and the columns that others read of it; what
is large of them goes to temporary files. The tables behind it are read before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..tables.columns import CodedColumn, GrowingColumn, KeyColumn, KeyIndex
from ..tables.layouts import TableLayout
from ..tables.mapped import GrowingArray, zeros
from ..tables.readers import Batch, Selection, read_partitions
from ..tables.sources import InputFile
from .areas import AreaIndex

_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """A table on the way to the area: keys, the area of each row (-1 if unknown), the columns that
    are read of it and of those behind it, by `table.column`, and the rows of each of its files.
    """

    index: KeyIndex
    area: np.ndarray
    columns: Mapping[str, CodedColumn]
    n_rows: np.ndarray

    def __len__(self) -> int:
        return len(self.area)


@dataclass(frozen=True, eq=False)
class Placed:
    """Of a batch's records: their areas `(n_rows,)`, -1 for none, and their rows `(n_rows,)` in
    the table on the way to the area, -1 for none.
    """

    area: np.ndarray
    row: np.ndarray


@dataclass(frozen=True, eq=False)
class OwnAreas:
    """Records find their areas by columns of their own."""

    texts: tuple[str, ...]
    index: AreaIndex
    keys: tuple[str, ...] = ()

    def of(self, batch: Batch, columns: dict[str, CodedColumn]) -> Placed:
        """The areas of a batch's records."""
        area = self.index.positions([columns[column] for column in self.texts])
        return Placed(area, np.full(len(area), -1))

    def __len__(self) -> int:
        """No table is referred to."""
        return 0


@dataclass(frozen=True, eq=False)
class ByTable:
    """Records find their areas by a table that a column refers to."""

    column: str
    joined: JoinedTable
    texts: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of identifiers that are read."""
        return (self.column,)

    def of(self, batch: Batch, columns: dict[str, CodedColumn]) -> Placed:
        """The areas of a batch's records; `columns` gets those of the table."""
        row = self.joined.index.positions(batch[self.column])
        for name, column in self.joined.columns.items():
            columns[name] = taken(column, row)
        return Placed(at_rows(self.joined.area, row, -1), row)

    def __len__(self) -> int:
        """Rows of the table that is referred to."""
        return len(self.joined)


Placing = OwnAreas | ByTable
"""How rows find their areas."""

Tally = Callable[[Batch, Mapping[str, CodedColumn], Placed, int], None]
"""Holds a batch, with its columns and places, of the table's file at a position to rules."""


def read_joined(
    files: Sequence[InputFile],
    key: str,
    columns: Mapping[str, str],
    place: Placing,
    tally: Tally,
    scratch: Path | None = None,
) -> JoinedTable:
    """Read a table that others refer to by its `key`.

    `columns` are those that stay, by the names that they get; of the tables behind it all stay.
    Raises UnreadableInput.
    """
    keys, area = KeyColumn(scratch), GrowingArray(np.int32, scratch)
    behind = place.joined.columns if isinstance(place, ByTable) else {}
    stay = {name: name for name in behind} | dict(columns)
    found = {name: GrowingColumn(scratch) for name in stay}
    n_rows = np.zeros(len(files), dtype=np.int64)
    texts = tuple(dict.fromkeys((*columns.values(), *place.texts)))
    for file, batch, coded in read_coded(files, texts, (key, *place.keys)):
        placed = place.of(batch, coded)
        keys.add(batch[key])
        area.append(placed.area)
        n_rows[file] += len(placed.area)
        for name, growing in found.items():
            growing.append(coded[stay[name]])
        tally(batch, coded, placed, file)
    grown = {name: growing.column() for name, growing in found.items()}
    return JoinedTable(KeyIndex(keys), area.array(), grown, n_rows)


def read_coded(
    files: Sequence[InputFile], texts: Sequence[str], keys: Sequence[str]
) -> Iterator[tuple[int, Batch, dict[str, CodedColumn]]]:
    """Batches of some columns of a table, each with the position of its file, and `texts` coded."""
    wanted = Selection(tuple(dict.fromkeys((*texts, *keys))))
    for file, batch in read_partitions(files, wanted):
        yield file, batch, coded(batch, texts, files[file].columns)


def coded(batch: Batch, names: Sequence[str], layout: TableLayout) -> dict[str, CodedColumn]:
    """Some columns of a batch in one form."""
    return {name: CodedColumn.from_arrow(batch[name], layout.field(name)) for name in names}


def taken(column: CodedColumn, rows: np.ndarray) -> CodedColumn:
    """The column at some rows; blank where there is no row."""
    values = column.values if None in column.values else (*column.values, None)
    blank = values.index(None)
    return CodedColumn(at_rows(column.codes, rows, blank), values)


def at_rows(values: np.ndarray, rows: np.ndarray, missing: int) -> np.ndarray:
    """Values `(n,)` at some rows, which may be none of them; `missing` where a row is negative."""
    found = np.full(len(rows), missing, dtype=np.result_type(values, np.min_scalar_type(missing)))
    is_known = rows >= 0
    found[is_known] = values[rows[is_known]]
    return found


def first_rows(index: KeyIndex, keys: KeyColumn, scratch: Path | None = None) -> np.ndarray:
    """The first row with the key of a row, `(n_rows,)`, of an index of these keys; -1 if blank."""
    found = GrowingArray(np.int64, scratch)
    for part in keys.chunks():
        found.append(index.positions(part))
    return found.array()


def numbers_of_alike(
    keys: KeyColumn, weights: np.ndarray | None = None, scratch: Path | None = None
) -> np.ndarray:
    """How many rows have the key of a row, or the sum of their weights, `(n_rows,)`; 0 if blank."""
    first = first_rows(KeyIndex(keys), keys, scratch)
    numbers, found = zeros(len(first), np.int64, scratch), zeros(len(first), np.int64, scratch)
    for start in range(0, len(first), _ROWS_AT_ONCE):
        own = slice(start, start + _ROWS_AT_ONCE)
        is_known = first[own] >= 0
        np.add.at(numbers, first[own][is_known], 1 if weights is None else weights[own][is_known])
    for start in range(0, len(first), _ROWS_AT_ONCE):
        own = slice(start, start + _ROWS_AT_ONCE)
        found[own] = np.where(first[own] >= 0, numbers[first[own]], 0)
    return found
