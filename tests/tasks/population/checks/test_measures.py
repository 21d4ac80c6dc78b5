"""Measures of how far persons and households agree, counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.population.checks.accuracy import GEOLEVELS, Ratio, measure_areas
from spineflow.tasks.population.ingest.released import PersonsAndHouseholds
from spineflow.tasks.population.workload import household_types, person_levels

A, B, C = "3500100000110000", "3500100000110001", "3500100000120000"
"""Two blocks of a block group, and one of another group of the tract."""

LONE = "no couple; no relatives; own none; children none; no minors; size 1"
COUPLE = "married opposite; relatives; own none; children none; no minors; size 2"
FAMILY = "married opposite; relatives; own under 6; children under 6; minors; size 3"
LARGE = "no couple; relatives; own none; children none; no minors; size 7+"

Person = tuple[str, str, str, str, str, str]
Household = tuple[str, str, str, str, str, str, str, str]


def levels(schema: Schema, rows: Sequence[Sequence[str]]) -> np.ndarray:
    """Levels of labels."""
    found = [
        [schema.labels(name).index(row[at]) for row in rows]
        for at, name in enumerate(schema.attributes)
    ]
    return np.array(found, dtype=np.int64)


def records(persons: Sequence[Person], households: Sequence[Household]) -> PersonsAndHouseholds:
    """Records of the block and the labels of each."""
    blocks = np.array([A, B, C])
    return PersonsAndHouseholds(
        blocks,
        np.searchsorted(blocks, [row[0] for row in persons]),
        levels(person_levels.universe().schema, [row[1:] for row in persons]),
        np.searchsorted(blocks, [row[0] for row in households]),
        levels(household_types.universe().schema, [row[1:] for row in households]),
    )


def person(block: str, kind: str, age: int, sex: str = "male", race: str = "white") -> Person:
    return block, kind, sex, str(age), "not Hispanic", race


def household(
    block: str,
    kind: str,
    hhage: str = "35-44",
    elderly: str = "no one 60 and over",
    race: str = "white",
    sex: str = "male",
) -> Household:
    return block, sex, hhage, "not Hispanic", race, elderly, "rented or without payment", kind


FITTING = (
    [
        person(A, "householder not alone", 40),
        person(A, "opposite-sex spouse", 38, "female"),
        person(A, "biological child", 3, "female"),
        person(B, "householder alone", 70, race="white + black"),
        person(C, "GQ 101", 30),
    ],
    [
        household(A, FAMILY),
        household(B, LONE, "65-74", "someone 65 to 74", "two or more races"),
    ],
)


def shares(found: PersonsAndHouseholds, digits: int = 16) -> dict[str, Ratio]:
    """The ratio of each measure, by its number; of the last, with its first word."""
    measured = {tuple(one.split(": ")): own for one, own in measure_areas(found, digits).items()}
    return {
        number if number != "M9" else f"{number} {words.split()[0]}": ratio
        for (number, words), ratio in measured.items()
    }


@pytest.mark.parametrize("digits", GEOLEVELS.values())
def test_nothing_differs_where_persons_and_households_fit(digits: int) -> None:
    found = shares(records(*FITTING), digits)
    n = 2 if digits == 16 else 1
    for name in ("M1", "M4"):
        assert found[name] == Ratio(0, n)
    for name in ("M2", "M3", "M5", "M6", "M7"):
        assert found[name] == Ratio(n, n), name
    # Nobody of group quarters is counted.
    assert found["M9 gross"] == found["M9 net"] == Ratio(0, 4)


def test_homes_without_persons_and_persons_without_homes_are_counted() -> None:
    found = shares(
        records(
            [person(A, "householder alone", 40), person(B, "GQ 101", 30)],
            [household(B, LONE), household(C, LONE)],
        )
    )
    assert found["M1"] == Ratio(3, 3)
    # In the tract and the block group of the first two, all that differs by block is summed.
    group = shares(
        records([person(A, "householder alone", 40)], [household(B, LONE), household(C, LONE)]), 12
    )
    assert group["M1"] == Ratio(1, 2)
    assert group["M5"] == Ratio(1, 2)


def test_sizes_are_compared_with_persons_and_the_open_one_has_no_end() -> None:
    people = [
        *[person(A, "sibling", 30) for _ in range(8)],
        person(A, "householder not alone", 40),
        person(B, "householder not alone", 40),
        person(B, "opposite-sex spouse", 40, "female"),
        person(B, "sibling", 40),
    ]
    found = shares(records(people, [household(A, LARGE), household(B, COUPLE)]))
    assert found["M2"] == Ratio(0, 2)
    assert found["M3"] == Ratio(1, 2)
    # Nine for seven, and three for two.
    assert found["M9 gross"] == Ratio(3, 12) and found["M9 net"] == Ratio(3, 12)
    few = shares(records(people[6:], [household(A, LARGE), household(B, COUPLE)]))
    assert few["M3"] == Ratio(0, 2)
    # Three for seven, and three for two.
    assert few["M9 gross"] == Ratio(5, 6) and few["M9 net"] == Ratio(-3, 6)
    assert shares(records(people[6:], [household(A, LARGE), household(B, COUPLE)]), 12)[
        "M9 gross"
    ] == Ratio(3, 6)


def test_householders_of_a_race_that_nobody_is_of_are_counted() -> None:
    people, homes = FITTING
    homes = [household(A, FAMILY, race="black"), *homes[1:]]
    found = shares(records(people, homes))
    assert found["M4"] == Ratio(1, 2)
    # Householders are as many, of another race.
    assert found["M5"] == Ratio(1, 2)
    # Whoever lives in group quarters is no member of a household.
    further = [*people, person(A, "GQ 101", 30, race="black")]
    assert shares(records(further, homes))["M4"] == Ratio(1, 2)


@pytest.mark.parametrize(
    "of_b",
    [
        household(B, LONE, "75-84", "someone 75 and over", "two or more races"),
        household(B, LONE, "65-74", "someone 65 to 74", "two or more races", "female"),
        household(B, COUPLE, "65-74", "someone 65 to 74", "two or more races"),
    ],
    ids=["age", "sex", "alone or not"],
)
def test_householders_must_be_those_of_households(of_b: Household) -> None:
    assert shares(records(FITTING[0], [FITTING[1][0], of_b]))["M5"] == Ratio(1, 2)


@pytest.mark.parametrize(
    ("kind", "sex", "n"),
    [
        ("opposite-sex spouse", "female", 2),
        ("opposite-sex spouse", "male", 1),
        ("same-sex spouse", "male", 1),
        ("opposite-sex unmarried partner", "female", 1),
        ("sibling", "female", 1),
    ],
)
def test_spouses_must_be_of_the_kind_and_sex_of_their_couples(kind: str, sex: str, n: int) -> None:
    people, homes = FITTING
    people = [people[0], person(A, kind, 38, sex), *people[2:]]
    assert shares(records(people, homes))["M6"] == Ratio(n, 2)


@pytest.mark.parametrize(
    "third",
    [
        person(A, "biological child", 7),
        person(A, "sibling", 30),
        person(A, "roommate", 62),
    ],
    ids=["an older child", "no minor", "an old person"],
)
def test_members_must_be_those_of_households(third: Person) -> None:
    people, homes = FITTING
    found = shares(records([*people[:2], third, *people[3:]], homes))
    assert found["M7"] == Ratio(1, 2)


def test_persons_are_linked_to_occupied_units_of_their_block() -> None:
    apart = records(*FITTING)
    assert "M8" not in shares(apart)
    whole = replace(apart, person_unit=np.array([1, 1, 1, 2, -1]), unit=np.array([1, 2]))
    assert shares(whole)["M8"] == Ratio(2, 2)
    for wrong in ([1, 1, 2, 2, -1], [1, 1, -1, 2, -1], [1, 1, 7, 2, -1]):
        found = replace(whole, person_unit=np.array(wrong))
        assert shares(found)["M8"] == Ratio(1, 2)
        # A larger area does not make a link within it good.
        assert shares(found, 11)["M8"] == Ratio(0, 1)
