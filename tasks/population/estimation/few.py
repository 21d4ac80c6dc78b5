"""The nearest patterns of one, two or three households, by trying them one after the other.

At prices of persons every pattern costs a household something, and what all households and persons
cost so is no more than what a composition of these patterns costs. So patterns, or pairs of them,
are tried in the order of that bound, each by an exact assignment of the persons to its slots, until
no other one can cost less.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numba import njit

from .pricing import Problem, Slots, Taken, slots

FEW = 2
"""Households of which patterns are tried before the integer program is solved."""
_NEAR, _TRIES = (10_000, 120, 20), 4000
"""Patterns of each size of every one of one, two or three households, and all that are tried, at
most."""
MOST = len(_NEAR)
"""Households of which patterns can be tried."""
_NEVER, _NEEDED = 1e6, 1e4
"""Cost of a person in a slot that cannot be, and what it is worth to fill a slot that must be."""


def nearest_of_few(block: Problem, of_person: np.ndarray, of_pattern: np.ndarray) -> Taken | None:
    """The patterns of up to `MOST` households that cost least, one by one, given prices of persons
    and what the slots of each pattern cost by them; None where none of those tried has a place for
    everybody.
    """
    table = slots()
    owner = np.repeat(np.arange(len(block.costs)), block.n_of_class)
    costs = block.costs[owner]
    reduced = costs[:, table.outcome] + of_pattern
    size = _sizes(table)
    n_persons = int(block.n_of_place.sum())
    tried, bound, left_out = _tried(reduced, size, n_persons, block.most)
    base = float(block.n_of_place @ of_person)
    person = np.repeat(np.arange(len(block.n_of_place)), block.n_of_place)
    fill = np.where(np.isfinite(block.fill), block.fill, _NEVER)
    per_further, most = (block.per_first, block.per_later), block.most
    at, cost, last = _best(table, costs, fill, person, tried, base + bound, per_further, most)
    if at < 0:
        return None
    further = np.zeros(block.fill.shape[1], dtype=np.int64)
    # The last assignment is that of the best pattern, made once more.
    _, taken = _assigned_to(table, fill, person, tried[at], per_further, most)
    np.add.at(further, table.open_slot[tried[at]][taken > 0], taken[taken > 0])
    one, bound_of_others = np.ones(len(owner), dtype=np.int64), min(last, base + left_out)
    return Taken(owner, tried[at], one, further, cost, bound_of_others)


def _sizes(table: Slots) -> np.ndarray:
    """Slots of each pattern `(n_patterns,)`."""
    return np.add.reduceat(table.number, table.start[:-1])


def _tried(
    reduced: np.ndarray, size: np.ndarray, n_persons: int, most: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Patterns of all households with as many members as there are persons `(n, n_households)`,
    what they cost at least `(n,)`, ascending, and what others cost."""
    opens, sizes = slots().open_slot >= 0, range(1, int(size.max()) + 1)
    least, left_out, n_near = reduced.min(axis=1), np.inf, _NEAR[len(reduced) - 1]
    near: list[list[np.ndarray]] = []
    for own, of_own in zip(reduced, least, strict=True):
        near.append([])
        for number in sizes:
            found = np.flatnonzero((size == number) & np.isfinite(own))
            found = found[np.argsort(own[found], kind="stable")]
            near[-1].append(found[:n_near])
            if len(found) > n_near:
                left_out = min(left_out, least.sum() - of_own + own[found[n_near]])
    patterns, bounds = [np.empty((0, len(reduced)), dtype=np.int64)], [np.empty(0)]
    for numbers in product(sizes, repeat=len(reduced)):
        further = n_persons - sum(numbers)
        if further >= 0 and further <= most * len(numbers):
            of_each = np.meshgrid(
                *(of_sizes[n - 1] for of_sizes, n in zip(near, numbers, strict=True)), indexing="ij"
            )
            every = np.stack(of_each, axis=-1).reshape(-1, len(numbers))
            every = every[opens[every].sum(axis=1) * most >= further]
            patterns.append(every)
            bounds.append(reduced[np.arange(len(numbers)), every].sum(axis=1))
    return _first(np.concatenate(patterns), np.concatenate(bounds), left_out)


