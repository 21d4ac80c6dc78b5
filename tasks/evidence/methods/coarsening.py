"""Coarsening: small counts become a range, and areas are merged until they are large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...census.queries import incidence
from ..tables import PublishedTable


def ranges(counts: np.ndarray, threshold: int) -> PublishedTable:
    """Counts of which those from 1 to below a threshold are published as that range.

    Zeros and larger counts stay. The value that a user takes is the middle of the range.

    >>> ranges(np.array([[0.0, 2.0, 7.0]]), 5).value
    array([[0. , 2.5, 7. ]])
    """
    is_small = (counts > 0) & (counts < threshold)
    low, high = np.where(is_small, 1, counts), np.where(is_small, threshold - 1, counts)
    return PublishedTable(np.where(is_small, threshold / 2, counts), low, high)


def merged_entities(
    population: np.ndarray, groups: Sequence[np.ndarray], smallest: int
) -> np.ndarray:
    """Number of the merged area of every entity `(n_entities,)`.

    population : (n_entities,) persons of each.
    groups : entities that may be merged with each other, such as those of one parent, in the order
        of neighbourhood.

    Along each group entities are merged until they have `smallest` persons; the rest at the end
    joins the last that is large enough. Entities in no group stay alone.

    >>> merged_entities(np.array([40, 70, 200, 30]), [np.arange(4)], 100)
    array([0, 0, 1, 1])
    """
    merged = np.full(len(population), -1, dtype=np.int64)
    next_ = 0
    for group in groups:
        first, persons = next_, 0.0
        for entity in group:
            merged[entity], persons = next_, persons + population[entity]
            if persons >= smallest:
                next_, persons = next_ + 1, 0.0
        if persons or merged[group[-1]] == next_:
            # The rest joins the last large one, where the group has one.
            rest = group[merged[group] == next_]
            if next_ > first:
                merged[rest] = next_ - 1
            else:
                next_ += 1
    alone = merged < 0
    merged[alone] = next_ + np.arange(alone.sum())
    return merged


def small_and_closing(
    merged: np.ndarray, groups: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Masks `(n_entities,)` of entities that the rule of `merged_entities` shows to be small, and
    of entities that it shows to have closed an area.

    An area is closed by the entity that makes it large, so that those before have fewer persons
    together. Only of the last area of a group is it not public which one closed it.

    >>> small_and_closing(np.array([0, 0, 1, 1]), [np.arange(4)])
    (array([ True, False, False, False]), array([False,  True, False, False]))
    """
    is_small, is_closing = np.zeros((2, len(merged)), dtype=bool)
    for group in groups:
        own = merged[group]
        is_small[group[:-1]] = (own[:-1] == own[1:]) & (own[:-1] != own[-1])
        is_closing[group[:-1]] = own[:-1] != own[1:]
    return is_small, is_closing


def minimum_size(
    counts: np.ndarray, merged: np.ndarray, groups: Sequence[np.ndarray], smallest: int
) -> PublishedTable:
    """A table of merged areas, expanded to their entities `(n_entities, n_answers)`.

    The value that a user takes for an entity is its merged area's, shared out evenly among its
    entities; it is exact for an entity that is not merged. Entities that are known to be small have
    less than `smallest` together, so that the one that closed their area has all but these.
    """
    n = int(merged.max(initial=-1)) + 1
    sums = incidence(merged, n) @ counts
    size = np.bincount(merged, minlength=n)[:, None]
    is_alone = (size == 1)[merged]
    whole = sums[merged]
    is_small, is_closing = small_and_closing(merged, groups)
    limit = np.where(is_small, smallest - 1, np.inf)[:, None]
    low = np.where(is_closing[:, None], np.maximum(whole - (smallest - 1), 0), 0)
    low = np.where(is_alone, whole, low)
    all_of = whole.sum(axis=1)
    least = np.where(is_closing, np.maximum(all_of - (smallest - 1), 0), 0)
    total = np.stack([least, np.minimum(all_of, limit[:, 0])])
    return PublishedTable((sums / size)[merged], low, np.minimum(whole, limit), total)
