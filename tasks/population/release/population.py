"""One population out of three releases, redistricting, housing units and persons, and its files:
persons with the numbers of their units, and units.

All of it follows from released counts: nothing confidential is read, and nothing is drawn.

`population_persons` has a row for every person: block, unit (null in group quarters), relationship
(null there, too), then the attributes of persons by label. `population_units` has one for every
housing unit and facility: block, unit, whether it is occupied (null for facilities), number of
members, tenure, kind of unit, then the attributes of households by label, null without a household.
Numbers of units are unique within a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...census.households import Members
from ...census.queries import Schema
from ...runs.directory import RunDirectory
from ...runs.files import write_record
from ...runs.stamps import write_parquet
from ..estimation.blocks import blocks_of, close_states, read_members
from ..ingest.released import Released, Sources, read_released
from ..workload import household_types, person_levels
from ..workload.household_types import DERIVED, derived_levels

PERSONS_FILE, UNITS_FILE = "population_persons.parquet", "population_units.parquet"
SUMMARY_FILE = "population.json"
STATE_DIGITS = 2
NOBODY = -1
"""Missing level, and unit number of persons in no housing unit."""


@dataclass(frozen=True, eq=False)
class Population:
    """One population: the released counts, and the members of all households."""

    source: Released
    members: Members

    @cached_property
    def household_levels(self) -> np.ndarray:
        """Levels of all households `(7, n)`, in the order of the released ones."""
        levels = self.source.household_levels.copy()
        levels[list(DERIVED)] = derived_levels(self.members, levels.shape[1])
        return levels

    def sizes(self) -> np.ndarray:
        """Members of all households."""
        return np.bincount(self.members.unit, minlength=len(self.source.household_block))

    def person_levels(self) -> np.ndarray:
        """Levels of all persons `(5, n)`, in the order of the released ones."""
        levels = self.source.person_levels.copy()
        levels[:, self.source.inside] = person_levels.levels_of(self.members, self.sizes())
        return levels


def population_of_pieces(run: RunDirectory, sources: Sources) -> Population:
    """One population from the pieces of a run.

    Raises ValueError where a block has more occupied units than persons, or persons and no unit.
    """
    source = read_released(sources)
    own = blocks_of(source)
    return Population(source, close_states(own, read_members(run, own)))


def write_population(population: Population, folder: Path) -> None:
    """Write both files, and a summary of changes as `population.json`."""
    source = population.source
    kinds = household_types.unit_kinds()
    number = unit_numbers(source.units.block, source.blocks)
    kind = source.units.cell
    is_occupied = kinds.cells_where({"occupancy": ["occupied"]})[kind]
    size = np.zeros(len(number), dtype=np.int64)
    # Occupied units of a block are in the order of their tenure, and so are its households.
    if not np.array_equal(source.units.block[is_occupied], source.household_block):
        raise ValueError("a block has not as many households as occupied units")
    size[is_occupied] = population.sizes()
    is_facility = ~kinds.cells_where({"occupancy": ["occupied", "vacant"]})[kind]
    tenure = np.where(is_occupied, kind, NOBODY)
    levels = np.full((7, len(number)), NOBODY)
    levels[:, is_occupied] = population.household_levels
    blocks, (attribute,) = source.blocks.tolist(), kinds.attributes
    units = {
        "geocode": label_levels(source.units.block, blocks),
        "unit": pa.array(number, pa.int64()),
        "occupied": pa.array(is_occupied, pa.bool_(), mask=is_facility),
        "size": pa.array(size, pa.int64(), mask=is_facility),
        "tenure": label_levels(tenure, kinds.labels(attribute)),
        attribute: label_levels(kind, kinds.labels(attribute)),
        **attributes(household_types.universe().schema, levels),
    }
    everybody = population.person_levels()
    unit = np.full(everybody.shape[1], NOBODY)
    unit[source.inside] = number[is_occupied][population.members.unit]
    relationship = np.where(unit == NOBODY, NOBODY, everybody[person_levels.KIND])
    persons = {
        "geocode": label_levels(source.person_block, blocks),
        "unit": pa.array(unit, pa.int64(), mask=unit == NOBODY),
        "relationship": label_levels(relationship, person_levels.relationships().labels),
        **attributes(person_levels.universe().schema, everybody),
    }
    for name, columns in ((UNITS_FILE, units), (PERSONS_FILE, persons)):
        write_parquet(folder / name, pa.table(columns), compression="zstd")
    write_record(folder / SUMMARY_FILE, summary(population))


def summary(population: Population) -> dict[str, object]:
    """Numbers of changed blocks and records, from released counts alone."""
    source, people = population.source, blocks_of(population.source).persons
    households = (source.household_levels != population.household_levels).any(axis=0)
    changed = {
        name: getattr(people, name) != getattr(population.members, name)
        for name in ("relationship", "age", "sex")
    }
    persons = np.any(list(changed.values()), axis=0)
    blocks = np.concatenate(
        [source.household_block[households], source.person_block[source.inside][persons]]
    )
    return {
        "blocks": len(np.unique(source.household_block)),
        "blocks_changed": len(np.unique(blocks)),
        "households": len(source.household_block),
        "households_changed": int(households.sum()),
        "persons_in_households": len(source.inside),
        "persons_changed": {name: int(own.sum()) for name, own in changed.items()},
    }


def unit_numbers(block: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Numbers of units in the order of their blocks, from 1 in every state."""
    state = np.array([code[:STATE_DIGITS] for code in blocks], dtype=str)
    of_unit = state[block]
    first = np.searchsorted(of_unit, of_unit, side="left")
    return np.arange(1, len(block) + 1) - first


def attributes(schema: Schema, levels: np.ndarray) -> dict[str, pa.Array]:
    """The attributes of records by label, from their levels `(n_attributes, n)`."""
    return {
        name: label_levels(own, schema.labels(name))
        for name, own in zip(schema.attributes, levels, strict=True)
    }


def label_levels(level: np.ndarray, labels: Sequence[str]) -> pa.Array:
    """Labels of levels `(n,)`, null for `NOBODY`."""
    codes = pa.array(level.astype(np.int32), mask=level == NOBODY)
    return pa.array(list(labels), pa.string()).take(codes)
