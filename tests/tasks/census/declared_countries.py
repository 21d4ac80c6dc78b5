"""Small censuses of several universes whose tables refer to each other, with computed columns, and
all neighbours of an input: every column that is computed from others is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from spineflow.tasks.ledger.accounting import Guarantee
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import guarantee_of

from tests.tasks.census.declared_neighbours import AREAS, GAUSSIAN, PURE, Reader, of_rows

Row = Mapping[str, str]
Tables = dict[str, tuple[Row, ...]]
Computed = Callable[[Row, Tables], str]

IDS = ("1", "2")


@dataclass(frozen=True)
class Country:
    """A census of several universes, and the values that the columns of its tables may have.

    columns : by table, the columns that are no others' and their values.
    computed : by table and column, what the office computes of a row and all tables, in order.
    persons : tables of which a person may have one record beside the several of `contributions`.
    """

    universes: dict[str, dict[str, Any]]
    attributes: dict[str, Any]
    columns: dict[str, dict[str, tuple[str, ...]]]
    computed: dict[tuple[str, str], Computed] = field(default_factory=dict)
    contributions: dict[str, Any] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    persons: tuple[str, ...] = ()

    def settings(
        self, budget: Mapping[str, str] = GAUSSIAN, budgeted: tuple[str, ...] = ()
    ) -> TopdownSettings:
        """Settings of a run of some universes, by default of all."""
        census: dict[str, Any] = {
            "geography": {"table": "areas", "geolevels": ["all", "area"]},
            "attributes": self.attributes,
            "universes": {n: {"area": "area"} | own for n, own in self.universes.items()},
        }
        census |= {"contributions": self.contributions} if self.contributions else {}
        census |= {"members": self.members} if self.members else {}
        section = {**budget, "queries": {"other": {"detailed": "1"}}}
        return TopdownSettings.model_validate(
            {
                "census": deepcopy(census),
                "input": {"areas": "a", **{name: name for name in self.columns}},
                "privacy": {"dataset": "d"},
                "geography": {"spine": "conventional"},
                "budget": {name: deepcopy(section) for name in budgeted or self.universes},
            }
        )

    def rows(self, table: str) -> list[Row]:
        """All rows that a table may have, without its computed columns."""
        columns = self.columns[table]
        return [dict(zip(columns, row, strict=True)) for row in product(*columns.values())]

    def filled(self, tables: Tables) -> Tables:
        """The tables with their computed columns."""
        found = dict(tables)
        for (table, column), of in self.computed.items():
            found[table] = tuple({**row, column: of(row, found)} for row in found[table])
        return found

    def neighbours(self, tables: Tables) -> Iterator[tuple[str, Tables]]:
        """All inputs in which one record differs, or all records of one person, and of what."""
        for table, rows in tables.items():
            told = self.contributions.get(table)
            if told is None:
                for new in of_rows(rows, self.rows(table)):
                    yield table, tables | {table: tuple(new)}
                continue
            person, most = told["person"], told["records_per_person"]
            others = [name for name in self.persons if name in tables]
            for one in self.columns[table][person]:
                rest = tuple(row for row in rows if row[person] != one)
                own = [row for row in self.rows(table) if row[person] == one]
                for n in range(most + 1):
                    for mine in product(own, repeat=n):
                        changed = tables | {table: (*rest, *mine)}
                        yield table, changed
                        for other in others:
                            for new in of_rows(tables[other], self.rows(other)):
                                yield table, changed | {other: tuple(new)}


class Census(Reader):
    """Reads tables of a country from files, with their computed columns."""

    def __init__(self, country: Country, folder: Path) -> None:
        super().__init__(country.settings().compiled_census, folder)
        self.country = country

    def histograms(self, tables: Tables) -> dict[str, np.ndarray] | None:
        return super().histograms(self.country.filled(tables))


def guarantees(country: Country, universe: str) -> tuple[Guarantee, Guarantee]:
    """Of a universe under pure and under concentrated differential privacy."""
    pure, gaussian = (country.settings(budget).budget_of(universe) for budget in (PURE, GAUSSIAN))
    return guarantee_of(pure), guarantee_of(gaussian)


def paid(country: Country, universe: str, *, stated: bool = False) -> tuple[float, float]:
    """The squared half of L1, and squared L2, that rho per person pays for, or that is stated."""
    pure, gaussian = guarantees(country, universe)
    name = "stated_rho" if stated else "bounded_rho"
    of_pure, of_gaussian = getattr(pure, name), getattr(gaussian, name)
    return float(2 * of_pure / pure.parameter**2), float(2 * of_gaussian / gaussian.parameter)


def protected(country: Country, universe: str) -> set[str]:
    """Tables whose records the universe protects, as far as a change of them changes it."""
    own = country.settings().compiled_census.universes[universe]
    return {
        table
        for reach in own.reaches
        if reach.records is not None
        for table in (reach.table, *reach.beside)
    }


def unprotected(country: Country, universe: str) -> set[str]:
    """Tables whose records stay the same for the universe."""
    own = country.settings().compiled_census.universes[universe]
    return {reach.table for reach in own.reaches if reach.records is None}


def most_changed(country: Country, tables: Tables, folder: Path) -> dict[str, tuple[int, int]]:
    """By universe, the largest norms over all neighbours in tables that are not excepted."""
    census = Census(country, folder)
    before = census.histograms(tables)
    assert before is not None, "the input is refused"
    most = dict.fromkeys(country.universes, (0, 0))
    excepted = {name: unprotected(country, name) for name in most}
    for table, other in country.neighbours(tables):
        after = census.histograms(other)
        for name in most if after is not None else ():
            if table not in excepted[name]:
                found = census.norms(name, before[name], after[name])
                most[name] = tuple(map(max, most[name], found))
    return most


def number_of(table: str, column: str) -> Computed:
    """Whether the rows of a table that refer to a row by a column are an odd number."""

    def of(row: Row, tables: Tables) -> str:
        return "a" if sum(other[column] == row["id"] for other in tables[table]) % 2 else "b"

    return of


def told_by(table: str, column: str, of: str) -> Computed:
    """Whether an odd number of the rows that refer to a row have another column at a."""

    def found(row: Row, tables: Tables) -> str:
        own = [other for other in tables[table] if other[column] == row["id"]]
        return "a" if sum(other[of] == "a" for other in own) % 2 else "b"

    return found


def rooms_of(row: Row, tables: Tables) -> str:
    """Two rooms where somebody lives, and one elsewhere."""
    return "2" if any(other["home"] == row["id"] for other in tables["people"]) else "1"


LEVELS = {"levels": {"a": ["a"], "b": ["b"]}}
ODD = {"levels": {"odd": ["1", "3"], "even": ["0", "2", "4"]}}


@st.composite
def inputs(draw: st.DrawFn, country: Country) -> Tables:
    """Two rows of every table, with identifiers of their own where they have some, and three of
    people.
    """
    found: Tables = {}
    for table in country.columns:
        rows = country.rows(table)
        own = [[row for row in rows if row.get("id", one) == one] for one in IDS]
        chosen = [draw(st.sampled_from(some)) for some in own]
        more = [draw(st.sampled_from(rows))] if table == "people" else []
        found[table] = (*chosen, *more)
    return found


@st.composite
def countries(draw: st.DrawFn) -> Country:
    """Two or three tables: people in homes in blocks, with columns computed from one to the next,
    and universes of each that read them by every way.
    """
    three = draw(st.booleans())
    columns: dict[str, dict[str, tuple[str, ...]]] = {
        "people": {"id": IDS, "home": IDS},
        "homes": {"id": IDS, **({"block": IDS} if three else {"area": AREAS})},
    }
    if three:
        columns["blocks"] = {"id": IDS, "area": AREAS}
    attributes: dict[str, Any] = {
        "size": {"column": "size", **LEVELS},
        "size_of_home": {"column": "homes.size", **LEVELS},
        "of_block": {"column": "blocks.n", **LEVELS},
        "n": {"column": "n", **LEVELS},
        "people": {"column": "people.number", **ODD},
        "homes_there": {"column": "home.number", **ODD},
        "constant": {"rules": [{"level": "one", "where": {}}]},
    }
    computed: dict[tuple[str, str], Computed] = {("homes", "size"): number_of("people", "home")}
    if three:
        computed["blocks", "n"] = told_by("homes", "block", "size")
    made = {"records": 2, "charged": draw(st.booleans())}
    if draw(st.booleans()):
        made["columns"] = ["size"]
    to_home: dict[str, Any] = {"column": "home", "table": "homes", "key": "id"}
    to_block: dict[str, Any] = {"column": "block", "table": "blocks", "key": "id"}
    for step in (to_home, to_block):
        most = draw(st.sampled_from((3, 2, 1, None)))
        step |= {} if most is None else {"records_per_row": most}
    behind = [to_block] if three else []
    of_homes = ["size", *(["of_block"] if three and draw(st.booleans()) else [])]
    universes: dict[str, dict[str, Any]] = {
        "dwellings": {
            "table": "homes",
            "attributes": of_homes,
            "through": behind,
            "computed_from": {"people": made},
        }
    }
    if three:
        universes["places"] = {
            "table": "blocks",
            "attributes": ["n"],
            "computed_from": {"homes": {"records": 2}},
        }
    told = draw(st.lists(st.sampled_from(["size_of_home", *(["of_block"] if three else [])])))
    universes["persons"] = {
        "table": "people",
        "attributes": list(dict.fromkeys(told)) or ["constant"],
        "through": [to_home, *behind],
    }
    if draw(st.booleans()):
        universes["dwellings"]["occupants"] = {
            "people": {"table": "people", "column": "home", "key": "id"}
        }
        universes["dwellings"]["attributes"].append("people")
    if three and draw(st.booleans()):
        where = {"where": {"size": ["a"]}} if draw(st.booleans()) else {}
        occupant = {"table": "homes", "column": "block", "key": "id", **where}
        universes["places"]["occupants"] = {"home": occupant}
        universes["places"]["attributes"].append("homes_there")
    if draw(st.booleans()):
        computed["homes", "rooms"] = rooms_of
        counted = {"count": "rooms", "largest_count": 2}
        universes["dwellings"] |= counted
        # Two dwellings of two records each.
        made |= {"records": 4}
        made |= {"columns": ["size", "rooms"]} if "columns" in made else {}
        universes["rooms"] = {"table": "homes", "attributes": ["constant"], "through": behind}
        universes["rooms"] |= counted
    contributions, persons = {}, ()
    if draw(st.booleans()):
        columns["cars"] = {"home": IDS}
        attributes["cars"] = {"column": "cars.number", **ODD}
        cars = {"table": "cars", "column": "home", "key": "id"}
        universes["dwellings"].setdefault("occupants", {})["cars"] = cars
        universes["dwellings"]["attributes"].append("cars")
        if draw(st.booleans()):
            contributions = {"people": {"person": "id", "records_per_person": 2}}
            persons = ("cars",)
    used = {name for own in universes.values() for name in own["attributes"]}
    return Country(
        universes,
        {name: own for name, own in attributes.items() if name in used},
        columns,
        computed,
        contributions,
        persons=persons,
    )
