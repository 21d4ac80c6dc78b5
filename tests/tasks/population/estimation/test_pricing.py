"""What patterns cost follows from slots that are laid end to end as the book has them, and the
cheapest of them are the cheapest of all.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.population.estimation.pricing import Slots, cheapest, nearest, slots
from spineflow.tasks.population.workload.patterns import book


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
