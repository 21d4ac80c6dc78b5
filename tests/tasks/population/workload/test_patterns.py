"""Patterns: whatever fills them, members tell the type that they are of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.population.estimation.fallback import simple_households
from spineflow.tasks.population.estimation.placing import Persons
from spineflow.tasks.population.workload.household_types import (
    ELDERLY,
    FIRST_AGES,
    HEAD_BANDS,
    TYPE,
    household_types,
    possible,
    type_of_label,
)
from spineflow.tasks.population.workload.levels import (
    DERIVED,
    N_MEMBERS,
    are_possible,
    derived_levels,
    derived_type,
    types,
)
from spineflow.tasks.population.workload.patterns import book
from spineflow.tasks.population.workload.places import (
    ALONE,
    HOUSEHOLDERS,
    N_BANDS,
    OLDEST,
    fitted,
    places_of,
)

from tests.tasks.population.declared_levels import household_levels

MALE = 1


def filled(rng: np.random.Generator, pattern: int, further: int) -> tuple[Members, int]:
    """A household after a pattern with anybody in its slots, and the householder's sex."""
    patterns = book()
    slots = np.repeat(
        np.arange(patterns.slots.shape[1]), patterns.slots[[pattern]].toarray()[0].astype(int)
    )
    slots = np.append(slots, [patterns.open_slot[pattern]] * further).astype(int)
    place = np.array([rng.choice(np.flatnonzero(mask)) for mask in book().masks[slots]])
    role = place // N_BANDS
    is_head = np.isin(role, HOUSEHOLDERS)
    sexes_there = np.flatnonzero(patterns.first[:, pattern] <= patterns.last[:, pattern])
    sex = MALE + int(rng.choice(sexes_there))
    other = np.isin(role, [1, 3])
    sexes = np.where(is_head, sex, np.where(other, 3 - sex, rng.integers(1, 3, len(role))))
    sexes = np.where(np.isin(role, [2, 4]), sex, sexes)
    ends = patterns.first[sex - MALE, pattern], patterns.last[sex - MALE, pattern]
    first = np.where(is_head, FIRST_AGES[ends[0]], 0)
    last = np.where(is_head, [*FIRST_AGES[1:], OLDEST + 1][ends[1]] - 1, OLDEST)
    relationship, age = fitted(
        rng.integers(20, 37, len(role)),
        rng.integers(0, 116, len(role)),
        place,
        first,
        last,
        np.zeros((len(role), 116)),
        np.zeros((7, 17)),
    )
    none = np.ones(len(role), dtype=int)
    unit = np.zeros(len(role), dtype=int)
    return Members(unit, relationship, age, sexes, none, none), sex


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whoever_fills_a_pattern_makes_its_type(seed: int) -> None:
    rng = np.random.default_rng(seed)
    patterns = book()
    pattern = int(rng.choice(np.flatnonzero((patterns.first <= patterns.last).any(axis=0))))
    further = int(rng.integers(3)) if patterns.open_slot[pattern] >= 0 else 0
    members, sex = filled(rng, pattern, further)
    assert (members.relationship == 20).sum() == 1
    found = household_levels(members, 1)
    assert are_possible(found).all()
    assert found[[0, 4, 5], 0].tolist() == [
        sex - MALE,
        patterns.outcomes.elderly[patterns.outcome[pattern]],
        patterns.kind[pattern],
    ]


def test_every_type_has_a_pattern_at_some_age() -> None:
    assert set(book().kind.tolist()) == set(range(len(household_types())))


def test_what_has_no_pattern_cannot_be() -> None:
    """A minor who is no child, partner or householder; an oldest member where all are children."""
    n_without = 0
    for age in range(len(FIRST_AGES)):
        patterns = book()
        own = ((patterns.first <= age) & (age <= patterns.last)).any(axis=0)
        elderly = patterns.outcomes.elderly[patterns.outcome[own]]
        there = {*zip(elderly.tolist(), patterns.kind[own].tolist(), strict=True)}
        for elderly, kind in np.argwhere(possible()[:, age].any(axis=0)):
            if (int(elderly), int(kind)) in there:
                continue
            told = household_types()[kind]
            is_lone_minor = told.has_minors and not told.children and not told.is_couple and age > 0
            is_older = elderly > HEAD_BANDS[age] - 3
            n_others = told.size - 1 - told.is_couple - len(told.children)
            assert is_lone_minor or (is_older and n_others <= 0), (age, elderly, told)
            n_without += 1
    assert n_without == 426


