"""Allocations in whole parts: near the numbers they stand for, and within limits."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from spineflow.tasks.topdown.design.allocation import LimitsContradict, ShareLimit, to_fractions


def limit(chosen: list[list[int]], at_least: str, at_most: str) -> ShareLimit:
    return ShareLimit(np.array(chosen, dtype=bool), Fraction(at_least), Fraction(at_most))


def distance(numbers: tuple[int, ...], parts: np.ndarray) -> float:
    return float(np.abs(np.array(numbers) - parts).sum())


def test_parts_are_rounded_up_where_most_is_lost() -> None:
    found = to_fractions(np.array([[0.26, 0.34], [0.4, 0.0]]), 10)
    assert found == [[Fraction(3, 10), Fraction(3, 10)], [Fraction(4, 10), Fraction(0)]]
    assert to_fractions(np.array([[5.2, 6.8], [8.0, 0.0]]), 10) == found, "of any sum"


@pytest.mark.parametrize(
    "limits",
    [
        [limit([[1, 0], [0, 0]], "0", "1/5")],
        [limit([[1, 0], [1, 0]], "3/4", "1")],
        [limit([[0, 1], [0, 1]], "2/5", "2/5"), limit([[1, 1], [0, 0]], "7/10", "9/10")],
        [limit([[0, 0], [0, 1]], "0", "0")],
    ],
)
def test_parts_within_limits_are_the_nearest_of_all(limits: list[ShareLimit]) -> None:
    """Brute force over all whole numbers of the sum that leave zeros, and only those, at zero."""
    p, n = np.array([[0.26, 0.34], [0.4, 0.0]]), 10
    parts = p.ravel() * n
    allowed = [
        numbers
        for numbers in product(range(n + 1), repeat=4)
        if sum(numbers) == n
        and all((number > 0) == (part > 0) for number, part in zip(numbers, parts, strict=True))
        and all(
            own.at_least <= Fraction(int(np.array(numbers)[own.chosen.ravel()].sum()), n)
            and Fraction(int(np.array(numbers)[own.chosen.ravel()].sum()), n) <= own.at_most
            for own in limits
        )
    ]
    found = [share * n for row in to_fractions(p, n, limits) for share in row]
    assert tuple(found) in allowed
    least = min(distance(numbers, parts) for numbers in allowed)
    assert distance(tuple(map(int, found)), parts) == pytest.approx(least)


def test_limits_that_no_whole_parts_meet_are_refused() -> None:
    """A third and a half of ten parts; what is nothing gets nothing."""
    p = np.array([[0.26, 0.34], [0.4, 0.0]])
    for impossible in (
        limit([[1, 0], [0, 0]], "1/3", "7/20"),
        limit([[0, 0], [0, 1]], "1/10", "1"),
        limit([[1, 1], [0, 1]], "0", "1/10"),
    ):
        with pytest.raises(LimitsContradict):
            to_fractions(p, 10, [impossible])
