"""Compositions of up to three households by trying patterns: exact assignments, and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from spineflow.tasks.population.estimation.drift import Drift
from spineflow.tasks.population.estimation.few import assigned, nearest_of_few
from spineflow.tasks.population.estimation.pricing import Problem, Taken, filled, slots
from spineflow.tasks.population.workload.places import (
    ADULT_BANDS,
    HOUSEHOLDER,
    N_PLACES,
    NONRELATIVE,
    place,
)


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