def _first(
    patterns: np.ndarray, bounds: np.ndarray, left_out: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """The first ones in the order of their bounds, as many as are tried."""
    if len(bounds) > _TRIES:
        left_out = min(left_out, float(np.partition(bounds, _TRIES)[_TRIES]))
        near = np.flatnonzero(bounds <= left_out)
        patterns, bounds = patterns[near], bounds[near]
    order = np.argsort(bounds, kind="stable")[:_TRIES]
    return patterns[order], bounds[order], left_out


@njit(cache=True, nogil=True)
def _best(
    table: Slots,
    costs: np.ndarray,
    fill: np.ndarray,
    person: np.ndarray,
    tried: np.ndarray,
    bound: np.ndarray,
    per_further: tuple[float, float],
    most: int,
) -> tuple[int, float, float]:
    """Which patterns cost least, what they cost, and what those not tried cost at least; -1 where
    none has a place for everybody."""
    found, least = -1, np.inf
    for k in range(len(tried)):
        if bound[k] >= least:
            return found, least, least
        cost, _ = _assigned_to(table, fill, person, tried[k], per_further, most)
        for household in range(len(costs)):
            cost += costs[household, table.outcome[tried[k, household]]]
        if cost < min(least, _NEEDED):
            found, least = k, cost
    return found, least, least


@njit(cache=True, nogil=True)
def _assigned_to(
    table: Slots,
    fill: np.ndarray,
    person: np.ndarray,
    patterns: np.ndarray,
    per_further: tuple[float, float],
    most: int,
) -> tuple[float, np.ndarray]:
    """What it costs to fill the slots of some patterns with all persons, above `_NEEDED` where they
    do not fit; and further members in the open slot of each pattern."""
    n, n_needed = len(person), 0
    column_slot = np.empty(n + len(patterns) * (n + most), dtype=np.int64)
    column_cost = np.zeros(len(column_slot))
    column_of = np.full(len(column_slot), -1)
    n_columns = 0
    for k in range(len(patterns)):
        for at in range(table.start[patterns[k]], table.start[patterns[k] + 1]):
            for _ in range(table.number[at]):
                column_slot[n_columns] = table.slot[at]
                n_columns += 1
    further = np.zeros(len(patterns), dtype=np.int64)
    n_needed, n_left = n_columns, n - n_columns
    if n_left < 0:
        return _NEVER, further
    for k in range(len(patterns)):
        if table.open_slot[patterns[k]] >= 0:
            for more in range(min(most, n_left)):
                column_slot[n_columns] = table.open_slot[patterns[k]]
                column_cost[n_columns] = per_further[min(more, 1)]
                column_of[n_columns] = k
                n_columns += 1
    if n_columns < n:
        return _NEVER, further
    cost = np.empty((n, n_columns))
    for row in range(n):
        for column in range(n_columns):
            own = fill[person[row], column_slot[column]] + column_cost[column]
            cost[row, column] = own - _NEEDED if column < n_needed else own
    row_of = assigned(cost)
    total = 0.0
    for column in range(n_columns):
        if row_of[column] >= 0:
            total += cost[row_of[column], column]
            if column_of[column] >= 0:
                further[column_of[column]] += 1
    return total + _NEEDED * n_needed, further


@njit(cache=True, nogil=True)
def assigned(cost: np.ndarray) -> np.ndarray:
    """The row of each column, -1 where none, of the assignment of all rows that costs least, by
    shortest augmenting paths."""
    n, m = cost.shape
    of_row, of_column = np.zeros(n + 1), np.zeros(m + 1)
    row_of, before = np.zeros(m + 1, dtype=np.int64), np.zeros(m + 1, dtype=np.int64)
    for row in range(1, n + 1):
        row_of[0], column = row, 0
        distance, is_done = np.full(m + 1, np.inf), np.zeros(m + 1, dtype=np.bool_)
        while True:
            is_done[column] = True
            own, step, following = row_of[column], np.inf, 0
            for j in range(1, m + 1):
                if not is_done[j]:
                    reduced = cost[own - 1, j - 1] - of_row[own] - of_column[j]
                    if reduced < distance[j]:
                        distance[j], before[j] = reduced, column
                    if distance[j] < step:
                        step, following = distance[j], j
            for j in range(m + 1):
                if is_done[j]:
                    of_row[row_of[j]] += step
                    of_column[j] -= step
                else:
                    distance[j] -= step
            column = following
            if row_of[column] == 0:
                break
        while column:
            row_of[column] = row_of[before[column]]
            column = before[column]
    return row_of[1:] - 1
