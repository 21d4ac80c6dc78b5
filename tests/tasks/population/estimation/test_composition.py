"""Compositions of tiny blocks, compared with every composition that there is."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from spineflow.tasks.population.estimation.composition import Households, nearest_composition
from spineflow.tasks.population.estimation.drift import Drift
from spineflow.tasks.population.estimation.few import assigned, nearest_of_few
from spineflow.tasks.population.estimation.pricing import (
    Problem,
    Slots,
    Taken,
    cheapest,
    filled,
    nearest,
    slots,
)
from spineflow.tasks.population.workload.changes import outcome_costs
from spineflow.tasks.population.workload.household_types import (
    NO_COUPLE,
    household_types,
    possible,
)
from spineflow.tasks.population.workload.patterns import book
from spineflow.tasks.population.workload.places import (
    ADULT_BANDS,
    GROWN,
    HOUSEHOLDER,
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


@pytest.mark.parametrize("seed", range(20))
def test_an_assignment_costs_as_little_as_any(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    cost = rng.normal(size=(n, n + int(rng.integers(0, 5))))
    row_of = assigned(cost)
    columns = np.flatnonzero(row_of >= 0)
    assert sorted(row_of[columns]) == list(range(n))
    rows, best = linear_sum_assignment(cost)
    assert cost[row_of[columns], columns].sum() == pytest.approx(cost[rows, best].sum())


def few_of(n_households: int, n_persons: int, of_person: float) -> tuple[Taken, Problem]:
    """What is found for households of random costs, by prices that are equal for all persons."""
    rng = np.random.default_rng(n_households * 100 + n_persons)
    adults = [place(role, band) for role in (HOUSEHOLDER, NONRELATIVE) for band in ADULT_BANDS]
    n_of_place = np.bincount(rng.choice(adults, n_persons), minlength=N_PLACES)
    present = np.flatnonzero(n_of_place)
    fill = filled(slots(), present, Drift().distances())
    costs = rng.random((n_households, slots().n_outcomes)) * 3
    one = np.ones(n_households, dtype=np.int64)
    block = Problem(costs, one, n_of_place[present], fill, 0.1, 0.4)
    table, of_slot = slots(), np.minimum(fill - of_person, 30.0).min(axis=0)
    of_pattern = np.add.reduceat(table.number * of_slot[table.slot], table.start[:-1])
    has_open = table.open_slot >= 0
    opened = of_slot[table.open_slot[has_open]]
    of_pattern[has_open] += np.minimum(opened + 0.1, 0)
    of_pattern[has_open] += (block.most - 1) * np.minimum(opened + 0.4, 0)
    found = nearest_of_few(block, np.full(len(present), of_person), of_pattern)
    assert found is not None
    return found, block


@pytest.mark.parametrize(("n_households", "n_persons"), [(1, 2), (1, 9), (2, 3), (2, 16), (3, 3)])
def test_nothing_costs_less_than_the_bound_whatever_the_prices(
    n_households: int, n_persons: int
) -> None:
    found, block = few_of(n_households, n_persons, 0.3)
    other, _ = few_of(n_households, n_persons, 1.0)
    assert found.bound <= found.cost + 1e-9
    assert max(found.bound, other.bound) <= min(found.cost, other.cost) + 1e-9
    table = slots()
    size = np.add.reduceat(table.number, table.start[:-1])[found.pattern]
    assert size.sum() + found.further.sum() == block.n_of_place.sum()
    assert set(np.flatnonzero(found.further)) <= set(table.open_slot[found.pattern].tolist())


def test_where_nobody_fits_nothing_is_found() -> None:
    table = slots()
    fill = np.full((1, len(table.place_start) - 1), np.inf)
    costs, three = np.zeros((1, table.n_outcomes)), np.array([3])
    block = Problem(costs, np.array([1]), three, fill, 0.1, 0.4)
    assert nearest_of_few(block, np.zeros(1), np.zeros(len(table.outcome))) is None


def test_every_slot_has_its_places_and_every_pattern_its_slots() -> None:
    laid, patterns, masks = slots(), book(), book().masks
    assert laid.place_start[0] == laid.start[0] == 0
    assert laid.place_start[-1] == laid.place.size and laid.start[-1] == laid.slot.size
    places = [laid.place[start:end] for start, end in pairwise(laid.place_start)]
    assert len(places) == len(masks)
    for own, mask in zip(places, masks, strict=True):
        assert np.array_equal(own, np.flatnonzero(mask))
    counts = np.zeros(patterns.slots.shape)
    pattern = np.repeat(np.arange(len(counts)), np.diff(laid.start))
    counts[pattern, laid.slot] = laid.number
    assert np.array_equal(counts, patterns.slots.toarray())


def small(outcome: np.ndarray, n_outcomes: int) -> Slots:
    """Patterns without slots: their outcomes alone."""
    none = np.zeros(outcome.size + 1, dtype=np.int64)
    return Slots(none, none, none, none, outcome, none, none, n_outcomes)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_cheapest_outcomes_and_the_nearest_patterns_are_those_of_all(seed, most) -> None:
    chance = np.random.default_rng(seed)
    n_classes, n_outcomes = chance.integers(1, 5, 2)
    outcome = chance.integers(0, n_outcomes, chance.integers(1, 12))
    # Sums of powers of two, so that no two prices are equal.
    of_pattern = 2.0 ** chance.permutation(outcome.size)
    cost = 2.0 ** -(1 + chance.permutation(n_classes * n_outcomes).reshape(n_classes, n_outcomes))
    every = cost[:, outcome] + of_pattern
    of_outcome = [np.where(outcome == o, every, np.inf).min(axis=1) for o in range(n_outcomes)]
    best = np.stack(of_outcome, axis=1)
    laid = small(outcome, int(n_outcomes))
    pattern, price = cheapest(laid, cost, of_pattern, most)
    wanted = np.full((n_classes, most), np.inf)
    wanted[:, : min(most, n_outcomes)] = np.sort(best, axis=1)[:, :most]
    assert np.array_equal(price, wanted)
    told = np.isfinite(price)
    assert np.array_equal(np.take_along_axis(every, pattern, 1)[told], price[told])

    limit = every.min(axis=1) * (1 + chance.random(n_classes))
    owner, chosen, left_out = nearest(laid, cost, of_pattern, limit, most)
    above = np.inf
    for c in range(n_classes):
        order = np.argsort(every[c])
        near = [p for p in order[:most] if every[c, p] <= limit[c]]
        assert chosen[owner == c].tolist() == near
        if len(near) < outcome.size:
            above = min(above, every[c, order[len(near)]] - every[c, order[0]])
    assert left_out == above
