"""The raw columns of a declared universe by area, from which the ledger recognises its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from ..ledger.recognition import MOST_VALUES, RecordColumn, raw_value
from ..tables.columns import CodedColumn
from .census import Universe
from .histograms import HistogramSum
from .schema import Schema


def identity_columns(universe: Universe, schema: Schema) -> tuple[str, ...]:
    """The columns by which the ledger recognises records: those of the attributes of `identity`,
    or else all that a run with this schema reads of them beside their areas and counts.
    """
    identity = universe.declared.identity
    attributes = identity or schema.attributes
    columns = [column for name in attributes for column in universe.recodes[name].columns]
    return tuple(dict.fromkeys([*columns, *(() if identity else universe.rows)]))


class RawColumns:
    """Records by area and raw value, of every column, added batch by batch.

    A column of more values than fit into memory is left out.
    """

    def __init__(self, names: Sequence[str], n_areas: int, scratch: Path | None = None) -> None:
        self._sums = {name: HistogramSum(n_areas, MOST_VALUES, scratch) for name in names}
        self._positions: dict[str, dict[str, int]] = {name: {} for name in names}

    def add(self, columns: Mapping[str, CodedColumn], area: np.ndarray, count: np.ndarray) -> None:
        """Add a batch: the areas and numbers `(n_rows,)` of its records; those of neither count
        nothing.
        """
        rows = np.flatnonzero((area >= 0) & (count > 0))
        for name in list(self._positions):
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

    def columns(self) -> list[RecordColumn]:
        """What was added."""
        return [
            RecordColumn(self.counts(name)[:, : max(1, len(values))], values)
            for name, values in self.values.items()
        ]
