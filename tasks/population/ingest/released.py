"""The released persons, households and units of all blocks, as one population needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...census.census import preset_census
from ...census.households import Members
from ..workload import household_types, person_levels
from ..workload.household_types import TENURE
from .releases import Records, Sources, by_block, counts_of


@dataclass(frozen=True, eq=False)
class Released:
    """What is released of every block: its code; persons; households, in the order of tenure; all
    units, in the order of what they are.

    levels : of persons `(5, n)`, of households `(7, n)`.
    """

    blocks: np.ndarray
    persons: Records
    person_levels: np.ndarray
    household_block: np.ndarray
    household_levels: np.ndarray
    units: Records
    n_occupied: int
    """How many of the levels of units are occupied; they are the first."""
    n_housing: int
    """How many are housing units, occupied or vacant."""

    @cached_property
    def people(self) -> Members:
        """The persons as members of no unit yet."""
        return person_levels.members_of(self.person_levels)

    @cached_property
    def inside(self) -> np.ndarray:
        """Which of the persons live in households."""
        return np.flatnonzero(self.people.relationship > 0)


def read_released(sources: Sources) -> Released:
    """The released counts of all blocks."""
    units, persons = household_types, person_levels
    geolevel = preset_census(units.CENSUS).last_geolevel
    runs = (
        (sources.persons, persons.PERSONS),
        (sources.units, units.HOUSEHOLDS),
        (sources.units, units.UNITS),
    )
    blocks, (people, homes, every) = by_block([counts_of(*one, geolevel) for one in runs])
    levels = np.stack(homes.levels(units.universe().schema))
    order = np.lexsort((homes.cell, levels[TENURE], homes.block))
    kinds = units.unit_kinds()
    housing = np.flatnonzero(kinds.cells_where({"occupancy": ["occupied", "vacant"]}))
    occupied = np.flatnonzero(kinds.cells_where({"occupancy": ["occupied"]}))
    if not (np.arange(len(occupied)) == occupied).all() or len(housing) != housing[-1] + 1:
        raise ValueError("units are not declared as occupied, vacant and other ones, in this order")
    return Released(
        blocks,
        people,
        np.stack(people.levels(persons.universe().schema)),
        homes.block[order],
        levels[:, order],
        every,
        len(occupied),
        len(housing),
    )
