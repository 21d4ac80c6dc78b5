"""Rounding, cell keys and coarsening: methods that change every count separately.

**Rounding** is to the nearest multiple, at random without bias, or so that tables add up. A count n
with remainder r to base b becomes one of the two nearest multiples. Random rounding takes the upper
one with probability r/b, so that the error has mean 0 and variance r(b - r); multiples, zero among
them, stay. The random number of a count is fixed by the records that it counts, so that the same
count is rounded alike wherever it is published, and repeated requests reveal nothing.

**Cell keys** give noise that the records of a cell fix, so that the same cell has the same. Every
record has a random key. The key of a cell is the fractional part of the sum of its records' keys,
and chooses the noise from the perturbation table's row of the cell's count (Fraser and Wooton 2005;
the European handbook on statistical disclosure control). Totals have noise of their own, so that
tables do not add up unless that is restored.

**Coarsening** makes a range of small counts, or merges areas until they are large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from ...census.queries import incidence
from ...solvers.highs import SolveStatus, solve
from ..ingest import PublishedTable


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
    counts: np.ndarray, persons: np.ndarray, groups: Sequence[np.ndarray], smallest: int
) -> PublishedTable:
    """A table of areas merged by `merged_entities`, expanded to their entities `(n_entities,
    n_answers)`; `persons` are those of each entity.

    The value that a user takes for an entity is its merged area's, shared out evenly among its
    entities; it is exact for an entity that is not merged. Entities that are known to be small have
    less than `smallest` together, so that the one that closed their area has all but these.
    """
    merged = merged_entities(persons, groups, smallest)
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


def nearest(counts: np.ndarray, base: int) -> PublishedTable:
    """Counts rounded to the nearest multiple of the base, halves away from zero.

    >>> nearest(np.array([[1.0, 2.0, 5.0]]), 3).value
    array([[0., 3., 6.]])
    """
    value = base * np.floor(counts / base + 0.5)
    below = base // 2
    return PublishedTable(value, np.maximum(value - below, 0), value + (base - 1) // 2)


def random(counts: np.ndarray, base: int, uniform: np.ndarray) -> PublishedTable:
    """Counts rounded without bias by random numbers in [0, 1) of the same shape.

    >>> random(np.array([[17.0, 17.0, 18.0]]), 3, np.array([[0.1, 0.9, 0.1]])).value
    array([[18., 15., 18.]])
    """
    remainder = np.mod(counts, base)
    value = counts - remainder + base * (uniform < remainder / base)
    return PublishedTable.within(value, base - 1)


def round_controlled(counts: np.ndarray, base: int, groups: Sequence[np.ndarray]) -> PublishedTable:
    """Round counts to one of the two nearest multiples so that rows and columns add up.

    counts : (n_entities, n_answers).
    groups : for each two-way table its rows, positions of entities; every entity in one of them.

    Each two-way table is rounded with its row totals, column totals and total, each to one of its
    two nearest multiples, at the least sum of absolute changes of all of them: a network flow,
    whose linear program has a whole-number solution. Only values of the cells are returned; totals
    are their sums, as near to the true ones as a cell is. Raises ValueError if the solver finds no
    solution.
    """
    value = np.empty_like(counts)
    for rows in groups:
        value[rows] = _round_two_way(counts[rows], base)
    sums = PublishedTable.within(value.sum(axis=1), base - 1)
    return replace(PublishedTable.within(value, base - 1), total=np.stack([sums.low, sums.high]))


def _round_two_way(counts: np.ndarray, base: int) -> np.ndarray:
    """One two-way table `(m, n)`: in units of the base, the additions to the floors are a flow.

    The unknowns are whether each cell, row total, column total and the total take their upper
    multiple; rows equate the additions of cells with those of totals.
    """
    m, n = counts.shape
    totals = [counts.ravel(), counts.sum(axis=1), counts.sum(axis=0), counts.sum()[None]]
    floors = [np.floor(part / base) for part in totals]
    parts = [part / base - floor for part, floor in zip(totals, floors, strict=True)]
    fraction = np.concatenate(parts)
    free = fraction > 0
    # Going up from a fraction f changes a count by 1 - f in place of f, so costs 1 - 2f more.
    cost = np.where(free, 1 - 2 * fraction, 0)
    by_row = sparse.kron(sparse.eye_array(m), np.ones((1, n)))
    by_column = sparse.kron(np.ones((1, m)), sparse.eye_array(n))
    above = sparse.vstack([by_row, by_column, sparse.csr_array(np.ones((1, m * n)))])
    matrix = sparse.csr_array(sparse.hstack([above, -sparse.eye_array(m + n + 1)]))
    missing = np.concatenate(floors[1:]) - above @ floors[0]
    found = solve(cost, matrix, missing, missing, np.zeros(len(cost)), free.astype(float))
    if found.status is not SolveStatus.OPTIMAL or found.x is None:
        raise ValueError(f"controlled rounding to base {base} ended as {found.status}")
    return base * (floors[0] + np.round(found.x[: m * n])).reshape(m, n)


def look_up_noise(counts: np.ndarray, keys: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The noise of cells `(n,)` by their counts and keys: the first column of the row of each
    whose cumulated probability is above the key, as a number from -D to D.

    >>> rows = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0], [0.3, 0.4, 0.3]])
    >>> look_up_noise(np.array([3]), np.array([0.8]), rows)
    array([1])
    """
    row = np.minimum(counts, len(table) - 1).astype(np.int64)
    below = np.cumsum(table, axis=1)[row] <= keys[:, None]
    # Rounding of the last sum may leave the largest key above it.
    column = np.minimum(below.sum(axis=1), table.shape[1] - 1)
    return column - table.shape[1] // 2


def perturb_counts(counts: np.ndarray, sums: np.ndarray, table: np.ndarray) -> PublishedTable:
    """Counts `(n_entities, n_answers)` with their cells' noise, by the sums of records' keys.

    With the perturbation table known, a count is at most the largest noise away, a published zero
    may be a small count, and a published value above 0 is a count of at least 1: zeros stay.
    """
    keys = np.mod(sums, 1.0)
    noise = look_up_noise(counts.ravel(), keys.ravel(), table).reshape(counts.shape)
    value = counts + noise
    bounds = PublishedTable.within(value, table.shape[1] // 2)
    return replace(bounds, low=np.maximum(bounds.low, value > 0))
