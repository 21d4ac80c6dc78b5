"""Integers are shared out among siblings at the least squared distance."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.group_sizes.estimation.water_level import share_out


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(-6, 9), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 3))
def test_shares_are_the_closest_integers(noisy, total, first) -> None:
    first %= len(noisy)
    found = share_out(
        np.array(noisy), np.array([0, len(noisy)]), np.array([total]), np.array([first])
    )
    least = min(
        sum((x - a) ** 2 for x, a in zip(values, noisy, strict=True))
        for values in itertools.product(range(total + 1), repeat=len(noisy))
        if sum(values) == total
    )
    assert found.sum() == total
    assert found.min() >= 0
    assert ((found - np.array(noisy)) ** 2).sum() == least


def test_families_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 50)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    noisy, totals = rng.integers(-5, 20, offsets[-1]), rng.integers(0, 40, 50)
    found = share_out(noisy, offsets, totals)
    alone = [
        share_out(noisy[a:b], np.array([0, b - a]), np.array([total]))
        for a, b, total in zip(offsets[:-1], offsets[1:], totals, strict=True)
    ]
    assert found.tolist() == np.concatenate(alone).tolist()


def test_ties_go_by_position_from_the_favoured_sibling_on() -> None:
    noisy, family, total = np.zeros(4, dtype=int), np.array([0, 4]), np.array([2])
    assert share_out(noisy, family, total).tolist() == [1, 1, 0, 0]
    assert share_out(noisy, family, total, np.array([3])).tolist() == [1, 0, 0, 1]
