"""Expected contents of one population's files for the independent checks, by names and labels."""

from __future__ import annotations

from pathlib import Path

from ....validation.population import ExpectedPopulation, ReleasedCounts
from ...census.census import Census, Universe
from ...census.microdata import codes_of
from ...census.queries import Schema
from ..release.population import PERSONS_FILE, UNITS_FILE
from ..workload import household_types, person_levels


def expected_population(folder: Path, redistricting: Path, census: Census) -> ExpectedPopulation:
    """Expected contents of the files in a folder, together with a release of a redistricting
    census.

    redistricting : the folder with the microdata of that release.
    """
    persons, units = person_levels.universe(), household_types.unit_kinds()
    return ExpectedPopulation(
        folder / PERSONS_FILE,
        folder / UNITS_FILE,
        persons.schema.attributes[person_levels.RACE],
        _zeros(persons),
        _zeros(household_types.universe()),
        (_universe_counts(census.universes["persons"], persons.schema, redistricting),),
        (_universe_counts(census.universes["units"], units, redistricting),),
    )


def _zeros(universe: Universe) -> tuple[dict[str, tuple[str, ...]], ...]:
    """Structural zeros as labels by attribute."""
    schema = universe.schema
    return tuple(
        {
            name: tuple(schema.labels(name)[level] for level in levels)
            for name, levels in schema.positions(zero.where).items()
        }
        for zero in universe.zeros
    )


def _universe_counts(released: Universe, own: Schema, folder: Path) -> ReleasedCounts:
    """The rows of a universe of a redistricting release, by the labels of a population's file."""
    microdata = released.declared.microdata
    columns = () if microdata is None else microdata.columns
    further = {} if microdata is None or microdata.further is None else microdata.further.values
    codes = {}
    for column in columns:
        if column.attribute not in released.schema.attributes:
            continue
        labels = released.schema.labels(column.attribute)
        code = dict(zip(labels, codes_of(column, len(labels)), strict=True))
        grouping = own.grouping(column.attribute)
        groups = zip(own.labels(grouping.attribute), grouping.groups, strict=True)
        beyond = further.get(column.name, "")
        of_code = {label: code.get(grouping.levels[group], beyond) for label, group in groups}
        codes[column.name] = (grouping.attribute, of_code)
    area = [column.name for column in columns if column.digits is not None]
    return ReleasedCounts(folder / f"mdf_{released.name}.parquet", area, codes)
