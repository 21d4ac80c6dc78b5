"""Persons and households of the input, for inputs that are not confidential."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ..ingest.released import Sources, group_by_block
from ..workload import household_types, person_levels
from .measures import PersonsAndHouseholds


def true_records(sources: Sources) -> PersonsAndHouseholds | None:
    """The records of the input; None if a run no longer has them. They are in no released file;
    callers must have checked that no run's input is confidential.
    """
    runs = (
        (sources.persons, person_levels.PERSONS),
        (sources.units, household_types.HOUSEHOLDS),
    )
    if not all(run.histogram(universe).exists() for run, universe in runs):
        return None
    tables = [_counts(run, universe) for run, universe in runs]
    blocks, (people, homes) = group_by_block(tables)
    persons = np.stack(people.levels(person_levels.universe().schema))
    households = np.stack(homes.levels(household_types.universe().schema))
    return PersonsAndHouseholds(blocks, people.block, persons, homes.block, households)


def _counts(run: RunDirectory, universe: str) -> pa.Table:
    """Geocode, cell and count of all entries of a universe."""
    table = pq.read_table(run.histogram(universe), columns=["block_geocode", "cell", "count"])
    return table.rename_columns(["geocode", "cell", "count"])
