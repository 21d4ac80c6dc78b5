"""What earlier blocks have changed, as prices of the blocks that come."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.population.estimation.drift import (
    Drift,
    detail_and_level,
    relationship_and_band,
    sex_and_level,
)
from spineflow.tasks.population.workload.places import (
    GROWN,
    NONRELATIVE,
    OWN_CHILD,
    TEENAGER,
    fitted,
    place,
)
from spineflow.tasks.population.workload.tables import details

AREAS = ("44", "44001", "44001000100", "440010001001")


@pytest.fixture
def drift() -> Drift:
    found = Drift()
    found.enter(AREAS)
    return found


def test_a_role_that_was_taken_in_a_band_costs_more_there_and_nowhere_else(drift: Drift) -> None:
    was, now = place(NONRELATIVE, GROWN), place(OWN_CHILD, GROWN)
    older = place(NONRELATIVE, GROWN + 1), place(OWN_CHILD, GROWN + 1)
    before = drift.distances()
    drift.add("place", np.full(3, was), np.full(3, now))
    after = drift.distances()
    assert after[was, now] > before[was, now]
    assert after[now, was] < before[now, was]
    assert after[older] == before[older]
    assert np.array_equal(np.diag(after), np.diag(before))


def test_who_takes_a_role_takes_the_relationship_that_lost_most_of_the_band(drift: Drift) -> None:
    roommate, other = 34, 36
    drift.add(
        "member",
        relationship_and_band(np.full(3, other), np.full(3, 16)),
        relationship_and_band(np.full(3, roommate), np.full(3, 16)),
    )
    age = np.array([16, 30])
    made = fitted(
        np.array([25, 25]),
        age,
        np.array([place(NONRELATIVE, TEENAGER), place(NONRELATIVE, GROWN)]),
        np.zeros(2, dtype=int),
        np.full(2, 115),
        worth_of_relationship=drift.of_members(),
    )
    assert made.relationship.tolist() == [other, roommate]
    assert np.array_equal(made.age, age)


def test_ages_of_householders_are_made_up_for_by_tenure(drift: Drift) -> None:
    sex, is_rented = np.zeros(2, dtype=int), np.array([True, True])
    drift.add("head", *(sex_and_level(sex, is_rented, np.full(2, level)) for level in (1, 4)))
    rented, owned = drift.of_heads(np.array([0, 0]), np.array([True, False]))
    assert (rented[:, 1] < 0).all()
    assert (rented[:, 4] > 0).all()
    assert not owned.any()


def test_ages_of_householders_are_made_up_for_by_type(drift: Drift) -> None:
    one, rents = np.zeros(1, dtype=int), np.zeros(1, dtype=bool)
    kinds = (np.array([3]), np.array([7]))
    kind_of = details()
    assert kind_of[3] != kind_of[7]
    drift.add("household", *(detail_and_level(one, rents, kind, 2 * one + 4) for kind in kinds))
    (of_heads,) = drift.of_heads(one, rents)
    assert of_heads[kind_of[3], 4] < 0 < of_heads[kind_of[7], 4]
    assert not of_heads[:, :4].any()


def test_another_county_begins_anew(drift: Drift) -> None:
    drift.add("place", np.array([place(NONRELATIVE, GROWN)]), np.array([place(OWN_CHILD, GROWN)]))
    of_both = drift.of("place")
    drift.enter(("44", "44003", "44003000100", "440030001001"))
    of_state = drift.of("place")
    assert 0 < abs(of_state).sum() < abs(of_both).sum()
