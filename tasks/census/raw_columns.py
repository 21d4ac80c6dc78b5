"""The raw columns of a declared universe by area, from which the ledger recognises its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

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
    """Records by area and raw value, of every column, added batch by batch."""

    def __init__(self, names: Sequence[str], n_areas: int) -> None:
        self._sums = {name: HistogramSum(n_areas, MOST_VALUES) for name in names}
        self._positions: dict[str, dict[str, int]] = {name: {} for name in names}

    def add(self, columns: Mapping[str, CodedColumn], area: np.ndarray, count: np.ndarray) -> None:
        """Add a batch: the areas and numbers `(n_rows,)` of its records; those of neither count
        nothing.
        """
        rows = np.flatnonzero((area >= 0) & (count > 0))
        for name, positions in list(self._positions.items()):
            column = columns[name]
            of_value = [
                positions.setdefault(raw_value(value), len(positions)) for value in column.values
            ]
            if len(positions) > MOST_VALUES:
                del self._positions[name], self._sums[name]
                continue
            value = np.array(of_value, dtype=np.int32)[column.codes[rows]]
            self._sums[name].add(area[rows], value, count[rows])

    def columns(self) -> list[RecordColumn]:
        """What was added; a column of more values than fit into memory is left out."""
        found = []
        for name, positions in self._positions.items():
            counts = self._sums[name].total()
            found.append(RecordColumn(counts[:, : max(1, len(positions))], tuple(positions)))
        return found
