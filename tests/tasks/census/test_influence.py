"""Every way by which a value of one table gets into a record of another: its edge, and its charge.

All neighbours of small inputs are read as runs read them, computed columns computed anew.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from spineflow.tasks.census import influence
from spineflow.tasks.census.declarations import CensusDeclaration, UniverseDeclaration
from spineflow.tasks.census.influence import Norms, Reach
from spineflow.tasks.topdown.workload.costs import guarantee_of
from spineflow.tasks.topdown.workload.statement import statement_of

from tests.tasks.census.declared_countries import (
    IDS,
    LEVELS,
    ODD,
    Census,
    Country,
    Tables,
    countries,
    guarantees,
    inputs,
    most_changed,
    paid,
)
from tests.tasks.census.declared_neighbours import AREAS, parity


def never_above(country: Country, tables: Tables, folder: Path) -> dict[str, tuple[int, int]]:
    """Assert that no neighbour changes more than is stated, or charged where all is charged."""
    found = most_changed(country, tables, folder)
    census = country.settings().compiled_census
    for name, (l1, squared) in found.items():
        stated = paid(country, name, stated=True)
        assert (l1 / 2) ** 2 <= stated[0] + 1e-9 and squared <= stated[1], name
        if all(reach.is_charged for reach in census.universes[name].reaches):
            charged = paid(country, name)
            assert (l1 / 2) ** 2 <= charged[0] + 1e-9 and squared <= charged[1], name
    return found


def check_country(country: Country, data: st.DataObject, folder: Path) -> None:
    """Hold the neighbours of a drawn input to the bounds of a drawn country; those without a bound,
    and inputs that break a rule, are drawn anew.
    """
    try:
        country.settings()
    except ValidationError:
        reject()
    tables = data.draw(inputs(country))
    assume(Census(country, folder).histograms(tables) is not None)
    never_above(country, tables, folder)


@pytest.mark.slow
@settings(
    max_examples=4,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(country=countries(), data=st.data())
def test_no_way_changes_more_than_is_charged_and_stated(
    tmp_path: Path, country: Country, data: st.DataObject
) -> None:
    check_country(country, data, tmp_path)


@pytest.mark.soak
@settings(
    max_examples=500,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(country=countries(), data=st.data())
def test_no_way_of_many_declarations_changes_more(
    tmp_path: Path, country: Country, data: st.DataObject
) -> None:
    check_country(country, data, tmp_path)


def test_every_key_of_a_declaration_has_an_edge_or_a_reason() -> None:
    """A new kind of reference must be entered where the edges are made."""
    for declaration in (UniverseDeclaration, CensusDeclaration):
        for key in declaration.model_fields:
            assert f"`{key}`" in str(influence.__doc__)


FOUR = ("1", "2", "3", "4")
TO_HOMES = {"column": "home", "table": "homes", "key": "id"}
SIZE = {"levels": {"two or five": ["2", "5"], "other": ["0", "1", "3", "4"]}}
SIZES = Country(
    {
        "dwellings": {
            "table": "homes",
            "attributes": ["size"],
            "computed_from": {"people": {"records": 2}},
        },
        "persons": {
            "table": "people",
            "attributes": ["size_of_home"],
            "through": TO_HOMES | {"records_per_row": 5},
        },
    },
    {"size": {"column": "size", **SIZE}, "size_of_home": {"column": "homes.size", **SIZE}},
    {"homes": {"id": ("1", "2"), "area": ("x",)}, "people": {"home": ("1", "2")}},
    {
        ("homes", "size"): lambda row, tables: str(
            sum(one["home"] == row["id"] for one in tables["people"])
        )
    },
)


def homes(*ids: str) -> tuple[dict[str, str], ...]:
    return tuple({"id": one, "area": "x"} for one in ids)


def people(*of: str) -> tuple[dict[str, str], ...]:
    return tuple({"home": one} for one in of)


def test_a_computed_column_is_charged_to_whoever_reads_it_by_a_join(tmp_path: Path) -> None:
    """A person who moves changes the size of two homes, and with it all who live in them."""
    tables = {"homes": homes("1", "2"), "people": people(*"1111122")}
    found = never_above(SIZES, tables, tmp_path)
    assert found["persons"][1] == 98
    assert paid(SIZES, "persons") == (121, 242)
    assert paid(SIZES, "dwellings") == (4, 8)
    (change,) = [text for text in statement_of(SIZES.settings()).change if "persons" in text]
    assert "One changed record of people changes at most 11 records of persons" in change


def changed(country: Country, universe: str, **keys: Any) -> Country:
    """The country with other keys of a universe."""
    universes = country.universes | {universe: country.universes[universe] | keys}
    return Country(universes, country.attributes, country.columns, country.computed)


def test_a_computed_column_that_is_joined_without_a_bound_is_refused() -> None:
    with pytest.raises(ValidationError, match="are made from 'people'.*records_per_row"):
        changed(SIZES, "persons", through=TO_HOMES).settings()
    named = {"people": {"records": 2, "columns": ["area"]}}
    with pytest.raises(ValidationError, match="with the column 'area', which neither"):
        changed(SIZES, "dwellings", computed_from=named).settings()


TOLD = Country(
    {
        "dwellings": {
            "table": "homes",
            "attributes": ["told"],
            "occupants": {"people": {"table": "people", "column": "home", "key": "id"}},
            "computed_from": {"people": {"records": 2, "charged": False}},
        }
    },
    {"told": parity("people.number", "guests")},
    {"homes": {"id": FOUR, "area": ("x",)}, "people": {"home": FOUR, "stay": FOUR}},
    {
        ("homes", "guests"): lambda row, tables: str(
            sum(one["stay"] == row["id"] for one in tables["people"])
        )
    },
)


def test_what_is_stated_counts_what_is_charged_as_well(tmp_path: Path) -> None:
    tables = {
        "homes": homes(*FOUR),
        "people": ({"home": "1", "stay": "3"}, {"home": "2", "stay": "4"}),
    }
    assert most_changed(TOLD, tables, tmp_path)["dwellings"] == (8, 32)
    assert paid(TOLD, "dwellings") == (4, 8)
    assert paid(TOLD, "dwellings", stated=True) == (16, 32)
    pure, gaussian = guarantees(TOLD, "dwellings")
    assert (gaussian.bounded_rho, gaussian.stated_rho) == (4, 16)
    assert (pure.bounded_rho, pure.stated_rho) == (2, 8)
    statement = statement_of(TOLD.settings())
    assert "at most 4 records of dwellings" in statement.change[0]
    assert "has rho 16 (about 16)" in statement.together


FIRMS = Country(
    {
        "firms": {
            "table": "firms",
            "attributes": ["told"],
            "occupants": {
                "jobs": {"table": "jobs", "column": "firm", "key": "id"},
                "owners": {"table": "people", "column": "firm", "key": "id"},
            },
        }
    },
    {"told": parity("jobs.number", "owners.number")},
    {
        "firms": {"id": (*FOUR, "5", "6"), "area": ("x",)},
        "jobs": {"person": ("1", "2"), "firm": (*FOUR, "5", "6")},
        "people": {"firm": (*FOUR, "5", "6")},
    },
    contributions={"jobs": {"person": "person", "records_per_person": 2}},
)


@pytest.mark.parametrize("is_declared", [False, True])
def test_one_person_in_two_tables_is_charged_for_both(is_declared: bool) -> None:
    declared = {"people": {"person": "firm", "records_per_person": 1}} if is_declared else {}
    country = Country(
        FIRMS.universes, FIRMS.attributes, FIRMS.columns, {}, FIRMS.contributions | declared
    )
    assert paid(country, "firms") == (36, 72)
    (change,) = statement_of(country.settings()).change
    assert "One person's records in jobs and people together change at most 6 records" in change


def test_a_person_in_two_tables_changes_six_firms(tmp_path: Path) -> None:
    """Two jobs and one share move, from three firms to three others: all become odd."""
    census, found = Census(FIRMS, tmp_path), []
    for jobs, owner in (("12", "5"), ("34", "6")):
        own = [{"person": "1", "firm": firm} for firm in jobs]
        others = [{"person": "2", "firm": firm} for firm in "12"]
        owners = ({"firm": "5"}, {"firm": owner})
        tables = {"firms": homes(*FOUR, "5", "6"), "jobs": (*own, *others), "people": owners}
        read = census.histograms(tables)
        assert read is not None
        found.append(read["firms"])
    assert census.norms("firms", *found) == (12, 72)


def test_a_persons_number_bounds_the_records_of_a_row() -> None:
    """Rows that stand for several of a person's records may have occupants."""
    country = Country(
        {
            "stays": {
                "table": "stays",
                "attributes": ["told"],
                "count": "n",
                "occupants": {"guests": {"table": "guests", "column": "stay", "key": "id"}},
            }
        },
        {"told": parity("guests.number")},
        {
            "stays": {"id": ("1", "2"), "area": AREAS, "n": ("1", "2"), "person": ("1", "2")},
            "guests": {"stay": ("1", "2")},
        },
        contributions={"stays": {"person": "person", "records_per_person": 2}},
    )
    # Two stays of a person and, as one of the guests, two rows of two stays each.
    assert paid(country, "stays") == (36, 72)


