"""Tables that records refer to on the way to their areas, of any census: read batch by batch.

Each keeps its keys, the area of every row, and the columns that others read; large arrays go to
temporary files. The tables behind it are read before it.

Occupants: rows of another table with values for the records to which they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..tables.columns import (
    CodedColumn,
    GrowingArray,
    GrowingColumn,
    KeyColumn,
    KeyIndex,
    canonical_keys,
    is_inexact_key,
    zeros,
)
from ..tables.layouts import TableLayout
from ..tables.readers import Batch, Selection, read_partitions
from ..tables.sources import InputFile, Share
from ..tables.value_tallies import FilesRead, ValueTally, row_hashes
from .areas import AreaIndex
from .declarations import OccupantDeclaration
from .recodes import CodeSet

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


Places = tuple[np.ndarray, np.ndarray]
"""Areas of a batch's records `(n_rows,)`, and their rows in the table on the path to the area
`(n_rows,)`; -1 for none."""


@dataclass(frozen=True, eq=False)
class OwnAreas:
    """Records find their areas by columns of their own."""

    texts: tuple[str, ...]
    index: AreaIndex
    keys: tuple[str, ...] = ()

    def of(self, batch: Batch, columns: dict[str, CodedColumn]) -> Places:
        """The areas of a batch's records."""
        area = self.index.positions([columns[column] for column in self.texts])
        return area, np.full(len(area), -1)

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

    def of(self, batch: Batch, columns: dict[str, CodedColumn]) -> Places:
        """Return the areas of a batch's records; `columns` gets those of the table."""
        row = self.joined.index.positions(batch[self.column])
        for name, column in self.joined.columns.items():
            columns[name] = taken(column, row)
        return at_rows(self.joined.area, row, -1), row

    def __len__(self) -> int:
        """Rows of the table that is referred to."""
        return len(self.joined)


Placing = OwnAreas | ByTable
"""How rows find their areas."""


@dataclass(frozen=True, eq=False)
class PlacedBatch:
    """A batch of the table's file at a position: its columns, coded columns, places of its records,
    and the evidence for rules.
    """

    batch: Batch
    columns: dict[str, CodedColumn]
    area: np.ndarray
    row: np.ndarray
    file: int
    evidence: ValueTally

    def add_mask(self, suite: str, name: str, mask: np.ndarray) -> None:
        """Add to the evidence which rows break a rule."""
        self.evidence.add_mask(suite, name, mask, file=self.file)


Tally = Callable[[PlacedBatch], None]
"""Holds a batch to rules."""


def read_joined(
    files: Sequence[InputFile],
    key: str,
    columns: Mapping[str, str],
    place: Placing,
    evidence: ValueTally,
    tally: Tally = lambda read: None,
) -> JoinedTable:
    """Read a table that others refer to by its `key`.

    `columns` are those to keep, by their new names; all columns of the tables behind it are kept.
    Raises UnreadableInput.
    """
    keys, area = KeyColumn(), GrowingArray(np.int32)
    behind = place.joined.columns if isinstance(place, ByTable) else {}
    stay = {name: name for name in behind} | dict(columns)
    found = {name: GrowingColumn() for name in stay}
    n_rows = np.zeros(len(files), dtype=np.int64)
    texts = tuple(dict.fromkeys((*columns.values(), *place.texts)))
    for file, batch, coded in read_coded(files, texts, (key, *place.keys)):
        places = place.of(batch, coded)
        keys.add(batch[key])
        area.append(places[0])
        n_rows[file] += len(places[0])
        for name, growing in found.items():
            growing.append(coded[stay[name]])
        tally(PlacedBatch(batch, coded, *places, file, evidence))
    grown = {name: growing.column() for name, growing in found.items()}
    return JoinedTable(KeyIndex(keys), area.array(), grown, n_rows)


def read_coded(
    files: Sequence[InputFile],
    texts: Sequence[str],
    keys: Sequence[str],
    share: Share | None = None,
) -> Iterator[tuple[int, Batch, dict[str, CodedColumn]]]:
    """Batches of some columns of a table, each with the position of its file, and `texts` coded;
    see `read_partitions`."""
    wanted = Selection(tuple(dict.fromkeys((*texts, *keys))))
    for file, batch in read_partitions(files, wanted, share):
        yield file, batch, coded(batch, texts, files[file].columns)


def read_records(
    files: Sequence[InputFile],
    texts: Sequence[str],
    keys: Sequence[str],
    read: FilesRead,
    share: Share | None = None,
) -> Iterator[tuple[int, Batch, dict[str, CodedColumn]]]:
    """As `read_coded`; in the end `read` has the files with their rows and, of a table in several
    files, the sums of the hashes of their rows modulo 2 ** 64, which no order changes."""
    n_rows, hashes = np.zeros(len(files), np.int64), np.zeros(len(files), np.uint64)
    for file, batch, columns in read_coded(files, texts, keys, share):
        n_rows[file] += len(next(iter(batch.values())))
        if len(files) > 1:
            hashes[file] += row_hashes(batch, columns, keys).sum(dtype=np.uint64)
        yield file, batch, columns
    read.add(files, n_rows, hashes)


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


