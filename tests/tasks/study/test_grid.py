"""Searches over grids of losses, against looking at every point."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.study.search import EXACT, loss_grid, round_loss, search_geolevels, smallest

GEOLEVELS = ("US", "State", "County")


def test_grids_reach_from_the_lowest_to_the_highest_loss() -> None:
    grid = loss_grid(Fraction(1, 10), Fraction(7), Fraction(3, 2))
    assert grid[0] == Fraction(1, 10)
    assert grid[-2] < 7 <= grid[-1]
    for below, above in pairwise(grid):
        assert float(above / below) == pytest.approx(1.5, rel=1e-3)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**6))
def test_rounding_keeps_four_digits(loss: Fraction) -> None:
    assert abs(round_loss(loss) / loss - 1) <= Fraction(1, 1000)
    assert round_loss(round_loss(loss)) == round_loss(loss)


@given(st.integers(1, 40), st.integers(0, 45))
def test_smallest_is_the_first_point_that_meets(n_points: int, threshold: int) -> None:
    asked = []

    def meets(point: int) -> bool:
        asked.append(point)
        return point >= threshold

    found = smallest(range(n_points), meets)
    assert found == next((point for point in range(n_points) if point >= threshold), None)
    assert len(asked) <= 2 + n_points.bit_length()


def planted(losses) -> bool:
    """Met if the sum of inverse losses, as of variances, is at most 1."""
    return sum(1 / float(loss) for loss in losses.values()) <= 1


def test_geolevels_are_joined_from_the_root_down() -> None:
    """Each alone needs a loss of 1; two in proportion need 2 each, three 3 each."""
    step = Fraction(101, 100)
    grid = loss_grid(Fraction(1, 4), Fraction(16), step)
    trials = []

    def meets(losses) -> bool:
        trials.append(dict(losses))
        return planted(losses)

    found = search_geolevels(GEOLEVELS, grid, step, meets)
    assert tuple(found) == GEOLEVELS
    assert planted(found)
    # The loss that joins last is raised with the others, so it stays the smallest.
    assert not planted({name: loss / step for name, loss in found.items()})
    assert found["US"] == pytest.approx(found["State"] * found["US"] / found["State"])
    alone = [losses for losses in trials if list(losses.values()).count(EXACT) == 2]
    assert alone, "single geolevels are searched with the others exact"


def test_a_criterion_out_of_reach_is_not_met() -> None:
    grid = loss_grid(Fraction(1, 4), Fraction(1, 2), Fraction(2))
    assert search_geolevels(GEOLEVELS, grid, Fraction(2), planted) is None