def test_a_group_of_one_is_its_own_record(tmp_path: Path) -> None:
    """A key that the input holds to one row makes nobody tell of another."""
    country = Country(
        {
            "persons": {
                "table": "people",
                "attributes": ["mates"],
                "occupants": {"mates": {"table": "people", "column": "home", "key": "home"}},
            }
        },
        {"mates": {"column": "mates.number", **ODD}},
        {"people": {"home": ("1", "2", "3"), "area": AREAS}},
    )
    tables = {"people": ({"home": "1", "area": "x"}, {"home": "2", "area": "y"})}
    assert never_above(country, tables, tmp_path)["persons"] == (2, 2)
    assert paid(country, "persons") == (1, 2)
    double = {"people": ({"home": "1", "area": "x"}, {"home": "1", "area": "y"})}
    assert Census(country, tmp_path).histograms(double) is None


def with_members(**universes: dict[str, Any]) -> Country:
    """Units and the persons who tell columns of them, as the Census Edited File has them."""
    return Country(
        {"units": {"table": "units", "attributes": ["old"]}, **universes},
        {
            "old": {"column": "P65", "levels": {"a": ["1", "3"], "b": ["0", "2", "4"]}},
            "kind": {
                "column": "units.HHT",
                "levels": {"married": ["1"], "other": ["2", "3", "4", "5", "6", "7"]},
            },
            "sex": {"column": "QSEX", "levels": {"m": ["1"], "f": ["2"]}},
        },
        {
            "units": {"MAFID": ("1", "2"), "area": ("x",), "RTYPE": ("2",)},
            "persons": {
                "MAFID": ("1", "2"),
                "RELSHIP": ("20", "21", "36"),
                "QAGE": ("40", "70"),
                "QSEX": ("1", "2"),
                "CENHISP": ("1",),
                "CENRACE": ("01",),
                "area": ("x",),
            },
        },
        members={"units": {"table": "persons", "key": "MAFID"}},
    )


