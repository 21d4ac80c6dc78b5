"""Swaps of generated households, found again by those that are alone of their kind."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.evidence.attacks.singling import PRECISION, RECALL, graded, linked


def swapped(kinds: int, seed: int) -> tuple[np.ndarray, ...]:
    """Kind, place, place after swapping and partner (else -1) of 3,000 households."""
    draws = np.random.default_rng(seed)
    kind, place = draws.integers(0, kinds, 3_000), draws.integers(0, 100, 3_000)
    partner = np.full(3_000, -1)
    order = draws.permutation(3_000)
    for one, other in order[:300].reshape(-1, 2):
        if place[one] != place[other]:
            partner[[one, other]] = other, one
    after = np.where(partner >= 0, place[partner], place)
    return kind, place, after, partner


def test_households_alone_of_their_kind_show_that_they_were_swapped() -> None:
    kind, place, after, partner = swapped(20_000, 1)
    truth = partner >= 0
    order = np.random.default_rng(2).permutation(3_000)
    found = linked(kind, place, kind[order], after[order])
    alone = np.bincount(kind, minlength=20_000)[kind] == 1
    assert (found.is_linked == alone).all()
    assert (order[found.record[alone]] == np.flatnonzero(alone)).all()
    assert (found.is_moved == (alone & truth)).all()
    grades = graded(found, truth)
    assert grades[PRECISION].value == 1
    recall = grades[RECALL]
    assert recall.value == pytest.approx((alone & truth).sum() / truth.sum())
    assert recall.low < recall.value < recall.high


def test_common_kinds_show_nothing_and_partial_knowledge_errs() -> None:
    kind, place, after, partner = swapped(30, 1)
    found = linked(kind, place, kind, after)
    assert not found.is_linked.any()
    assert np.isnan(graded(found, partner >= 0)[PRECISION].value)
    kind, place, after, partner = swapped(4_000, 1)
    # Of half the households only: somebody else's record is taken for theirs where it is withheld.
    half = np.arange(3_000) < 1_500
    found = linked(kind[half], place[half], kind[~half], after[~half])
    assert 0 < graded(found, (partner >= 0)[half])[PRECISION].value < 0.3


def test_an_empty_release_links_nobody() -> None:
    nothing = np.zeros(0, dtype=int)
    found = linked(np.arange(3), np.arange(3), nothing, nothing)
    assert not found.is_linked.any()
    assert not found.is_moved.any()
