"""Matching against a matching by hand, guesses against the published example of ten persons."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.evidence.attacks.rebuilding import (
    agreement,
    composition,
    guess_from_blocks,
    match_records,
    reidentify,
)


def test_no_record_is_matched_twice_and_as_many_as_can_be() -> None:
    draws = np.random.default_rng(1)
    left, right = draws.integers(0, 60, 200), draws.integers(0, 60, 150)
    found = match_records(left, right, seed=2)
    here = np.flatnonzero(found >= 0)
    assert len(set(found[here])) == len(here)
    assert (left[here] == right[found[here]]).all()
    sizes = [np.bincount(keys, minlength=60) for keys in (left, right)]
    assert len(here) == np.minimum(*sizes).sum()


def test_agreement_counts_records_with_equal_keys() -> None:
    truth, rebuilt = np.array([20, 21, 37, 50]), np.array([21, 23, 36, 80])
    assert agreement(truth, rebuilt) == 0.25
    assert agreement(truth // 5, rebuilt // 5) == 0.75
    assert agreement(truth[:0], rebuilt) == 0


def test_matches_are_drawn_among_equal_records() -> None:
    """Of two released records with the known key, one with another race: right half the time."""
    known = np.zeros(1, dtype=int)
    right = [
        reidentify(known, np.zeros(2, int), np.array([0, 1]), known, seed=seed).right[0]
        for seed in range(400)
    ]
    assert 160 < sum(right) < 240


def test_rates_have_putative_and_confirmed_people() -> None:
    known = np.array([1, 2, 3, 4])
    found = reidentify(known, np.array([4, 2, 1]), np.array([7, 8, 9]), np.array([9, 9, 9, 7]))
    assert found.is_putative.sum() == 3
    assert found.precision(known > 0) == pytest.approx(2 / 3)
    assert found.recall(known > 0) == 0.5
    assert found.precision(known == 2) == 0
    assert np.isnan([found.precision(known == 0), found.recall(known == 0)]).all()


NINE_AND_ONE = np.array([0] * 9 + [1])


def test_guesses_in_a_block_of_nine_and_one() -> None:
    block = np.zeros(10, dtype=int)
    counts = composition(block, NINE_AND_ONE, (1, 2))
    areas = [np.zeros(1, dtype=int)]
    found = guess_from_blocks(block, NINE_AND_ONE, [counts], areas)
    everybody = np.ones(10, dtype=bool)
    assert found[0].precision(everybody) == pytest.approx(0.9)
    assert found[1].precision(everybody) == pytest.approx(0.8)