def person(unit: str, relationship: str, age: str, sex: str) -> dict[str, str]:
    return {
        "MAFID": unit,
        "RELSHIP": relationship,
        "QAGE": age,
        "QSEX": sex,
        "CENHISP": "1",
        "CENRACE": "01",
        "area": "x",
    }


UNITS = tuple({"MAFID": unit, "area": "x", "RTYPE": "2"} for unit in ("1", "2"))
OWN_PERSONS = {"table": "persons", "attributes": ["sex"]}


@pytest.mark.slow
def test_columns_that_members_make_are_charged_to_members(tmp_path: Path) -> None:
    """Who moves changes the units before and after, and persons are named beside the units."""
    country = with_members(persons=OWN_PERSONS)
    tables: Tables = {
        "units": UNITS,
        "persons": (
            *(person("1", "20", "40", "1"), person("1", "36", "70", "1")),
            *(person("2", "20", "40", "1"), person("2", "36", "40", "1")),
            person("1", "36", "70", "2"),
        ),
    }
    found = never_above(country, tables, tmp_path)
    assert found["units"] == (4, 8)
    assert paid(country, "units") == (4, 8) and paid(country, "persons") == (1, 2)
    change = next(c for c in statement_of(country.settings()).change if "of units" in c)
    assert "One changed record of persons changes at most 2 records of units" in change


BY_UNIT = {
    "table": "persons",
    "attributes": ["kind"],
    "through": {"column": "MAFID", "table": "units", "key": "MAFID"},
}


def test_a_household_of_fourteen_is_told_by_one_relationship(tmp_path: Path) -> None:
    """RELSHIP from 21 to 36 changes the type of the household, and with it 14 records."""
    bounded = BY_UNIT | {"through": BY_UNIT["through"] | {"records_per_row": 14}}
    country = with_members(persons=bounded)
    others = [person("1", "36", "40", "1")] * 12
    head, spouse = person("1", "20", "40", "1"), person("1", "21", "40", "2")
    census = Census(country, tmp_path)
    before, after = (
        census.histograms({"units": UNITS, "persons": (head, one, *others)})
        for one in (spouse, spouse | {"RELSHIP": "36"})
    )
    assert before is not None and after is not None
    assert census.norms("persons", before["persons"], after["persons"]) == (28, 392)
    # Two households of 14 at most, one of whom is in both.
    assert paid(country, "persons") == (27**2, 2 * 27**2)
    with pytest.raises(ValidationError, match="'units' that are made from 'persons'"):
        with_members(persons=BY_UNIT).settings()