def test_labels_tell_types() -> None:
    told = type_of_label(
        "cohabiting same; no relatives; own none; children 6 to 17; minors; size 7+"
    )
    assert (told.couple, told.has_relatives, told.children, told.size) == (3, False, (1,), 7)
    with pytest.raises(ValueError, match="tells no size"):
        type_of_label("no couple; relatives; own none; children none; no minors")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 115), st.integers(20, 36)), min_size=1, max_size=40),
    st.integers(1, 40),
)
def test_simple_households_are_always_possible(people: list[tuple[int, int]], units: int) -> None:
    age, relationship = np.array(people).T
    n = len(age)
    none = np.ones(n, dtype=int)
    persons = Persons(relationship, 1 + np.arange(n) % 2, age, none, none, none - 1, none == 0)
    if units > n:
        with pytest.raises(ValueError, match="cannot live"):
            simple_households(persons, units)
        return
    members = simple_households(persons, units)
    assert are_possible(household_levels(members, units)).all()
    assert np.array_equal(members.age >= 18, age >= 18)
    assert np.bincount(members.unit[members.relationship == 20]).tolist() == [1] * units


def random_members(rng: np.random.Generator, n_units: int) -> Members:
    """Households of one householder, some with a spouse or partner, and others of any kind."""
    size = rng.integers(1, 10, n_units)
    unit = np.repeat(np.arange(n_units), size)
    n = len(unit)
    relationship = rng.choice([25, 28, 30, 33, 34, 36], n)
    first = np.append(0, np.cumsum(size)[:-1])
    relationship[first] = 20
    couples = first[(size > 1) & (rng.random(n_units) < 0.5)] + 1
    relationship[couples] = rng.integers(21, 25, len(couples))
    age = np.where(relationship <= 24, rng.integers(15, 95, n), rng.integers(0, 95, n))
    sex = rng.integers(1, 3, n)
    opposite = couples[relationship[couples] <= 22]
    same = couples[relationship[couples] > 22]
    sex[opposite], sex[same] = 3 - sex[opposite - 1], sex[same - 1]
    return Members(unit, relationship, age, sex, np.ones(n, dtype=int), np.ones(n, dtype=int))


def test_members_by_place_tell_what_the_recodes_tell() -> None:
    members = random_members(np.random.default_rng(5), 3000)
    size = np.bincount(members.unit)
    place = places_of(members.relationship, members.age, np.zeros(len(members.age), dtype=bool))
    counts = np.zeros((3000, N_MEMBERS), dtype=np.int16)
    np.add.at(counts, (members.unit, place), 1)
    found = np.array([derived_type(types(), own, n) for own, n in zip(counts, size, strict=True)])
    levels = household_levels(members, 3000)
    kind, elderly = levels[DERIVED.index(TYPE)], levels[DERIVED.index(ELDERLY)]
    assert np.array_equal(found[:, 0], kind)
    assert np.array_equal(found[kind >= 0, 1], elderly[kind >= 0])
    assert len(np.unique(kind)) > 150
    assert np.array_equal(derived_levels(members, 3000)[:, kind >= 0], levels[:, kind >= 0])
    assert np.array_equal(derived_levels(members, 3000)[DERIVED.index(TYPE)], kind)


def test_two_partners_make_no_type() -> None:
    members = np.zeros(N_MEMBERS, dtype=np.int16)
    members[[4, N_BANDS + 4]] = 1, 2
    assert N_MEMBERS == ALONE * N_BANDS
    assert derived_type(types(), members, 3)[0] == -1
