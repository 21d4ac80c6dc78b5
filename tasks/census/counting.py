"""Records counted by area and cell, batch by batch.

A census adds further evidence with a counter of its own.

The raw columns that a run reads, by area: by them the ledger recognises its records.

People: the records of a universe one by one, with their areas, cells and households.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from ..ledger.recognition import MOST_VALUES, RecordColumn, raw_value
from ..tables.columns import CodedColumn, KeyColumn, zeros
from ..tables.readers import Batch
from ..tables.sources import InputFile, Share
from ..tables.value_tallies import ValueTally
from .census import Universe
from .histograms import HistogramSum
from .joins import ByTable, PlacedBatch, Placing, read_coded, read_records
from .queries import Schema
from .recodes import Recode

_ROWS_AT_ONCE = 1 << 20


def identity_columns(universe: Universe, schema: Schema) -> tuple[str, ...]:
    """Return the columns by which the ledger recognises records: those of the attributes of
    `identity`, or else all that a run with this schema reads in addition to their areas and counts.
    """
    identity = universe.declared.identity
    attributes = identity or schema.attributes
    columns = [column for name in attributes for column in universe.recodes[name].columns]
    return tuple(dict.fromkeys([*columns, *(() if identity else universe.rows)]))


def read_columns(
    files: Sequence[InputFile], names: Sequence[str], place: ByTable, n_areas: int
) -> list[RecordColumn]:
    """The raw columns of a table by the areas of the rows that it refers to.

    Raises UnreadableInput.
    """
    raw = RawColumns(names, n_areas)
    for _, batch, columns in read_coded(files, names, place.keys):
        raw.add(columns, place.of(batch, {})[0])
    return raw.columns()


def in_areas(columns: Iterable[RecordColumn], area: np.ndarray, n_areas: int) -> list[RecordColumn]:
    """Columns of records by row of a table, brought to the areas `(n_rows,)` of these rows; -1 is
    no area.
    """
    rows = np.flatnonzero(area >= 0)
    entries = np.ones(len(rows), dtype=np.int64), (area[rows], rows)
    group = sparse.csr_array(sparse.coo_array(entries, shape=(n_areas, len(area))))
    return [RecordColumn(sparse.csr_array(group @ own.counts), own.values) for own in columns]


class RawColumns:
    """Records by area and raw value, of every column, added batch by batch.

    A column of more values than fit into memory is omitted.
    """

    def __init__(self, names: Sequence[str], n_areas: int) -> None:
        self._sums = {name: HistogramSum(n_areas, MOST_VALUES) for name in names}
        self._positions: dict[str, dict[str, int]] = {name: {} for name in names}

    def add(
        self, columns: Mapping[str, CodedColumn], area: np.ndarray, count: np.ndarray | None = None
    ) -> None:
        """Add rows of a table, by their areas `(n_rows,)` and how many records each represents
        `(n_rows,)`, by default one; rows without either count nothing.
        """
        for start in range(0, len(area), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            number = np.ones(len(area[part]), np.int8) if count is None else count[part]
            rows = np.flatnonzero((area[part] >= 0) & (number > 0))
            for name in [own for own in self._positions if own in columns]:
                of_value = self.numbers(name, [raw_value(text) for text in columns[name].values])
                if of_value is not None:
                    codes = columns[name].codes[part][rows]
                    self._sums[name].add(area[part][rows], of_value[codes], number[rows])

    def add_columns(self, columns: Mapping[str, RecordColumn]) -> None:
        """Add columns of other records, by name; a column omitted there is omitted here."""
        for name in [*self._positions]:
            if name not in columns:
                del self._positions[name], self._sums[name]
                continue
            of_value = self.numbers(name, columns[name].values)
            if of_value is not None:
                row, value = sparse.coo_array(columns[name].counts).coords
                self._sums[name].add(row, of_value[value], columns[name].counts.data)

    def numbers(self, name: str, values: Sequence[str]) -> np.ndarray | None:
        """Numbers `(n,)` of raw values of a column; None for an omitted one."""
        positions = self._positions.get(name)
        if positions is None:
            return None
        found = [positions.setdefault(value, len(positions)) for value in values]
        if len(positions) > MOST_VALUES:
            del self._positions[name], self._sums[name]
            return None
        return np.array(found, dtype=np.int32)

    def columns(self) -> list[RecordColumn]:
        """Return the columns added so far."""
        return [*self.by_name().values()]

    def by_name(self) -> dict[str, RecordColumn]:
        """Return the columns added so far, by name."""
        return {
            name: RecordColumn(self._sums[name].total()[:, : max(1, len(values))], tuple(values))
            for name, values in self._positions.items()
        }


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of a batch's rows: how many records each represents `(n_rows,)`, -1 if unknown, and
    whether they are of the universe `(n_rows,)`.
    """

    count: np.ndarray
    is_member: np.ndarray


@dataclass(frozen=True, eq=False)
class CountedShare:
    """Counts of a share of the records of a universe, to be added to those of others.

    totals : histograms by name.
    rows, records : `(n,)` rows of the table on the way to their areas, and the records of each.
    raw : columns by which the ledger recognises the records, by name.
    keys_of_occupants : see `RecordCounter`.
    """

    totals: Mapping[str, sparse.csr_array]
    rows: np.ndarray
    records: np.ndarray
    raw: Mapping[str, RecordColumn]
    keys_of_occupants: Mapping[str, KeyColumn]