def test_what_is_declared_of_members_is_not_charged_twice() -> None:
    """The office declares that persons tell columns of units: that is what the program makes."""
    for records, charged in product((1, 2, 3), (True, False)):
        told = {"persons": {"records": records, "charged": charged}}
        country = with_members(persons=OWN_PERSONS)
        country = Country(
            country.universes | {"units": country.universes["units"] | {"computed_from": told}},
            country.attributes,
            country.columns,
            members=country.members,
        )
        own = country.settings().compiled_census.universes["units"]
        most = Norms.of_records(max(2, records))
        assert own.stated == most and own.charge == (most if charged else Norms())
        assert (
            guarantee_of(country.settings().budget_of("units")).stated_rho == max(2, records) ** 2
        )


@pytest.mark.parametrize("by", ["own", "filter", "computed", "occupants"])
def test_exact_numbers_of_protected_people_are_refused(by: str) -> None:
    """By a second universe of their table, its conditions, or columns that were made from them."""
    census = {
        "own": {"table": "people", "attributes": ["sex"]},
        "filter": {"table": "people", "attributes": ["constant"], "where": {"sex": ["a"]}},
        "computed": {
            "table": "homes",
            "attributes": ["size"],
            "computed_from": {"people": {"records": 2}},
        },
        "occupants": {
            "table": "homes",
            "attributes": ["number"],
            "occupants": {"people": {"table": "people", "column": "home", "key": "id"}},
        },
    }[by]
    query = {"own": "sex", "computed": "size", "occupants": "number", "filter": "total"}[by]
    bound = {"query": "sex", "per": "counted", "by": query, "at_least": 1, "at_most": 1}
    if by == "filter":
        bound = {"query": "total", "per": "counted", "at_least": 1}
    country = Country(
        {
            "counted": census,
            "persons": {"table": "people", "attributes": ["sex"], "bounds": [bound]},
        },
        {
            "sex": {"column": "sex", **LEVELS},
            "size": {"column": "size", **LEVELS},
            "number": {"column": "people.number", **ODD},
            "constant": {"rules": [{"level": "one", "where": {}}]},
        },
        {
            "people": {"sex": ("a", "b"), "area": ("x",), "home": ("1",)},
            "homes": {"id": ("1",), "area": ("x",)},
        },
    )
    settings, found = country.settings(budgeted=("persons",)), list[str]()
    settings.refuse_invalid(found.append)
    assert [text for text in found if "would publish the exact" in text], found
    public = country.universes["counted"] | {"public": True}
    settings = replace(country, universes=country.universes | {"counted": public}).settings(
        budgeted=("persons",)
    )
    found.clear()
    settings.refuse_invalid(found.append)
    assert any("would publish the exact" in text for text in found) == (
        by in ("computed", "occupants")
    )


SEX_EXACT = {"query": "sex", "geolevel": "area"}
PEOPLE = {"table": "people", "attributes": ["sex"]}
BY_PERSON = {"column": "person", "table": "people", "key": "id"}
TOLD_BY_PEOPLE = {"computed_from": {"people": {"records": 2}}}
COUNTED_ROOMS = {"count": "rooms", "largest_count": 3}
DWELLINGS_BY_SIZE = {"table": "homes", "attributes": ["size"]}


