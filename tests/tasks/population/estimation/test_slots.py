"""Slots of types: whoever fills them makes nearly the type; and what members tell of households."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.population.estimation.start import slots
from spineflow.tasks.population.workload.household_types import (
    AGES_OF_RELATIONSHIP,
    ALONE,
    BAND_STARTS,
    DERIVED,
    ELDERLY,
    GROWN,
    HOUSEHOLDER,
    HOUSEHOLDERS,
    N_BANDS,
    N_MEMBERS,
    TYPE,
    derived_levels,
    derived_type,
    distances,
    fit_to_places,
    household_types,
    parts_of_types,
    places_of,
    type_of_label,
    types,
)

from tests.tasks.population.declared_levels import household_levels


@settings(max_examples=70, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whoever_fills_the_slots_of_a_type_makes_its_size_couple_and_children(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind, elderly = int(rng.integers(len(household_types()))), int(rng.integers(4))
    own = slots().of_type[kind, elderly]
    own = own[own >= 0]
    parts = {name: part[kind] for name, part in parts_of_types().items()}
    members = np.zeros(N_MEMBERS, dtype=np.int16)
    for slot in own:
        at = rng.choice(np.flatnonzero(np.isfinite(slots().cost[:, slot])))
        role, band = divmod(int(slots().nearest[at, slot]), N_BANDS)
        is_head = role in HOUSEHOLDERS
        role, band = (HOUSEHOLDER, max(band, GROWN)) if is_head else (role, band)
        members[role * N_BANDS + band] += 1
    found = derived_type(types(), members, len(own))[0]
    assert found >= 0
    made = {name: part[found] for name, part in parts_of_types().items()}
    for name in ("size", "couple", "own", "children"):
        assert made[name] == parts[name], (name, household_types()[kind])


def test_the_cost_of_a_slot_is_that_of_its_nearest_place() -> None:
    own = slots()
    at, slot = np.nonzero(np.isfinite(own.cost))
    assert np.array_equal(own.cost[at, slot], distances()[at, own.nearest[at, slot]])
    assert (own.of_type[:, :, 0] >= 0).all() and own.n_needed.min() == 1


def test_ages_and_relationships_are_changed_as_little_as_places_need() -> None:
    """Of every place that somebody can have, to every relationship and age."""
    rng = np.random.default_rng(3)
    there = np.flatnonzero(np.isfinite(distances()).any(axis=0))
    n = 2000
    wished, code, age = rng.choice(there, n), rng.integers(20, 37, n), rng.integers(0, 116, n)
    relationship, made = fit_to_places(code, age, wished)
    first, last = np.array([AGES_OF_RELATIONSHIP[int(own)] for own in relationship]).T
    assert ((first <= made) & (made <= last)).all()
    is_alone = wished >= ALONE * N_BANDS
    assert np.array_equal(places_of(relationship, made, is_alone), wished)
    low = np.array(BAND_STARTS)[wished % N_BANDS]
    high = np.append(BAND_STARTS[1:], 116)[wished % N_BANDS] - 1
    role = places_of(code, np.full(n, 40), is_alone & (code == 20)) // N_BANDS
    first, last = np.array([AGES_OF_RELATIONSHIP[int(own)] for own in code]).T
    stays = (role == wished // N_BANDS) & (low <= age) & (age <= high)
    stays &= (first <= age) & (age <= last)
    assert stays.any()
    assert np.array_equal(relationship[stays], code[stays])
    assert np.array_equal(made[stays], age[stays])
    with pytest.raises(ValueError, match="no relationship at its ages"):
        fit_to_places(np.array([20]), np.array([3]), np.array([HOUSEHOLDER * N_BANDS]))


def test_labels_tell_types() -> None:
    told = type_of_label(
        "cohabiting same; no relatives; own none; children 6 to 17; minors; size 7+"
    )
    assert (told.couple, told.relatives, told.children, told.size) == (3, 0, 2, 7)
    with pytest.raises(ValueError, match="has no size"):
        type_of_label("no couple; relatives; own none; children none; no minors")


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
