"""What patterns cost at given prices of persons, in compiled loops.

A pattern costs a household what it makes of it, its outcome, and the block the persons who fill its
slots. Some 20,000 patterns have some 7,000 outcomes, so that the cheapest pattern of each outcome
is found once for all households of a block, and the cheapest outcome then for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from ..workload.household_types import OPEN_SIZE
from ..workload.patterns import book

EXACT = 1e-6
"""Costs that differ by less are equal."""

_FURTHER = 3
"""Members that a household may have beyond seven, where not all must have more."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Classes of households with their numbers, and places of persons with theirs.

    costs : (n_classes, n_outcomes) what it costs to make an outcome of a class.
    fill : (n_places, n_slots) what it costs to fill a slot with a person of a place.
    per_first, per_later : what the first member of a household beyond the seventh costs, and each
        later one, which costs no less.
    """

    costs: np.ndarray
    n_of_class: np.ndarray
    n_of_place: np.ndarray
    fill: np.ndarray
    per_first: float
    per_later: float

    @property
    def most(self) -> int:
        """Members beyond the seventh of a household, at most: some, or as many as all need."""
        n_households, n_persons = int(self.n_of_class.sum()), int(self.n_of_place.sum())
        return _FURTHER + max(0, -(-n_persons // n_households) - OPEN_SIZE)


@dataclass(frozen=True, eq=False)
class Taken:
    """How often each pattern is taken of each class, `(n,)` each; further members by slot of the
    catalogue `(n_slots,)`; what it costs, and a bound of what anything costs.
    """

    owner: np.ndarray
    pattern: np.ndarray
    z: np.ndarray
    further: np.ndarray
    cost: float
    bound: float

    @property
    def is_optimal(self) -> bool:
        """Whether nothing costs less for sure."""
        return self.cost <= self.bound + EXACT


class Slots(NamedTuple):
    """Slots of all patterns and places of all slots, as rows end to end."""

    start: np.ndarray
    """(n_patterns + 1,) first entry of each pattern in `slot` and `number`."""
    slot: np.ndarray
    number: np.ndarray
    open_slot: np.ndarray
    outcome: np.ndarray
    place_start: np.ndarray
    """(n_slots + 1,) first entry of each slot in `place`."""
    place: np.ndarray
    n_outcomes: int


@cache
def slots() -> Slots:
    """The slots of the book's patterns."""
    patterns = book()
    return Slots(
        patterns.slots.indptr.astype(np.int64),
        patterns.slots.indices.astype(np.int64),
        patterns.slots.data.astype(np.int64),
        patterns.open_slot.astype(np.int64),
        patterns.outcome.astype(np.int64),
        np.append(0, np.cumsum(patterns.masks.sum(axis=1))),
        np.nonzero(patterns.masks)[1],
        len(patterns.outcomes.kind),
    )


@njit(cache=True, nogil=True)
def filled(slots: Slots, present: np.ndarray, move: np.ndarray) -> np.ndarray:
    """What it costs to fill each slot with a person of each place that is present
    `(n_present, n_slots)`: to go to the nearest place of the slot, by `move` (n_places, n_places).
    """
    n_slots = slots.place_start.size - 1
    cost = np.full((present.size, n_slots), np.inf)
    for a in range(present.size):
        for s in range(n_slots):
            for at in range(slots.place_start[s], slots.place_start[s + 1]):
                cost[a, s] = min(cost[a, s], move[present[a], slots.place[at]])
    return cost


@njit(cache=True, nogil=True)
def slot_prices(fill: np.ndarray, of_person: np.ndarray, most: float) -> np.ndarray:
    """Price of every slot: of the person who fills it at the least cost, or `most`."""
    price = np.full(fill.shape[1], most)
    for a in range(fill.shape[0]):
        for s in range(fill.shape[1]):
            price[s] = min(price[s], fill[a, s] - of_person[a])
    return price


@njit(cache=True, nogil=True)
def priced(slots: Slots, price: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Price of the slots of every pattern `(n_patterns,)`; `gain` is what the open slot adds."""
    n = slots.outcome.size
    found = np.zeros(n)
    for p in range(n):
        total = 0.0
        for at in range(slots.start[p], slots.start[p + 1]):
            total += slots.number[at] * price[slots.slot[at]]
        if slots.open_slot[p] >= 0:
            total += gain[slots.open_slot[p]]
        found[p] = total
    return found


@njit(cache=True, nogil=True)
def cheapest(
    slots: Slots, cost: np.ndarray, of_pattern: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of every class the `most` cheapest outcomes, each by its cheapest pattern, and what these
    cost, both `(n_classes, most)`, ascending.

    cost : (n_classes, n_outcomes) what it costs to make an outcome of a class.
    """
    least, which = np.full(slots.n_outcomes, np.inf), np.zeros(slots.n_outcomes, dtype=np.int64)
    for p in range(of_pattern.size):
        o = slots.outcome[p]
        if of_pattern[p] < least[o]:
            least[o], which[o] = of_pattern[p], p
    n = cost.shape[0]
    pattern, price = np.zeros((n, most), dtype=np.int64), np.full((n, most), np.inf)
    for c in range(n):
        for o in range(slots.n_outcomes):
            own = cost[c, o] + least[o]
            if own < price[c, most - 1]:
                at = most - 1
                while at > 0 and price[c, at - 1] > own:
                    price[c, at], pattern[c, at] = price[c, at - 1], pattern[c, at - 1]
                    at -= 1
                price[c, at], pattern[c, at] = own, which[o]
    return pattern, price


@njit(cache=True, nogil=True)
def nearest(
    slots: Slots, cost: np.ndarray, of_pattern: np.ndarray, limit: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """The patterns that cost a class no more than its limit, the cheapest `most` of each.

    Returns class and pattern of each, and by how much the cheapest pattern left out is above the
    least of its class; `limit` (n_classes,) is that least and what is near.
    """
    n = cost.shape[0]
    pattern, price = np.zeros((n, most + 1), dtype=np.int64), np.full((n, most + 1), np.inf)
    for c in range(n):
        for p in range(of_pattern.size):
            own = cost[c, slots.outcome[p]] + of_pattern[p]
            if own < price[c, most]:
                at = most
                while at > 0 and price[c, at - 1] > own:
                    price[c, at], pattern[c, at] = price[c, at - 1], pattern[c, at - 1]
                    at -= 1
                price[c, at], pattern[c, at] = own, p
    owner, found = np.empty(n * most, dtype=np.int64), np.empty(n * most, dtype=np.int64)
    number, left_out = 0, np.inf
    for c in range(n):
        for at in range(most + 1):
            if at < most and price[c, at] <= limit[c]:
                owner[number], found[number] = c, pattern[c, at]
                number += 1
            else:
                left_out = min(left_out, price[c, at] - price[c, 0])
                break
    return owner[:number], found[:number], left_out