@pytest.mark.parametrize(
    ("counted", "by", "persons", "beside", "column"),
    [
        ({"attributes": ["minor"]}, "minor", {}, {}, "sex of people"),
        ({"area": "work"}, None, {"attributes": ["sex", "work"]}, {}, "work of people"),
        ({"area": "work"}, None, {"where": {"work": ["x"]}}, {}, "work of people"),
        ({"table": "jobs", "through": BY_PERSON}, None, {}, {}, "area of people"),
        (
            {"table": "jobs", "through": BY_PERSON, "attributes": ["sex_of"]},
            "sex_of",
            {},
            {},
            "people, which",
        ),
        (
            {"attributes": ["sex"]},
            "sex",
            {"where": {"sex": ["a"]}, "attributes": ["age"]},
            {},
            "sex of people",
        ),
        ({"where": {"role": ["o"]}}, None, {"where": {"role": ["h"]}}, {}, "role of people"),
        ({"count": "n"}, None, {"where": {"sex": ["a"]}, "count": "n"}, {}, "n of people"),
        ({"table": "homes", **COUNTED_ROOMS, **TOLD_BY_PEOPLE}, None, {}, {}, "rooms of homes"),
        (
            {"table": "homes", **COUNTED_ROOMS},
            None,
            {},
            {"homes": DWELLINGS_BY_SIZE | COUNTED_ROOMS | TOLD_BY_PEOPLE},
            "rooms of homes",
        ),
        (
            {"table": "homes", "attributes": ["size"]},
            "size",
            {},
            {"homes": DWELLINGS_BY_SIZE | TOLD_BY_PEOPLE},
            "size of homes",
        ),
        (
            {"table": "homes", "where": {"size": ["a"]}, **TOLD_BY_PEOPLE},
            None,
            {},
            {},
            "size of homes",
        ),
        (
            {
                "table": "jobs",
                "through": {"column": "home", "table": "homes", "key": "id", "records_per_row": 3},
                "attributes": ["size_of"],
            },
            "size_of",
            {},
            {"homes": DWELLINGS_BY_SIZE | TOLD_BY_PEOPLE},
            "size of homes",
        ),
        ({"area": "work", "attributes": ["sex"]}, "sex", {"invariants": [SEX_EXACT]}, {}, "sex of"),
    ],
)
def test_exact_numbers_are_followed_to_every_column_that_tells_them(
    counted: dict[str, Any],
    by: str | None,
    persons: dict[str, Any],
    beside: dict[str, Any],
    column: str,
) -> None:
    """Those of conditions, areas and numbers of records too, of the own table or of others."""
    own = {"table": "people", "attributes": ["constant"]} | counted
    query = by or "total"
    bound = {"query": query if by == "sex" else "total", "per": "counted", "at_least": 0}
    bound |= {"by": by, "query": (PEOPLE | persons)["attributes"][0]} if by else {}
    universes = {**beside, "counted": own, "persons": PEOPLE | persons | {"bounds": [bound]}}
    attributes = {
        "sex": {"column": "sex", **LEVELS},
        "age": {"column": "age", **LEVELS},
        "minor": {
            "rules": [
                {"level": "yes", "where": {"sex": ["a"], "age": ["a"]}},
                {"level": "no", "where": {}},
            ]
        },
        "work": {"column": "work", "levels": {"x": ["x"], "y": ["y"]}},
        "sex_of": {"column": "people.sex", **LEVELS},
        "size": {"column": "size", **LEVELS},
        "size_of": {"column": "homes.size", **LEVELS},
        "constant": {"rules": [{"level": "one", "where": {}}]},
    }
    used = {name for one in universes.values() for name in one["attributes"]}
    tables = {"people": {}, "homes": {}, "jobs": {}}
    country = Country(universes, {name: attributes[name] for name in used}, tables)
    found = list[str]()
    country.settings(budgeted=("persons",)).refuse_invalid(found.append)
    (refused,) = [text for text in found if "would publish the exact" in text]
    assert column in refused


def test_a_computed_number_of_records_is_charged_to_whoever_counts_by_it(tmp_path: Path) -> None:
    """A universe that declares nothing of it itself is charged, too."""
    country = Country(
        {
            "dwellings": DWELLINGS_BY_SIZE | COUNTED_ROOMS | TOLD_BY_PEOPLE,
            "rooms": {"table": "homes", "attributes": ["constant"], **COUNTED_ROOMS},
        },
        {
            "size": {"column": "size", **LEVELS},
            "constant": {"rules": [{"level": "one", "where": {}}]},
        },
        {"homes": {"id": ("1", "2"), "area": AREAS, "size": ("a",)}, "people": {"home": IDS}},
        {
            ("homes", "rooms"): lambda row, tables: str(
                1 + 2 * any(one["home"] == row["id"] for one in tables["people"])
            )
        },
    )
    tables = {"homes": homes("1", "2"), "people": people("1")}
    tables["homes"] = tuple({**row, "size": "a"} for row in tables["homes"])
    assert "people" in {reach.table for reach in reaches_of(country, "rooms")}
    never_above(country, tables, tmp_path)
    named = TOLD_BY_PEOPLE["computed_from"]["people"] | {"columns": ["rooms"]}
    country = changed(country, "dwellings", computed_from={"people": named})
    never_above(country, tables, tmp_path)
    # Two dwellings of three records each.
    (reach,) = [one for one in reaches_of(country, "rooms") if one.table == "people"]
    assert reach.records == 6


def reaches_of(country: Country, name: str) -> tuple[Reach, ...]:
    return country.settings().compiled_census.universes[name].reaches
