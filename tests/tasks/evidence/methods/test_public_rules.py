"""What a published table tells by the public rules of its method, beside all tables that there are.

An attacker's set of possible counts of an entity is neither larger, so that a method looks stronger
than it is, nor smaller, so that the truth would be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from spineflow.tasks.evidence.ingest import PublishedTable
from spineflow.tasks.evidence.methods.rounding import (
    merged_entities,
    minimum_size,
    nearest,
    random,
    ranges,
    round_controlled,
)
from spineflow.tasks.evidence.methods.suppression import without_cells

Counts = tuple[int, ...]
BASE, SMALLEST = 3, 4


def told(published: PublishedTable, entity: int = 0, largest: int = 9) -> set[Counts]:
    """All counts of an entity that are within the bounds of its answers and of their sum."""
    low, high = published.low[entity], published.high[entity]
    least, most = (0, np.inf) if published.total is None else published.total[:, entity]
    return {
        counts
        for counts in product(range(largest + 1), repeat=published.value.shape[1])
        if (low <= counts).all() and (counts <= high).all() and least <= sum(counts) <= most
    }


def rows(counts: Counts) -> np.ndarray:
    """A table of one entity."""
    return np.array([counts], dtype=float)


def is_beside(count: float, multiple: float) -> bool:
    """Whether a multiple of the base is one of the two that a count lies between."""
    return multiple in (BASE * np.floor(count / BASE), BASE * np.ceil(count / BASE))


def rounded_at_random(counts: Counts, value: np.ndarray) -> bool:
    ends = [random(rows(counts), BASE, np.full((1, len(counts)), u)).value for u in (0, 1 - 1e-9)]
    return bool(((value == ends[0]) | (value == ends[1])).all())


def rounded_with_totals(counts: Counts, value: np.ndarray) -> bool:
    pairs = [*zip(counts, value[0], strict=True), (sum(counts), value.sum())]
    return all(is_beside(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("publish", "could_be"),
    [
        (
            lambda counts: nearest(counts, BASE),
            lambda counts, value: (nearest(rows(counts), BASE).value == value).all(),
        ),
        (
            lambda counts: random(counts, BASE, np.array([[0.1, 0.5, 0.9]])),
            rounded_at_random,
        ),
        (lambda counts: round_controlled(counts, BASE, [np.arange(1)]), rounded_with_totals),
        (
            lambda counts: ranges(counts, SMALLEST),
            lambda counts, value: (ranges(rows(counts), SMALLEST).value == value).all(),
        ),
    ],
    ids=["nearest", "random", "round_controlled", "ranges"],
)
@pytest.mark.parametrize("true", [(0, 1, 4), (3, 3, 2), (1, 1, 1), (0, 0, 5)])
def test_counts_are_those_that_would_be_published_like_this(
    publish: Callable, could_be: Callable, true: Counts
) -> None:
    published = publish(rows(true))
    possible = {
        counts for counts in product(range(10), repeat=3) if could_be(counts, published.value)
    }
    assert true in possible
    assert told(published) == possible


@pytest.mark.parametrize("mask", [(1, 1, 0), (1, 1, 1), (0, 1, 1)])
@pytest.mark.parametrize("is_total_out", [False, True])
def test_withheld_cells_add_up_to_a_published_total(mask: Counts, is_total_out: bool) -> None:
    true = (2, 1, 3)
    cells = np.array(mask, dtype=bool)
    # The totals of the columns are withheld too, so that they tell nothing.
    withheld = np.array([[*mask, is_total_out], [1, 1, 1, 1]], dtype=bool)
    published = without_cells(rows(true), [np.arange(1)], [withheld])
    possible = {
        counts
        for counts in product(range(10), repeat=3)
        if all(counts[n] >= 1 if cells[n] else counts[n] == true[n] for n in range(3))
        and (is_total_out or sum(counts) == sum(true))
    }
    assert told(published) == possible


@pytest.mark.parametrize("true", [(2, 4, 5), (1, 2, 4, 6), (3, 3, 0, 6)])
def test_small_areas_are_told_by_the_order_in_which_they_are_merged(true: Counts) -> None:
    """Of everybody by two answers; only the last merged area hides which of its areas is small."""
    groups = [np.arange(len(true))]
    merged = merged_entities(np.array(true), groups, SMALLEST)
    inside = np.flatnonzero(merged == 0)
    assert len(inside) < len(true)
    counts = np.array([(n // 2, n - n // 2) for n in true], dtype=float)
    published = minimum_size(counts, np.array(true), groups, SMALLEST)
    whole = counts[inside].sum(axis=0)
    possible: list[set[Counts]] = [set() for _ in inside]
    choices = [product(range(int(n) + 1), repeat=len(inside)) for n in whole]
    for columns in product(*map(list, choices)):
        own = np.array(columns).T
        if (own.sum(axis=0) != whole).any():
            continue
        persons = np.array([*own.sum(axis=1), *(true[n] for n in range(len(inside), len(true)))])
        if (merged_entities(persons, groups, SMALLEST) == merged).all():
            for entity, found in enumerate(possible):
                found.add(tuple(own[entity].tolist()))
    for entity, found in zip(inside, possible, strict=True):
        assert told(published, entity) == found
