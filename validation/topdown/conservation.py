"""Conservation: estimates are counts, and children add to their parents in every cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..outcome import Failures
from ..run_files import UnusableRunFile
from .run_files import SpineLevel, read_batches


@dataclass(frozen=True)
class LevelEstimates:
    """The non-zero cells of one geolevel's estimates.

    `key = geounit position * n_cells + cell`, ascending and without repetition; `count` is the
    number of persons or housing units, both int64 of shape `(n_nonzero,)`.
    """

    n_cells: int
    key: np.ndarray
    count: np.ndarray

    def part(self, geounits: np.ndarray) -> LevelEstimates:
        """Those of the geounits at these ascending positions, which are numbered from 0."""
        geounit, cell = np.divmod(self.key, self.n_cells)
        here = np.minimum(np.searchsorted(geounits, geounit), geounits.size - 1)
        kept = geounits[here] == geounit
        return LevelEstimates(
            self.n_cells, here[kept] * self.n_cells + cell[kept], self.count[kept]
        )

    @property
    def geounit(self) -> np.ndarray:
        """Position of each entry's geounit."""
        return self.key // self.n_cells

    @property
    def cell(self) -> np.ndarray:
        """Cell of each entry."""
        return self.key % self.n_cells


def no_estimates(n_cells: int) -> LevelEstimates:
    """Estimates in which every cell is zero."""
    return LevelEstimates(n_cells, np.zeros(0, np.int64), np.zeros(0, np.int64))


def read_estimates(
    run_directory: Path, universe: str, level: SpineLevel, n_cells: int, failures: Failures
) -> LevelEstimates:
    """Read the estimates of a geolevel or a part of one, and check that they are counts.

    Counts are positive integers, cells are in 0 .. n_cells - 1, geocodes are those of the spine,
    and no cell of a geounit stands twice. Entries that break a rule are recorded and left out
    (repeated ones are added up), so that the other checks can go on.

    Raises UnusableRunFile if there is no file, or a column has another type.
    """
    folder = run_directory / "estimates" / universe / level.name
    if not any(folder.glob("*.parquet")):
        raise UnusableRunFile(f"there are no estimates at estimates/{universe}/{level.name}")
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in read_batches(folder, ["geocode", "cell", "count"], level=level):
        for name in ("cell", "count"):
            column = batch.column(name)
            if not pa.types.is_integer(column.type):
                raise UnusableRunFile(
                    f"column {name} of estimates/{universe}/{level.name} is not of an integer type"
                )
        geounit = level.positions(batch.column("geocode"))
        cell = batch.column("cell").to_numpy().astype(np.int64)
        count = batch.column("count").to_numpy().astype(np.int64)
        is_cell = (cell >= 0) & (cell < n_cells)
        where = f"the estimates of {level.name}"
        failures.add_each(geounit < 0, f"{where} have a geocode outside the spine")
        failures.add_each(~is_cell, f"{where} have a cell outside the schema")
        failures.add_each(count < 1, f"{where} have a count below 1")
        valid = (geounit >= 0) & is_cell & (count >= 1)
        keys.append(geounit[valid] * n_cells + cell[valid])
        counts.append(count[valid])
    all_keys = np.concatenate(keys)
    key, count = added_up(all_keys, np.concatenate(counts))
    if key.size < all_keys.size:
        failures.add(
            f"the estimates of {level.name} hold a cell of a geounit twice",
            count=all_keys.size - key.size,
        )
    return LevelEstimates(n_cells, key, count)


def check_children_add_to_parents(
    parents: SpineLevel,
    parent_estimates: LevelEstimates,
    children: SpineLevel,
    child_estimates: LevelEstimates,
    failures: Failures,
) -> None:
    """In every cell, the estimates of a parent's children add to the parent's own."""
    n_cells = parent_estimates.n_cells
    child_key = children.parent[child_estimates.geounit] * n_cells + child_estimates.cell
    key, difference = added_up(
        np.concatenate([child_key, parent_estimates.key]),
        np.concatenate([child_estimates.count, -parent_estimates.count]),
    )
    failures.add_each(
        difference != 0,
        lambda i: (
            f"in cell {key[i] % n_cells} of {parents.describe(key[i] // n_cells)} "
            f"the children's sum is off by {difference[i]:+d}"
        ),
    )


def added_up(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the sum of each one's counts; fast for keys that ascend."""
    if not keys.size:
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
    return keys[first], np.add.reduceat(counts, first)
