"""Columns that were made from other records: charged wherever a universe reads them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from spineflow.tasks.census.census import Universe, compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import guarantee_of

GEOGRAPHY = {"table": "areas", "geolevels": ["all", "area"]}
TYPE = {"column": "HHT", "levels": {"couple": ["1"], "other": ["0", "2"]}}
SIZE = {"column": "size", "levels": {"one": ["1"], "more": ["2", "3"]}}
MEMBERS = {"units": {"table": "persons", "key": "MAFID"}}


def universes(declared: dict[str, Any]) -> dict[str, Universe]:
    table = {"geography": GEOGRAPHY} | deepcopy(declared)
    return dict(compiled(CensusDeclaration.model_validate(table)).universes)


def step(table: str, most: int | None) -> dict[str, Any]:
    """A reference to a table, with the most records of one row."""
    found = {"column": "home", "table": table, "key": "id"}
    return found if most is None else found | {"records_per_row": most}


def of_members(most: int | None) -> dict[str, Any]:
    """Persons who read the type of their household, which the program makes of all its members."""
    return {
        "attributes": {"type": TYPE | {"column": "units.HHT"}, "plain": SIZE},
        "members": MEMBERS,
        "universes": {
            "units": {"table": "units", "area": "area", "attributes": ["plain"]},
            "persons": {
                "table": "persons",
                "area": "area",
                "attributes": ["type"],
                "through": step("units", most),
            },
        },
    }


def of_homes(most: int | None) -> dict[str, Any]:
    """People who read the size of their home, which an office computed from them."""
    return {
        "attributes": {"size": SIZE, "company": SIZE | {"column": "homes.size"}},
        "universes": {
            "homes": {
                "table": "homes",
                "area": "area",
                "attributes": ["size"],
                "computed_from": {"people": {"records": 2}},
            },
            "people": {
                "table": "people",
                "area": "area",
                "attributes": ["company"],
                "through": step("homes", most),
            },
        },
    }


def squared(universe: Universe) -> int:
    return universe.charge.squared_l2


def test_units_alone_are_told_by_their_members() -> None:
    declared = of_members(14)
    declared["attributes"] = {"type": TYPE}
    declared["universes"] = {"units": {"table": "units", "area": "area", "attributes": ["type"]}}
    found = universes(declared)["units"]
    assert {reach.table: reach.records for reach in found.reaches} == {"units": 1, "persons": 2}
    assert squared(found) == 8  # Four is reached: one member moves from one unit to another.


def test_a_column_that_members_do_not_tell_is_not_charged_to_them() -> None:
    declared = of_members(14)
    declared["attributes"] = {"tenure": TYPE | {"column": "TEN"}}
    declared["universes"] = {"units": {"table": "units", "area": "area", "attributes": ["tenure"]}}
    assert squared(universes(declared)["units"]) == 2


def test_a_household_is_charged_to_the_member_who_changes_its_type() -> None:
    # One row that changes moves the fourteen records of its household: 392.
    assert squared(universes(of_members(14))["persons"]) >= 392


def test_what_was_computed_is_charged_beyond_the_first_join() -> None:
    # One moved person changes the size of two homes, and with it the records of all who live there.
    assert squared(universes(of_homes(5))["people"]) >= 98


@pytest.mark.parametrize("declared", [of_members(None), of_homes(None)])
def test_a_way_without_a_bound_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="declare records_per_row in every step"):
        universes(declared)


def test_a_person_of_two_tables_of_occupants_changes_both() -> None:
    declared = {
        "attributes": {
            "jobs": {"column": "jobs.number", "numbers": [0, 9]},
            "people": {"column": "people.number", "numbers": [0, 9]},
        },
        "contributions": {"jobs": {"person": "person", "records_per_person": 2}},
        "universes": {
            "firms": {
                "table": "firms",
                "area": "area",
                "attributes": ["jobs", "people"],
                "occupants": {
                    name: {"table": name, "column": "firm", "key": "id"}
                    for name in ("jobs", "people")
                },
            }
        },
    }
    assert squared(universes(declared)["firms"]) == 72


def test_a_loss_that_is_stated_beside_several_records_is_charged() -> None:
    census = {
        "geography": GEOGRAPHY,
        "attributes": {"size": SIZE, "heads": {"column": "heads.number", "numbers": [0, 9]}},
        "universes": {
            "homes": {
                "table": "homes",
                "area": "area",
                "attributes": ["size", "heads"],
                "occupants": {"heads": {"table": "heads", "column": "home", "key": "id"}},
                "computed_from": {"people": {"records": 4, "charged": False}},
            }
        },
    }
    settings = TopdownSettings.model_validate(
        {
            "census": census,
            "input": {"areas": "a", "homes": "h", "heads": "o"},
            "privacy": {"dataset": "d"},
            "geography": {"spine": "conventional"},
            "budget": {
                "homes": {
                    "rho": "1",
                    "delta": "1e-10",
                    "queries": {"other": {"detailed": "1"}},
                }
            },
        }
    )
    guarantee = guarantee_of(settings.budget_of("homes"))
    assert 2 * guarantee.bounded_rho == 32
