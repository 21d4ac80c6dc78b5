"""How far one person, with two records of units, moves the counts: every neighbour of small ones.

A census here is a set of persons' records and a set of units' records that refer to each other by
an identifier. Neighbours are made by brute force: each record that a person could have is added or
removed, together with any two records of units that come or go.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from spineflow.tasks.census.households import Members
from spineflow.tasks.supplemental_dhc.ingest import (
    Households,
    count_people,
    key_hashes,
    truncate_members,
)
from spineflow.tasks.supplemental_dhc.plan import COLUMNS, MEASURES, TRUNCATION, stability_of

TAU = 2


class Person(NamedTuple):
    unit: str
    relationship: int
    age: int
    hispanic: int
    race: int


class Unit(NamedTuple):
    key: str
    tenure: int
    kind: int
    detailed_kind: int
    couple: int
    race: int
    hispanic: int


def counted(persons: tuple[Person, ...], units: tuple[Unit, ...]) -> np.ndarray:
    """The counts of one area; persons without a unit are not joined."""
    keys = [unit.key for unit in units]
    own = [person for person in persons if person.unit in keys]
    columns = np.array([unit[1:] for unit in units], dtype=np.int64).reshape(-1, 6).T
    households = Households(*columns, key_hashes(keys))
    told = np.array([person[1:] for person in own], dtype=np.int64).reshape(-1, 4).T
    relationship, age, hispanic, race = told
    members = Members(
        np.array([keys.index(person.unit) for person in own], dtype=np.int64),
        relationship,
        age,
        np.ones(len(own), dtype=np.int64),
        hispanic,
        race,
    )
    area = np.zeros(len(units), dtype=np.int64)
    taus = dict.fromkeys(TRUNCATION, TAU)
    return count_people(households, members, area, taus, 1).toarray()[0]


UNITS = [
    Unit(key, *own)
    for key in ("a", "b", "c")
    for own in (
        (1, 1, 1, 1, 1, 1),
        (3, 3, 6, 5, 8, 2),
    )
]
"""Records that a unit could have: a married couple with children, a woman with children."""
PERSONS = [
    Person(key, *own)
    for key in ("a", "b")
    for own in ((20, 40, 1, 1), (25, 3, 2, 8), (30, 12, 1, 2))
]
"""Records that a person could have: householder, own child, grandchild."""

CENSUSES = {
    "full households": (
        tuple(Person(key, 25, age, 1, 1) for key in ("a", "b", "c") for age in (2, 5, 9)),
        (UNITS[0], UNITS[2], UNITS[4]),
    ),
    "small ones": ((Person("a", 20, 40, 1, 1), Person("b", 25, 3, 2, 8)), (UNITS[0], UNITS[3])),
    "crowded": (
        tuple(
            Person("a", relationship, 7, 1 + relationship % 2, 1 + relationship % 9)
            for relationship in range(25, 34)
        ),
        (UNITS[0],),
    ),
    "nobody": ((), ()),
}


def neighbours_of_persons(persons: tuple[Person, ...]) -> Iterator[tuple[Person, ...]]:
    yield persons
    for person in dict.fromkeys(persons):
        left = list(persons)
        left.remove(person)
        yield tuple(left)
    for person in PERSONS:
        yield (*persons, person)


def neighbours_of_units(units: tuple[Unit, ...]) -> Iterator[tuple[Unit, ...]]:
    """Up to two records of units come or go; no identifier stands twice."""
    changes = [*units, *(unit for unit in UNITS if unit not in units)]
    yield units
    for number in (1, 2):
        for some in combinations(changes, number):
            left = [unit for unit in units if unit not in some]
            found = (*left, *(unit for unit in some if unit not in units))
            if len({unit.key for unit in found}) == len(found):
                yield found


@pytest.mark.parametrize("name", CENSUSES)
def test_no_neighbour_moves_counts_by_more_than_their_stability(name: str) -> None:
    persons, units = CENSUSES[name]
    before = counted(persons, units)
    largest = dict.fromkeys(MEASURES, 0)
    for own_units in neighbours_of_units(units):
        for own_persons in neighbours_of_persons(persons):
            moved = np.abs(counted(own_persons, own_units) - before)
            for measure, one in MEASURES.items():
                for key in one.iterations:
                    by = int(moved[COLUMNS[measure, key]].sum())
                    assert by <= stability_of(one, TAU), (measure, key, own_persons, own_units)
                    largest[measure] = max(largest[measure], by)
    if name == "full households":
        assert largest["PH1_num"] >= 2 * TAU
        assert largest["PH1_denom"] == largest["PH5_denom"] == largest["PH8_denom"] == 2


def test_the_bound_is_reached() -> None:
    """Two units go with tau rows each, and a person who goes lets another in: 2 tau + 2."""
    children = [Person(key, 25, age, 1, 1) for key in ("a", "b", "c") for age in (2, 5, 9, 13)]
    persons, units = tuple(children), (UNITS[0], UNITS[2], UNITS[5])
    before = counted(persons, units)
    moved = []
    for person in children[8:]:
        left = tuple(own for own in persons if own != person)
        change = np.abs(counted(left, units[2:]) - before)
        moved.append(change[COLUMNS["PH6", "*"]].sum())
    assert max(moved) == 2 * TAU + 2


def test_who_else_is_there_changes_no_ones_order() -> None:
    """Of those who stay of a larger household, one at most gives way to a new member."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = int(rng.integers(1, 9))
        unit = rng.integers(0, 3, n)
        order = rng.integers(0, 2**63, n).astype(np.uint64)
        tau = int(rng.integers(1, 4))
        whole = truncate_members(unit, order, tau)
        without = truncate_members(unit[:-1], order[:-1], tau)
        assert (whole[:-1] & ~without).sum() == 0
        assert (without & ~whole[:-1]).sum() <= whole[-1]
        assert all(whole[unit == u].sum() == min(tau, (unit == u).sum()) for u in range(3))


def test_a_household_that_sorts_otherwise_keeps_the_same_members() -> None:
    """Rows may stand in any order, and units too."""
    persons, units = CENSUSES["crowded"]
    first = counted(persons, units)
    assert (counted(persons[::-1], units) == first).all()
    more = (UNITS[2], *units)
    again = counted(persons, more)
    assert (again[COLUMNS["PH2", "*"]] == first[COLUMNS["PH2", "*"]]).all()
