"""Swapping: exact rates, unchanged multisets and profiles, and who is aimed at."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.counting import People
from spineflow.tasks.evidence.methods.swapping import (
    american_pairs,
    european_pairs,
    households_of,
    swapped_people,
)

N_AREAS = 80
LEVELS = [np.arange(N_AREAS) // 20, np.arange(N_AREAS) // 4]


def _people(n_households=10_000, seed=1):
    draws = np.random.default_rng(seed)
    size = draws.integers(1, 5, n_households)
    household = np.repeat(np.arange(n_households), size)
    area = draws.integers(0, N_AREAS, n_households)[household]
    return People(area, draws.integers(0, 12, len(household)), household)


@pytest.mark.parametrize("rate", [0.05, 0.10, 0.25])
@pytest.mark.parametrize("n_households", [10_000, 20_000])
def test_the_european_rate_is_exact_where_nobody_is_at_risk(rate, n_households):
    people = _people(n_households)
    pairs = _european(people, rate, 1)
    assert pairs.size == rate * n_households
    assert len(np.unique(pairs)) == pairs.size


def test_all_households_at_risk_are_swapped_across_the_areas_of_that_level():
    people = _people()
    cell = people.cell.copy()
    # Two persons of a kind that nobody else is: at risk in every area.
    cell[[10, 20_000]] = 12, 13
    rare = People(people.area, cell, people.household)
    pairs = _european(rare, 0.02, 3)
    at_risk = rare.household[[10, 20_000]]
    assert set(at_risk) <= set(pairs.ravel().tolist())
    place = np.zeros(rare.n_households, dtype=int)
    place[rare.household] = rare.area
    for household in at_risk:
        pair = pairs[(pairs == household).any(axis=1)][0]
        assert len(set(LEVELS[0][place[pair]])) == 2


def test_only_places_change_and_what_partners_agree_on_stays_in_every_area():
    people = _people()
    adult = people.cell >= 6
    households = households_of(people, people.cell, 12, [adult])
    pairs = american_pairs(households, LEVELS, 0.1, np.random.default_rng(5))
    swapped = swapped_people(people, pairs)
    assert (swapped.cell == people.cell).all()
    assert (swapped.household == people.household).all()
    for mask in (np.ones(len(people), dtype=bool), adult):
        before, after = (
            np.bincount(own.area[mask], minlength=N_AREAS) for own in (people, swapped)
        )
        assert (before == after).all()
    moved = np.unique(people.household[people.area != swapped.area])
    assert len(moved) > 0.09 * people.n_households
    before, after = (
        np.bincount(own.area * 12 + own.cell, minlength=12 * N_AREAS) for own in (people, swapped)
    )
    assert (before != after).any()


@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_american_pairs_agree_lie_apart_and_meet_the_rate(rate):
    people = _people()
    households = households_of(people, people.cell, 12, [people.cell >= 6])
    pairs = american_pairs(households, LEVELS, rate, np.random.default_rng(6))
    assert pairs.size == rate * len(households)
    assert len(np.unique(pairs)) == pairs.size
    first, second = pairs.T
    assert (households.alike[first] == households.alike[second]).all()
    assert (LEVELS[1][households.area[first]] != LEVELS[1][households.area[second]]).all()


def _european(people, rate, smallest):
    households = households_of(people, people.cell, int(people.cell.max()) + 1)
    return european_pairs(
        households,
        LEVELS,
        people.household,
        people.cell,
        rate,
        smallest,
        np.random.default_rng(3),
    )
