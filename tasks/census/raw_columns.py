"""The raw columns that a run reads, by area: by them the ledger recognises its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from ..ledger.recognition import MOST_VALUES, RecordColumn, raw_value
from ..tables.columns import CodedColumn
from ..tables.sources import InputFile
from .census import Universe
from .histograms import HistogramSum
from .joins import ByTable, read_coded
from .schema import Schema

_ROWS_AT_ONCE = 1 << 20


def identity_columns(universe: Universe, schema: Schema) -> tuple[str, ...]:
    """The columns by which the ledger recognises records: those of the attributes of `identity`,
    or else all that a run with this schema reads of them beside their areas and counts.
    """
    identity = universe.declared.identity
    attributes = identity or schema.attributes
    columns = [column for name in attributes for column in universe.recodes[name].columns]
    return tuple(dict.fromkeys([*columns, *(() if identity else universe.rows)]))


def read_columns(
    files: Sequence[InputFile],
    names: Sequence[str],
    place: ByTable,
    n_areas: int,
    scratch: Path | None = None,
) -> list[RecordColumn]:
    """The raw columns of a table by the areas of the rows that it refers to.

    Raises UnreadableInput.
    """
    raw = RawColumns(names, n_areas, scratch)
    for _, batch, columns in read_coded(files, names, place.keys):
        raw.add_rows(columns, place.of(batch, {}).area)
    return raw.columns()


def in_areas(columns: Iterable[RecordColumn], area: np.ndarray, n_areas: int) -> list[RecordColumn]:
    """Columns of records by row of a table, brought to the areas `(n_rows,)` of these rows; -1 is
    no area.
    """
    rows = np.flatnonzero(area >= 0)
    entries = np.ones(len(rows), dtype=np.int64), (area[rows], rows)
    group = sparse.csr_array(sparse.coo_array(entries, shape=(n_areas, len(area))))
    return [
        RecordColumn(sparse.csr_array(group @ own.counts), own.values, own.value_of_cell)
        for own in columns
    ]


class RawColumns:
    """Records by area and raw value, of every column, added batch by batch.

    A column of more values than fit into memory is left out.
    """

    def __init__(self, names: Sequence[str], n_areas: int, scratch: Path | None = None) -> None:
        self._sums = {name: HistogramSum(n_areas, MOST_VALUES, scratch) for name in names}
        self._positions: dict[str, dict[str, int]] = {name: {} for name in names}

    def add(self, columns: Mapping[str, CodedColumn], area: np.ndarray, count: np.ndarray) -> None:
        """Add some of the columns of a batch, by the areas and numbers `(n_rows,)` of its records;
        those of neither count nothing.
        """
        rows = np.flatnonzero((area >= 0) & (count > 0))
        for name in [own for own in self._positions if own in columns]:
            column = columns[name]
            of_value = self.numbers(name, [raw_value(value) for value in column.values])
            if of_value is not None:
                self._sums[name].add(area[rows], of_value[column.codes[rows]], count[rows])

    def add_counts(
        self,
        name: str,
        values: Sequence[str],
        part: tuple[int, np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """Add a part of a column by the numbers of `values`, in parts as `histograms.joined` has
        them.
        """
        of_value = self.numbers(name, values)
        if of_value is not None:
            first, offsets, cells, counts = part
            self._sums[name].add_part(first, offsets, of_value[cells], counts)

    def numbers(self, name: str, values: Sequence[str]) -> np.ndarray | None:
        """Numbers `(n,)` of raw values of a column; None for one that is left out."""
        positions = self._positions.get(name)
        if positions is None:
            return None
        found = [positions.setdefault(value, len(positions)) for value in values]
        if len(positions) > MOST_VALUES:
            self.leave_out(name)
            return None
        return np.array(found, dtype=np.int32)

    def leave_out(self, name: str) -> None:
        """Leave a column out."""
        self._positions.pop(name, None)
        self._sums.pop(name, None)

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        """Raw values of every column that is not left out, by their numbers."""
        return {name: tuple(positions) for name, positions in self._positions.items()}

    def counts(self, name: str) -> sparse.csr_array:
        """Records by area and number of the raw value of a column."""
        return self._sums[name].total()

    def add_rows(
        self, columns: Mapping[str, CodedColumn], area: np.ndarray, is_in: np.ndarray | None = None
    ) -> None:
        """Add rows of a table in areas `(n_rows,)`, a record each, or those that are in a part
        of it `(n_rows,)`.
        """
        for start in range(0, len(area), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            count = np.ones(len(area[rows]), np.int8) if is_in is None else is_in[rows]
            own = {name: column.at(rows) for name, column in columns.items()}
            self.add(own, area[rows], count.astype(np.int8))

    def columns(self) -> list[RecordColumn]:
        """What was added."""
        return [
            RecordColumn(self.counts(name)[:, : max(1, len(values))], values)
            for name, values in self.values.items()
        ]
