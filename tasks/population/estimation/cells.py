"""Records more than were released in the rows of `Tables`, carried on through a state and a county.

They follow from released counts and from the order of the blocks, as all of `Drift` does.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..workload.tables import household_tables, person_tables

CARRIED = 2
"""Kinds of areas whose counts are carried on: `STATE` and `COUNTY`."""


class Cells:
    """Records more, or fewer if negative, of a state and county, by row of the tables of persons
    and households `(n_rows, 2)`, int32.
    """

    def __init__(self) -> None:
        """Nothing has been changed yet."""
        self.persons, self.households = (
            np.zeros((tables.n_rows, CARRIED), dtype=np.int32)
            for tables in (person_tables(), household_tables())
        )
        self._areas: tuple[str, ...] = ("",) * CARRIED

    def enter(self, areas: Sequence[str]) -> None:
        """Go on with blocks of a state and county; of others nothing is carried."""
        for level, (area, before) in enumerate(zip(areas, self._areas, strict=True)):
            if area != before:
                for counts in (self.persons, self.households):
                    counts[:, level] = 0
        self._areas = tuple(areas)

    def facts(self) -> dict[str, object]:
        """All that blocks that come go on with, as JSON has it; most counts are 0."""
        return {
            "areas": self._areas,
            "persons": _packed(self.persons),
            "households": _packed(self.households),
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Cells:
        """The counts of such `facts`."""
        cells = cls()
        cells._areas = tuple(facts["areas"])
        for counts, name in ((cells.persons, "persons"), (cells.households, "households")):
            packed = zlib.decompress(b64decode(facts[name]))
            counts[:] = np.frombuffer(packed, dtype="<i4").reshape(counts.shape)
        return cells


def _packed(counts: np.ndarray) -> str:
    return b64encode(zlib.compress(counts.astype("<i4").tobytes())).decode("ascii")
