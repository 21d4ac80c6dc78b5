"""The likeliest histogram against all histograms of small blocks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from spineflow.tasks.evidence.attacks.rebuilding import RowCosts, likeliest, perturbation_costs
from spineflow.tasks.evidence.attacks.reconstruction import system_of_tables

from tests.tasks.evidence.attacks.blocks import totals_of

CELLS = np.arange(6)
SYSTEM = system_of_tables([CELLS // 3, CELLS % 3, 0 * CELLS, np.where(CELLS % 2 == 1, 0, -1)])
EVERY = np.array(list(product(range(7), repeat=6)))
TOTALS = totals_of(SYSTEM, EVERY)


def least_cost(costs: list[RowCosts | None]) -> float:
    """The cost of the best of all histograms with cells from 0 to 6."""
    best = np.zeros(len(EVERY))
    for row, cost in enumerate(costs):
        if cost is not None:
            table = np.full(100, np.inf)
            table[cost.lowest : cost.highest + 1] = cost.costs
            best += table[TOTALS[:, row]]
    return float(best.min())


def cost_of(histogram: np.ndarray | None, costs: list[RowCosts | None]) -> float:
    """The sum of the costs of a histogram's rows, each of which must be possible."""
    assert histogram is not None
    found = 0.0
    for total, cost in zip(SYSTEM.matrix @ histogram, costs, strict=True):
        if cost is not None:
            assert cost.lowest <= total <= cost.highest
            found += float(cost.costs[total - cost.lowest])
    return found


def gaussian_costs(answer: float, variance: float) -> RowCosts:
    """-log of the density of Gaussian noise, for totals up to five standard deviations away."""
    reach = 5 * np.sqrt(variance)
    lowest = max(0, int(np.floor(answer - reach)))
    totals = np.arange(lowest, max(lowest, int(np.ceil(answer + reach))) + 1)
    return RowCosts(lowest, (totals - answer) ** 2 / (2 * variance))


def noisy(draws: np.random.Generator) -> np.ndarray:
    people = np.bincount(draws.integers(0, 6, 5), minlength=6)
    return totals_of(SYSTEM, people[None])[0] + draws.normal(0, 1, SYSTEM.n_rows)


def test_gaussian_answers_have_the_integer_fit_of_least_squares() -> None:
    draws = np.random.default_rng(3)
    for _ in range(25):
        costs = [gaussian_costs(answer, 1.0) for answer in noisy(draws)]
        found = likeliest(SYSTEM, costs)
        assert cost_of(found, costs) == pytest.approx(least_cost(costs), abs=1e-3)


def spiked(totals: np.ndarray, published: int) -> np.ndarray:
    """Half stays as it is, the rest goes evenly to the neighbours within 2: far from convex."""
    return np.where(totals == published, 0.5, 0.125) * (np.abs(totals - published) <= 2)


def test_costs_that_are_not_convex_are_replaced_by_their_hulls() -> None:
    draws = np.random.default_rng(4)
    misled = 0
    for _ in range(25):
        published = np.maximum(np.rint(noisy(draws)), 0).astype(int).tolist()
        costs = [perturbation_costs(figure, spiked, 2) for figure in published]
        hull, least = likeliest(SYSTEM, costs), least_cost(costs)
        if np.isinf(least):
            assert hull is None
            continue
        assert cost_of(hull, costs) >= least - 1e-6
        misled += cost_of(hull, costs) > least + 1e-3
    assert misled, "a case in which the hull misleads"


def test_rows_that_are_not_published_cost_nothing() -> None:
    costs: list[RowCosts | None] = [None] * SYSTEM.n_rows
    costs[0], costs[1], costs[5] = RowCosts(2, np.zeros(1)), RowCosts(1, np.zeros(1)), None
    found = likeliest(SYSTEM, costs)
    assert found is not None
    assert totals_of(SYSTEM, found[None])[0, :2].tolist() == [2, 1]
    assert cost_of(found, costs) == 0
    costs[5] = RowCosts(1, np.zeros(1))
    assert likeliest(SYSTEM, costs) is None
    with pytest.raises(ValueError, match="need as many costs"):
        likeliest(SYSTEM, costs[:-1])
    with pytest.raises(ValueError, match="within the reach"):
        perturbation_costs(9, lambda totals, _: 0.0 * totals, 2)
