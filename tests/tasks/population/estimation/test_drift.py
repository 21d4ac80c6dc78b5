"""What earlier blocks have changed, as prices of the blocks that come."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.population.estimation.drift import (
    Drift,
    kinds_of_households,
    kinds_of_persons,
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
    drift.add({"place": np.full(3, was)}, {"place": np.full(3, now)})
    after = drift.distances()
    assert after[was, now] > before[was, now]
    assert after[now, was] < before[now, was]
    assert after[older] == before[older]
    assert np.array_equal(np.diag(after), np.diag(before))


def persons(relationship: int, age: int) -> dict[str, np.ndarray]:
    """The kinds of three women of a relationship and an age."""
    none = np.zeros(3, dtype=int)
    return kinds_of_persons(none + relationship, none + 2, none + age, none + 1, none == 1)


def households(kind: int, level: int, is_rented: bool) -> dict[str, np.ndarray]:
    """The kinds of a household of a man of some level of ages."""
    none = np.zeros(1, dtype=int)
    return kinds_of_households(none, none + level, none, none, none + kind, none == is_rented - 1)


def test_who_takes_a_role_takes_the_relationship_that_lost_most_of_the_band(drift: Drift) -> None:
    roommate, other = 34, 36
    # As many of another age were changed the other way round.
    drift.add(persons(other, 16), persons(roommate, 16))
    drift.add(persons(roommate, 40), persons(other, 40))
    age = np.array([16, 40])
    relationship, made_age = fitted(
        np.array([25, 25]),
        age,
        np.array([place(NONRELATIVE, TEENAGER), place(NONRELATIVE, GROWN)]),
        np.zeros(2, dtype=int),
        np.full(2, 115),
        np.zeros((2, 116)),
        drift.of_members(),
    )
    assert relationship.tolist() == [other, roommate]
    assert np.array_equal(made_age, age)


def test_ages_of_householders_are_made_up_for_by_tenure_and_type(drift: Drift) -> None:
    kind, another = 3, np.flatnonzero(details() != details()[3])[0]
    drift.add(households(kind, 1, True), households(kind, 4, True))
    rented, owned = drift.of_heads(np.zeros(2, dtype=int), np.array([True, False]))
    own, other = details()[[kind, another]]
    assert rented[own, 1] < rented[other, 1] < 0 < rented[other, 4] < rented[own, 4]
    assert not owned.any()


def test_another_county_begins_anew(drift: Drift) -> None:
    was, now = (np.array([place(role, GROWN)]) for role in (NONRELATIVE, OWN_CHILD))
    drift.add({"place": was}, {"place": now})
    of_both = drift.of("place")
    drift.enter(("44", "44003", "44003000100", "440030001001"))
    of_state = drift.of("place")
    assert 0 < abs(of_state).sum() < abs(of_both).sum()


def test_larger_households_are_drawn_to_a_share_of_those_of_seven_or_more(drift: Drift) -> None:
    assert drift.of_larger() == 0.0
    drift.add_larger(n_open=1, is_larger=False)
    assert drift.of_larger() < 0.0
    drift.add_larger(n_open=1, is_larger=True)
    assert drift.of_larger() > 0.0
    drift.add_larger(n_open=0, is_larger=False)
    # Of twenty blocks with one of them each, nine are thought to have a larger one.
    for block in range(18):
        drift.add_larger(n_open=1, is_larger=block < 8)
    assert drift.of_larger() == pytest.approx(0.0, abs=1e-12)
    # One of two at least is thought to be larger in 1 - 0.55 * 0.55 of the blocks.
    for block in range(400):
        drift.add_larger(n_open=2, is_larger=block < 279)
    assert drift.of_larger() == pytest.approx(0.0, abs=1e-12)
