"""The type of a household by its members' places, in compiled loops and by the declared recodes."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.census.households import Members
from spineflow.tasks.population.workload.household_types import ELDERLY, TYPE
from spineflow.tasks.population.workload.levels import (
    DERIVED,
    N_MEMBERS,
    derived_levels,
    derived_type,
    types,
)
from spineflow.tasks.population.workload.places import ALONE, N_BANDS, places_of

from tests.tasks.population.declared_levels import household_levels


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
