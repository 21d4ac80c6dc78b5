"""The released persons, households and units of all blocks, from the three runs that one population
is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.census import preset_census
from ...census.households import Members
from ...census.queries import Schema
from ...runs.directory import RunDirectory
from ..workload import household_types, person_levels
from ..workload.household_types import TENURE

BLOCK_DIGITS = 16


@dataclass(frozen=True)
class Sources:
    """The finished runs that one population is made of."""

    redistricting: RunDirectory
    units: RunDirectory
    persons: RunDirectory


@dataclass(frozen=True, eq=False)
class Records:
    """Released records of a universe by block: the block's position in a list of codes, the cell,
    `(n,)` each, one entry for each record, in ascending order.
    """

    block: np.ndarray
    cell: np.ndarray

    def levels(self, schema: Schema) -> tuple[np.ndarray, ...]:
        """Level of each record in each attribute of its schema."""
        return np.unravel_index(self.cell, schema.shape)


def group_by_block(tables: Sequence[pa.Table]) -> tuple[np.ndarray, tuple[Records, ...]]:
    """Codes of the blocks with records in any of some tables of geocode, cell and count, which are
    read in this order, ascending; and the records of each.
    """
    codes = [np.array(table["geocode"].to_pylist(), dtype=str) for table in tables]
    blocks = np.unique(np.concatenate([_last(own) for own in codes]))
    found = []
    for table, own in zip(tables, codes, strict=True):
        count = table["count"].to_numpy()
        block = np.repeat(np.searchsorted(blocks, _last(own)), count)
        cell = np.repeat(table["cell"].to_numpy(), count)
        order = np.lexsort((cell, block))
        found.append(Records(block[order], cell[order]))
    return blocks, tuple(found)


def _last(codes: np.ndarray) -> np.ndarray:
    """The part of spine codes of blocks that is the block's own."""
    return np.array([code[-BLOCK_DIGITS:] for code in codes], dtype=f"<U{BLOCK_DIGITS}")


def counts_of(run: RunDirectory, universe: str, geolevel: str) -> pa.Table:
    """Code, cell and count of all entries of a universe's blocks."""
    folder = run.estimates(universe, geolevel, "any").parent
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


@dataclass(frozen=True, eq=False)
class PersonsAndHouseholds:
    """Records of blocks: codes of the blocks, and for persons, including group quarters, and
    households their block as a position there, `(n,)`, and levels in all attributes of their
    schema, `(5, n)` and `(7, n)`. `person_unit` and `unit` are the numbers of the units that they
    are in, -1 in none, where persons have units.
    """

    blocks: np.ndarray
    person_block: np.ndarray
    person_levels: np.ndarray
    household_block: np.ndarray
    household_levels: np.ndarray
    person_unit: np.ndarray | None = None
    unit: np.ndarray | None = None

    @cached_property
    def people(self) -> Members:
        """The persons as members without units."""
        return person_levels.members_of(self.person_levels)

    @cached_property
    def inside(self) -> np.ndarray:
        """Positions of the persons who live in households."""
        return np.flatnonzero(self.people.relationship > 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Released(PersonsAndHouseholds):
    """Released data of every block: persons; households, in the order of tenure; and all units, in
    the order of their kinds."""

    units: Records


def read_released(sources: Sources) -> Released:
    """The released counts of all blocks."""
    units, persons = household_types, person_levels
    geolevel = preset_census(units.CENSUS).last_geolevel
    runs = (
        (sources.persons, persons.PERSONS),
        (sources.units, units.HOUSEHOLDS),
        (sources.units, units.UNITS),
    )
    blocks, (people, homes, every) = group_by_block([counts_of(*one, geolevel) for one in runs])
    levels = np.stack(homes.levels(units.universe().schema))
    order = np.lexsort((homes.cell, levels[TENURE], homes.block))
    return Released(
        blocks,
        people.block,
        np.stack(people.levels(persons.universe().schema)),
        homes.block[order],
        levels[:, order],
        units=every,
    )