def first_rows(index: KeyIndex, keys: KeyColumn) -> np.ndarray:
    """The first row with the key of a row, `(n_rows,)`, of an index of these keys; -1 if blank."""
    found = GrowingArray(np.int64)
    for part in keys.chunks():
        found.append(index.positions(part))
    return found.array()


def numbers_of_alike(keys: KeyColumn, weights: np.ndarray | None = None) -> np.ndarray:
    """How many rows have the key of a row, or the sum of their weights, `(n_rows,)`; 0 if blank."""
    first = first_rows(KeyIndex(keys), keys)
    numbers, found = zeros(len(first), np.int64), zeros(len(first), np.int64)
    for start in range(0, len(first), _ROWS_AT_ONCE):
        own = slice(start, start + _ROWS_AT_ONCE)
        is_known = first[own] >= 0
        np.add.at(numbers, first[own][is_known], 1 if weights is None else weights[own][is_known])
    for start in range(0, len(first), _ROWS_AT_ONCE):
        own = slice(start, start + _ROWS_AT_ONCE)
        found[own] = np.where(first[own] >= 0, numbers[first[own]], 0)
    return found


NUMBER = "number"
"""Column of occupants that says how many there are."""


@dataclass(frozen=True, eq=False)
class Occupants:
    """Values from rows of another table for the records to which they belong, by `<name>.column`.

    key : column of the records to look up in `index`, an index of the rows' references.
    number : by row, how many have its reference, at the first of them; 0 elsewhere.
    n_rows : rows of each file.
    """

    key: str
    index: KeyIndex
    columns: Mapping[str, CodedColumn]
    number_name: str
    number: np.ndarray
    n_rows: np.ndarray

    def of(self, keys: pa.Array) -> dict[str, CodedColumn]:
        """The columns of records with these keys."""
        row = self.index.positions(canonical_keys(keys))
        found = {name: taken(column, row) for name, column in self.columns.items()}
        number = at_rows(self.number, row, 0)
        texts = tuple(str(n) for n in range(int(number.max(initial=0)) + 1))
        return found | {self.number_name: CodedColumn(number, texts)}

    def unknown(self, keys: KeyColumn) -> list[np.ndarray]:
        """By file, the rows `(n_rows,)` whose reference is not among the keys of all records, at
        the first with the same reference.
        """
        numbers = np.array(self.number)
        for part in keys.chunks():
            row = self.index.positions(part)
            numbers[row[row >= 0]] = 0
        return np.split(numbers, np.cumsum(self.n_rows)[:-1])


def load_occupants(
    files: Sequence[InputFile],
    declared: OccupantDeclaration,
    name: str,
    columns: Sequence[str],
    suite: str,
    evidence: ValueTally,
) -> Occupants:
    """The rows of a universe's occupants of a name, with the columns that attributes read.

    Evidence: rows whose reference is a float that identifies nothing; rows that are not alone of
    one record, where attributes read their columns. Raises UnreadableInput.
    """
    conditions = {column: CodeSet.of(codes) for column, codes in declared.where.items()}
    wanted = tuple(column for column in columns if column != NUMBER)
    texts = tuple(dict.fromkeys((*wanted, *conditions)))
    keys, found = KeyColumn(), {column: GrowingColumn() for column in wanted}
    n_rows = np.zeros(len(files), dtype=np.int64)
    for file, batch, coded in read_records(files, texts, (declared.column,), evidence.files):
        fits = np.ones(len(batch[declared.column]), dtype=bool)
        for column, codes in conditions.items():
            fits &= coded[column].lookup(codes.holds, bool)
        references = batch[declared.column].filter(pa.array(fits))
        keys.add(canonical_keys(references))
        if n := int(is_inexact_key(references).sum()):
            evidence.add(suite, f"unknown_key_of_{name}", {True: n}, file=file)
        for column, growing in found.items():
            growing.append(coded[column].at(fits))
        n_rows[file] += int(fits.sum())
    index = KeyIndex(keys)
    if wanted:
        evidence.add_masks(suite, f"repeated_{name}", index.is_repeated, n_rows)
    first = first_rows(index, keys)
    number = zeros(len(first), np.int64)
    np.add.at(number, first[first >= 0], 1)
    named = {f"{name}.{column}": growing.column() for column, growing in found.items()}
    return Occupants(declared.key, index, named, f"{name}.{NUMBER}", number, n_rows)
