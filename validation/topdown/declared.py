"""Released rows of areas, held to what a census declares of its universes.

Exact answers, bounds, relations and answers that are those of another release or universe hold in
every area.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from scipy import sparse

from ..outcome import Failures
from .cells import Cells, Margin
from .declarations import BOUNDS, EXACT, HELD, RELATIONS, ExpectedDeclarations
from .microdata import ReleasedRows


class DeclaredSums:
    """Holds the rows of a universe to its declarations, some areas after the others."""

    def __init__(
        self, declared: ExpectedDeclarations, cells: Cells, failures: Mapping[str, Failures]
    ) -> None:
        self._declared, self._cells, self._failures = declared, cells, failures
        self._sums = {name: np.zeros_like(one.answers) for name, one in declared.exact.items()}

    def add(
        self,
        rows: ReleasedRows,
        geocode: pa.Array,
        counts_of: Callable[[str], sparse.csr_array],
    ) -> None:
        """Check the rows of some areas with these geocodes; `counts_of` tells the counts `(n_areas,
        n_cells)` of another universe in the same areas.
        """
        counts, declared = rows.counts, self._declared

        def fail_areas(check: str, is_wrong: np.ndarray, what: str) -> None:
            self._failures[check].add_each(is_wrong, lambda i: f"{what} area {geocode[i]}")

        for name, one in declared.exact.items():
            found = sparse.coo_array(_answers(counts, self._cells.margin(one.query)))
            unit = one.unit[rows.areas]
            np.add.at(self._sums[name], (unit[found.row], found.col), found.data)
        for held, (query, inside, due) in declared.held.items():
            found = _answers(counts, self._cells.margin(query), inside)
            is_other = _differs(found, due[rows.areas])
            fail_areas(HELD, is_other, f"{held} is not that of the earlier release in")
        for tied, tie in declared.tied.items():
            margin = self._cells.margin(tie.query)
            cell = np.flatnonzero(tie.row >= 0)
            ones, shape = np.ones(cell.size, dtype=np.int64), (tie.row.size, margin.n_rows)
            counted_rows = sparse.csr_array((ones, (cell, tie.row[cell])), shape=shape)
            is_other = _differs(
                _answers(counts, margin, tie.inside), counts_of(tie.universe) @ counted_rows
            )
            fail_areas(HELD, is_other, f"{tied} is not that of {tie.universe} in")
        for bound in declared.bounds:
            found = _answers(counts, self._cells.margin(bound.query), bound.inside).toarray()
            is_out = np.zeros(len(found), dtype=bool)
            if bound.lower is not None:
                is_out |= (found < bound.lower[rows.areas]).any(axis=1)
            if bound.upper is not None:
                is_out |= (found > bound.upper[rows.areas]).any(axis=1)
            fail_areas(BOUNDS, is_out, f"{bound.name} is not met by")
        for relation, (sign, weights) in declared.relations.items():
            total = np.zeros(counts.shape[0], dtype=np.int64)
            for other, values in weights.items():
                is_own = other == self._cells.universe
                total += (counts if is_own else counts_of(other)) @ values
            is_out = {"=": total != 0, "<=": total > 0, ">=": total < 0}[sign]
            fail_areas(RELATIONS, is_out, f"{relation} is not met by")

    def finish(self) -> None:
        """Check what is exact of units, whose areas have all been taken in."""
        for name, one in self._declared.exact.items():
            is_wrong = (self._sums[name] != one.answers).any(axis=1)
            self._failures[EXACT].add_each(is_wrong, f"{name} is not met by a unit")


def _differs(first: sparse.csr_array, second: sparse.csr_array) -> np.ndarray:
    """Rows `(n,)` in which two matrices are not the same."""
    return np.asarray(abs(first - second).sum(axis=1)).ravel() > 0


def _answers(
    counts: sparse.csr_array, margin: Margin, inside: np.ndarray | None = None
) -> sparse.csr_array:
    """Sums `(n_areas, n_rows)` of the cells of each row, those `inside` (n_cells,) alone."""
    cell = np.arange(counts.shape[1]) if inside is None else np.flatnonzero(inside)
    ones = np.ones(cell.size, dtype=np.int64)
    shape = (counts.shape[1], margin.n_rows)
    return counts @ sparse.csr_array((ones, (cell, margin.row_of_cell[cell])), shape=shape)
