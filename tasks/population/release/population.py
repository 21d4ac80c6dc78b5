"""One population out of three releases: redistricting, housing units and persons.

All of it follows from released counts: nothing confidential is read, and nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...runs.directory import RunDirectory
from ...runs.files import write_record
from ..estimation.blocks import Populated, Way, joined
from ..estimation.closing import closed
from ..estimation.pieces import blocks_of, extents, read_made
from ..ingest.released import Released, read_released
from ..ingest.releases import Sources
from ..workload import household_types, person_levels
from ..workload.levels import DERIVED
from .files import (
    NOBODY,
    PERSONS_FILE,
    UNITS_FILE,
    attributes,
    labelled,
    unit_numbers,
    write_rows,
)

SUMMARY_FILE = "population.json"


@dataclass(frozen=True, eq=False)
class Population:
    """What was made: the released counts, and the members of all households."""

    source: Released
    made: Populated

    def household_levels(self) -> np.ndarray:
        """Levels of all households `(7, n)`, in the order of the released ones."""
        levels = self.source.household_levels.copy()
        levels[list(DERIVED)] = self.made.levels
        return levels

    def sizes(self) -> np.ndarray:
        """Members of all households."""
        return np.bincount(self.made.members.unit, minlength=self.made.levels.shape[1])

    def person_levels(self) -> np.ndarray:
        """Levels of all persons `(5, n)`, in the order of the released ones."""
        levels = self.source.person_levels.copy()
        levels[:, self.source.inside] = person_levels.levels_of(self.made.members, self.sizes())
        return levels


def population_of_pieces(run: RunDirectory, sources: Sources) -> Population:
    """One population, of pieces that a run has made of the releases.

    Raises ValueError where a block has more occupied units than persons, or persons and no unit.
    """
    source = read_released(sources)
    own = blocks_of(source)
    every = extents(own)
    made = joined(own, [first for first, _ in every], read_made(run, own, every))
    return Population(source, closed(own, made))


def write_population(population: Population, folder: Path, *, is_private: bool) -> list[Path]:
    """Write both files, and how the blocks were made as `population.json`; returns the paths."""
    source, made = population.source, population.made
    kinds = household_types.unit_kinds()
    number = unit_numbers(source.units.block, source.blocks)
    is_occupied = source.units.cell < source.n_occupied
    size = np.zeros(len(number), dtype=np.int64)
    # Occupied units of a block are in the order of their tenure, and so are its households.
    if not np.array_equal(source.units.block[is_occupied], source.household_block):
        raise ValueError("a block has not as many households as occupied units")
    size[is_occupied] = population.sizes()
    kind = source.units.cell
    is_facility, tenure = kind >= source.n_housing, np.where(is_occupied, kind, NOBODY)
    levels = np.full((7, len(number)), NOBODY)
    levels[:, is_occupied] = population.household_levels()
    blocks, (attribute,) = source.blocks.tolist(), kinds.attributes
    units = {
        "geocode": labelled(source.units.block, blocks),
        "unit": pa.array(number, pa.int64()),
        "occupied": pa.array(is_occupied, pa.bool_(), mask=is_facility),
        "size": pa.array(size, pa.int64(), mask=is_facility),
        "tenure": labelled(tenure, kinds.labels(attribute)),
        attribute: labelled(kind, kinds.labels(attribute)),
        **attributes(household_types.universe().schema, levels),
    }
    everybody = population.person_levels()
    unit = np.full(everybody.shape[1], NOBODY)
    unit[source.inside] = number[is_occupied][made.members.unit]
    relationship = np.where(unit == NOBODY, NOBODY, everybody[person_levels.KIND])
    persons = {
        "geocode": labelled(source.persons.block, blocks),
        "unit": pa.array(unit, pa.int64(), mask=unit == NOBODY),
        "relationship": labelled(relationship, person_levels.relationships().labels),
        **attributes(person_levels.universe().schema, everybody),
    }
    paths = [
        write_rows(columns, folder / name, is_private=is_private)
        for name, columns in ((UNITS_FILE, units), (PERSONS_FILE, persons))
    ]
    write_record(folder / SUMMARY_FILE, summary(population))
    return [*paths, folder / SUMMARY_FILE]


def summary(population: Population) -> dict[str, object]:
    """How many blocks were made which way, and how much was changed; of released counts alone."""
    source, made = population.source, population.made
    has_any = np.bincount(source.household_block, minlength=len(source.blocks)) > 0
    ways = [way for way, any_there in zip(made.way, has_any, strict=True) if any_there]
    before = source.household_levels[list(DERIVED)]
    people = blocks_of(source).persons
    return {
        "blocks": {way.value: ways.count(way) for way in Way},
        "households": int(made.levels.shape[1]),
        "households_changed": int((before != made.levels).any(axis=0).sum()),
        "persons_in_households": len(source.inside),
        "persons_changed": {
            "relationship": int((people.relationship != made.members.relationship).sum()),
            "age": int((people.age != made.members.age).sum()),
            "sex": int((people.sex != made.members.sex).sum()),
        },
    }
