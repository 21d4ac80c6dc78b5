"""Compositions of tiny blocks, compared with every composition that there is."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from spineflow.tasks.population.estimation.composition import Households, nearest_composition
from spineflow.tasks.population.estimation.drift import Drift
from spineflow.tasks.population.workload.changes import outcome_costs
from spineflow.tasks.population.workload.household_types import (
    NO_COUPLE,
    household_types,
    possible,
)
from spineflow.tasks.population.workload.patterns import book
from spineflow.tasks.population.workload.places import (
    GROWN,
    N_PLACES,
    NONRELATIVE,
    ROLES,
    distances,
    place,
)

NEVER = 1e6


def households(rng: np.random.Generator, n: int) -> Households:
    cells = np.argwhere(possible())
    sex, age, elderly, kind = cells[rng.integers(0, len(cells), n)].T
    return Households(sex, age, *np.zeros((2, n), int), elderly, np.zeros(n, int), kind)


@cache
def distinct_slots() -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of slots that patterns have, and the number of that of each."""
    slots, kind_of = np.unique(book().slots.toarray(), axis=0, return_inverse=True)
    return slots, kind_of.reshape(-1)


@cache
def fill_of(place_of_one: int) -> np.ndarray:
    """What it costs to fill each slot with somebody of a place, `NEVER` where nobody may."""
    allowed = np.where(book().masks, distances()[place_of_one], NEVER).min(axis=1)
    return np.minimum(allowed, NEVER)


def least_cost(own: Households, places: np.ndarray) -> float:
    """The least cost over all patterns of one or two households, by trying all of them."""
    patterns = book()
    n_types = len(household_types())
    nothing = np.zeros((len(own.kind), n_types))
    of_heads = Drift().of_heads(own.sex, own.tenure > 0)
    of_outcome = outcome_costs(own.sex, own.age, own.elderly, own.kind, nothing, of_heads)
    cost = of_outcome[:, patterns.outcome]
    fill = np.array([fill_of(int(one)) for one in places])
    # Patterns with the same slots differ in what they cost a household alone.
    slots, kind_of = distinct_slots()
    cheapest = [np.full(len(slots), np.inf) for _ in cost]
    for least, each in zip(cheapest, cost, strict=True):
        np.minimum.at(least, kind_of, each)
    size = slots.sum(axis=1)
    best = np.inf
    for sizes in product(range(1, len(places) + 1), repeat=len(cost)):
        if sum(sizes) != len(places):
            continue
        for chosen in product(*(np.flatnonzero(size == one) for one in sizes)):
            alone = sum(least[one] for least, one in zip(cheapest, chosen, strict=True))
            if alone >= best:
                continue
            counts = slots[list(chosen)].sum(axis=0).astype(int)
            matrix = fill[:, np.repeat(np.arange(len(counts)), counts)]
            rows, columns = linear_sum_assignment(matrix)
            best = min(best, float(alone + matrix[rows, columns].sum()))
    return best


@pytest.mark.parametrize(("n_households", "n_persons"), [(1, 1), (1, 3), (1, 4), (2, 2), (2, 3)])
def test_no_composition_of_a_tiny_block_costs_less(n_households: int, n_persons: int) -> None:
    rng = np.random.default_rng(10 * n_households + n_persons)
    there = [one for one in range(N_PLACES) if np.isfinite(distances()[:, one]).any()]
    for _ in range(4):
        own = households(rng, n_households)
        places = rng.choice(there, n_persons)
        if n_households > 1:
            # Somebody of each household is an adult, or else householders would be minors.
            places[:n_households] = place(8, 3)
        chosen = nearest_composition(own, np.bincount(places, minlength=N_PLACES), Drift())
        least = least_cost(own, places)
        assert chosen is not None or least >= NEVER
        if chosen is None:
            continue
        assert chosen.is_optimal
        assert chosen.cost == pytest.approx(least)


def nonfamilies(*sizes: int) -> list[int]:
    """Types of households of nonrelatives, adults all, of some sizes."""
    return [
        next(
            index
            for index, one in enumerate(household_types())
            if (one.size, one.couple, one.has_relatives, one.has_minors)
            == (size, NO_COUPLE, False, False)
        )
        for size in sizes
    ]


@pytest.mark.parametrize(("role_of_last", "further"), [("nonrelative", 2), ("other relative", 1)])
def test_members_beyond_seven_are_told_or_else_the_last_resort(
    role_of_last: str, further: int
) -> None:
    """A household of three nonrelatives and one of seven or more; two persons are left over. A
    relative finds room in neither as they are released: one of them becomes one with relatives.
    """
    kinds = nonfamilies(3, 7)
    none = np.zeros(2, dtype=int)
    own = Households(none, np.full(2, 2), none, none, none, none, np.array(kinds))
    band = place(0, GROWN)
    at = [band, band, *[place(NONRELATIVE, GROWN)] * 9, place(ROLES.index(role_of_last), GROWN)]
    chosen = nearest_composition(own, np.bincount(at, minlength=N_PLACES), Drift())
    assert chosen is not None
    assert chosen.further.sum() == further
    made = [household_types()[kind] for kind in book().kind[chosen.pattern]]
    assert [one.size for one in made] == [5 - further, 7]
    assert sum(one.has_relatives for one in made) == 2 - further


def test_an_eighth_member_costs_what_larger_households_of_earlier_blocks_tell() -> None:
    """A household of three nonrelatives and one of seven or more, and a relative, who finds room in
    neither as they are released, and makes one of them larger by one."""
    kinds = nonfamilies(3, 7)
    none = np.zeros(2, dtype=int)
    own = Households(none, np.full(2, 2), none, none, none, none, np.array(kinds))
    assert own.size.tolist() == [3, 7]
    band = place(0, GROWN)
    at = [band, band, *[place(NONRELATIVE, GROWN)] * 8, place(ROLES.index("other relative"), GROWN)]
    costs, prices = [], []
    for is_larger in (True, False):
        drift = Drift()
        for _ in range(50):
            drift.add_larger(int(not is_larger), is_larger)
        chosen = nearest_composition(own, np.bincount(at, minlength=N_PLACES), drift)
        assert chosen is not None
        assert chosen.further.sum() == 1
        costs.append(chosen.cost)
        prices.append(drift.of_larger())
    assert prices[0] > 0 > prices[1]
    assert costs[0] - costs[1] == pytest.approx(prices[0] - prices[1])