class RecordCounter:
    """Counts records by row of the table on the way to their areas, and by area and cell.

    texts, keys : columns that are read of the records' table.
    references : records by row of that table so far.
    raw : columns by which the ledger recognises the records, if needed.
    keys_of_occupants : by column of the records, the keys to which other tables refer.
    listed : the receiver of a batch's counted records: their areas, cells of the last histogram and
        rows of the table on the path, and how many each represents, `(n,)` each; None where nothing
        is listed.
    """

    listed: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None] | None = None
    texts: tuple[str, ...]
    keys: tuple[str, ...]

    def __init__(
        self,
        place: Placing,
        schemas: Mapping[str, Schema],
        recodes: Mapping[str, Recode],
        n_areas: int,
    ) -> None:
        self.place, self._schemas = place, schemas
        of_all = (name for schema in schemas.values() for name in schema.attributes)
        self.recodes = [recodes[attribute] for attribute in dict.fromkeys(of_all)]
        self.references = zeros(len(place), np.int64)
        self.raw, self.keys_of_occupants = RawColumns((), n_areas), dict[str, KeyColumn]()
        self._sums = {
            name: HistogramSum(n_areas, schema.n_cells) for name, schema in schemas.items()
        }

    def add(
        self, batch: Batch, columns: dict[str, CodedColumn], file: int, evidence: ValueTally
    ) -> None:
        """Count a batch of the table's file at this position, whose `texts` are coded.

        Records of unknown area, number or level are not counted; the evidence then has the rule
        that they break.
        """
        area, row = self.place.of(batch, columns)
        read = PlacedBatch(batch, columns, area, row, file, evidence)
        weights = self.tally(read)
        self.raw.add(columns, area, np.where(weights.is_member, weights.count, 0))
        refers = row >= 0
        np.add.at(self.references, row[refers], np.maximum(weights.count, 1)[refers])
        is_known = (area >= 0) & weights.is_member & (weights.count > 0)
        levels = {}
        for recode in self.recodes:
            level = levels[recode.attribute] = recode.evaluate(columns, len(area))
            self.tally_levels(recode, level, weights, read)
            is_known &= level >= 0
        area, count = area[is_known], weights.count[is_known]
        known = {name: level[is_known] for name, level in levels.items()}
        for name, schema in self._schemas.items():
            cell = schema.cells(known)
            self.tally_cells(cell, read)
            self._sums[name].add(area, cell, count)
        if self.listed is not None:
            self.listed(area, cell, row[is_known], count)

    def tally(self, read: PlacedBatch) -> Weights:
        """Check a batch against rules; return how many records of the universe each of its rows
        represents, by default one."""
        n = len(read.area)
        return Weights(np.ones(n, dtype=np.int64), np.ones(n, dtype=bool))

    def tally_levels(
        self, recode: Recode, level: np.ndarray, weights: Weights, read: PlacedBatch
    ) -> None:
        """Hold the levels of an attribute `(n_rows,)` to rules."""

    def tally_cells(self, cell: np.ndarray, read: PlacedBatch) -> None:
        """Hold the cells of the records that are counted to rules."""

    @cached_property
    def totals(self) -> Mapping[str, sparse.csr_array]:
        """The histograms by name, once all records are added."""
        return {name: self._sums.pop(name).total() for name in self._schemas}

    def share(self) -> CountedShare:
        """All that was counted of a share of a table."""
        rows = np.flatnonzero(self.references)
        records, raw = self.references[rows], self.raw.by_name()
        return CountedShare(self.totals, rows, records, raw, self.keys_of_occupants)

    def add_share(self, counted: CountedShare) -> None:
        """Add the counts of a share of the table, in the order of its rows."""
        for name, sums in self._sums.items():
            sums.add_histogram(counted.totals[name])
        self.references[counted.rows] += counted.records
        self.raw.add_columns(counted.raw)
        for name, keys in self.keys_of_occupants.items():
            for part in counted.keys_of_occupants[name].chunks():
                keys.add(part)


def count_files(
    counter: RecordCounter,
    files: Sequence[InputFile],
    evidence: ValueTally,
    share: Share | None = None,
) -> None:
    """Count the records in the files of a table, or in a share of them.

    Raises UnreadableInput.
    """
    read = read_records(files, counter.texts, counter.keys, evidence.files, share)
    for file, batch, columns in read:
        counter.add(batch, columns, file, evidence)


@dataclass(frozen=True, eq=False)
class People:
    """The records of a universe, one for each person.

    area : (n,) areas of the last geolevel, by number.
    cell : (n,) cells of the schema.
    household : (n,) numbers of households from 0 up; -1 for a person in none.
    """

    area: np.ndarray
    cell: np.ndarray
    household: np.ndarray

    def __len__(self) -> int:
        return len(self.area)

    @cached_property
    def n_households(self) -> int:
        """Number of households."""
        return int(self.household.max(initial=-1)) + 1

    @classmethod
    def of_histogram(cls, histogram: sparse.csr_array) -> People:
        """One person for each count of a histogram `(n_areas, n_cells)`, in no household."""
        entries = sparse.coo_array(histogram)
        times = entries.data.astype(np.int64)
        area, cell = (np.repeat(at.astype(np.int64), times) for at in entries.coords)
        return cls(area, cell, np.full(len(area), -1, dtype=np.int64))

    def in_households(self, cells: np.ndarray) -> People:
        """The people of whom those in some cells, by a mask `(n_cells,)`, live in households, whose
        numbers begin at 0; all others live in none.
        """
        inside = (self.household >= 0) & cells[self.cell]
        household = np.full(len(self), -1, dtype=np.int64)
        household[inside] = np.unique(self.household[inside], return_inverse=True)[1]
        return replace(self, household=household)
