"""Combinations of parts bounded all at once, against the law of each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.ledger import exact_curve
from spineflow.tasks.ledger.exact_curve import Counts, PrivacyCurve
from spineflow.tasks.ledger.loss_laws import ChangedCount, grid_about
from spineflow.tasks.ledger.worst_combinations import deltas_at_most
from spineflow.tasks.noise.distributions import IntegerDistribution


def paths(n: int, power: int) -> list[Counts]:
    """Ways of splitting a budget over seven levels of four queries, of which some leave one out."""
    random = np.random.default_rng(n)
    found = []
    for number in range(n):
        shares = random.integers(10, 40, size=7 - (number % 3 == 0))
        counts = {}
        for share in shares:
            for query in (10, 15, 30, 45):
                c = Fraction(int(share), int(shares.sum())) * Fraction(query, 50) * (3 - power)
                noise = IntegerDistribution(c + Fraction(1, 10**9 + number), power)
                counts[ChangedCount(noise)] = 1
        found.append(counts)
    return found


def curve(power: int) -> PrivacyCurve:
    """A path to any other, in each of two universes."""
    some, others = paths(4, power), paths(2, power)
    return PrivacyCurve({}, (some, some, others, others))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("epsilon", [0.2, 3.0, 9.0])
def test_bounds_are_no_smaller_than_those_of_laws_and_hardly_larger(
    power: int, epsilon: float
) -> None:
    combinations = curve(power)._combinations
    grid = grid_about(combinations, epsilon, True, 0.0)
    assert grid.stride is None
    due = np.array([grid.law(one).delta_upper(epsilon) for one in combinations])
    found = deltas_at_most(grid, combinations, epsilon)
    assert (found >= due).all()
    # The few losses of geometric noise have too many frequencies, unless there is more of it.
    assert (found <= due * (1 + 1e-7)).all() == (power == 2)
    assert len({sum(grid.part(part).n_counts for part in one) for one in combinations}) > 2


@pytest.mark.parametrize("power", [1, 2])
def test_what_is_left_out_changes_no_bit(power: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def bounds() -> tuple[float, float]:
        exact_curve._upper_delta.cache_clear()
        exact_curve._upper_epsilon.cache_clear()
        return curve(power).epsilon_upper(1e-8), curve(power).delta_upper(3.0)

    found, asked = bounds(), 0

    def every(grid, combinations, epsilon):
        nonlocal asked
        asked += len(combinations)
        return np.full(len(combinations), np.inf)

    monkeypatch.setattr(exact_curve, "deltas_at_most", every)
    assert bounds() == found and asked > 20


def test_grids_that_hold_losses_as_they_are_and_few_combinations_are_left_alone() -> None:
    one = {ChangedCount(IntegerDistribution(Fraction(1, 2), 2)): 1}
    two = {ChangedCount(IntegerDistribution(Fraction(1, 4), 2)): 2}
    combinations = PrivacyCurve({}, [(one, two)] * 12)._combinations
    grid = grid_about(combinations, 3.0, True, 0.0)
    assert grid.stride is not None
    assert np.isinf(deltas_at_most(grid, combinations, 3.0)).all()
    few = curve(2)._combinations[:3]
    assert np.isinf(deltas_at_most(grid_about(few, 3.0, True, 0.0), few, 3.0)).all()
