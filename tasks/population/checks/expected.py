"""Expected contents of one population's files for the independent checks, by names and labels."""

from __future__ import annotations

from pathlib import Path

from ....validation.population.run_checks import ExpectedPopulation, ReleasedCounts
from ...census.census import Census, Universe
from ...census.microdata import codes_of
from ...census.recodes import CodeSet
from ...census.schema import Schema
from ..release.population import PERSONS_FILE, UNITS_FILE
from ..workload import household_types, person_levels
from ..workload.household_types import universe

_ELDERLY = (0, 60, 65, 75)


def expected_population(folder: Path, redistricting: Path, census: Census) -> ExpectedPopulation:
    """Expected contents of the files in a folder, together with a release of a redistricting
    census.

    redistricting : the folder with the microdata of that release.
    """
    persons, homes = person_levels.universe(), universe()
    own, theirs = persons.schema.attributes, homes.schema.attributes
    units = household_types.unit_kinds()
    return ExpectedPopulation(
        folder / PERSONS_FILE,
        folder / UNITS_FILE,
        own[person_levels.SEX],
        own[person_levels.AGE],
        own[person_levels.ORIGIN],
        own[person_levels.RACE],
        theirs[household_types.SEX],
        theirs[household_types.AGE],
        theirs[household_types.ORIGIN],
        theirs[household_types.RACE],
        theirs[household_types.ELDERLY],
        theirs[household_types.TYPE],
        _races(persons, homes),
        tuple(zip(_ELDERLY, homes.schema.labels(theirs[household_types.ELDERLY]), strict=True)),
        _zeros(persons),
        _zeros(homes),
        (_universe_counts(census.universes["persons"], persons.schema, redistricting),),
        (_universe_counts(census.universes["units"], units, redistricting),),
    )


def _races(persons: Universe, homes: Universe) -> dict[str, str]:
    """The race of a householder by the race of a person, both by label."""
    of_head = homes.recodes[homes.schema.attributes[household_types.RACE]]
    name = persons.schema.attributes[person_levels.RACE]
    found = {}
    for level, where in persons.recodes[name].rules:
        (codes,) = where.values()
        if not isinstance(codes, CodeSet):
            raise ValueError(f"{name} is not defined by codes")
        first = codes.ranges[0][0] if codes.ranges else int(min(codes.texts))
        label = of_head.levels[of_head.level_of(str(first))]
        found[persons.recodes[name].levels[level]] = label
    return found


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
        of_label = {
            label: grouping.levels[group]
            for label, group in zip(own.labels(grouping.attribute), grouping.groups, strict=True)
        }
        beyond = further.get(column.name, "")
        of_code = {label: code.get(to, beyond) for label, to in of_label.items()}
        codes[column.name] = (grouping.attribute, of_code)
    area = [column.name for column in columns if column.digits is not None]
    return ReleasedCounts(folder / f"mdf_{released.name}.parquet", area, codes)
