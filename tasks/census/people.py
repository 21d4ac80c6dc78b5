"""People: the records of a universe one by one, with their areas, cells and households."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .counting import count_files
from .evidence import EvidenceTally
from .partitions import CensusReading


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


def read_people(reading: CensusReading[Any], universe: str, folder: Path) -> People:
    """The people of a universe from tables that have passed their checks.

    Those who refer to the same row of the table on the way to their area, such as a housing unit,
    are in one household. `folder` is for temporary files of confidential rows; it must be empty.
    """
    evidence = EvidenceTally()
    before = reading.read_before(evidence, folder)
    counter, files = reading.counter(before, universe, folder, evidence)
    nobody = np.empty(0, dtype=np.int64)
    parts, wanted = [[nobody] * 3], counter.histogram_of(universe)

    def listed(
        name: str, area: np.ndarray, cell: np.ndarray, row: np.ndarray, count: np.ndarray
    ) -> None:
        if name == wanted:
            parts.append([np.repeat(part, count.astype(np.int64)) for part in (area, cell, row)])

    counter.listed = listed
    count_files(counter, files, range(len(files)), evidence, of_part=True)
    return People(*map(np.concatenate, zip(*parts, strict=True)))
