"""Who lives where: the persons of a block in the slots of its households, by exact assignment.

Every slot is filled by one person at the least sum of what changes: relationship, band of ages,
sex, the householder's level of ages, and the origin and race of householders, which are those of
persons, since a redistricting release states how many of each there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from ...census.households import FEMALE, MALE, Members
from ..workload.changes import LEAST
from ..workload.household_types import FIRST_AGES, levels_of_age
from ..workload.patterns import book
from ..workload.places import HOUSEHOLDERS, N_BANDS, OLDEST, PARTNERS, fitted, places_of
from ..workload.tables import details
from .composition import Composition, Households
from .drift import Drift, origin_and_race, origin_and_sex, sex_and_age

_OTHER_SEX, _PER_LEVEL, _OTHER_ORIGIN, _OTHER_RACE = 0.6, 0.08, 0.7, 0.9
_NEVER = 1e6
SAME_SEX = (2, 4)
"""Roles of partners of the householder's sex."""


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons in the households of a block, `(n,)` each: RELSHIP, sex, age, origin, race, as in
    `Members`, the level of the race that householders are counted by, and who lives alone.
    """

    relationship: np.ndarray
    sex: np.ndarray
    age: np.ndarray
    hispanic: np.ndarray
    race: np.ndarray
    head_race: np.ndarray
    is_alone: np.ndarray

    @property
    def places(self) -> np.ndarray:
        """Place of each person `(n,)`."""
        return places_of(self.relationship, self.age, self.is_alone)


@dataclass(frozen=True, eq=False)
class _Slots:
    """Every slot of a block: its household, its number in the catalogue, `(n,)` each."""

    household: np.ndarray
    number: np.ndarray


def placed(persons: Persons, households: Households, chosen: Composition, drift: Drift) -> Members:
    """The persons as members of the households, in their order.

    Who has to be of another age gets the one, of those that the place allows, of which earlier
    blocks took away most. Raises ValueError where the slots are not as many as the persons, or
    minors and adults do not fit.
    """
    slots = _slots(chosen)
    if len(slots.number) != len(persons.age):
        raise ValueError("there are not as many slots as persons")
    masks, move = book().masks, drift.distances()
    is_head = np.isin(slots.number, [n for role in HOUSEHOLDERS for n in _of_role(masks, role)])
    partner = _partners(masks)[slots.number]
    sex = _needed_sex(households, slots, is_head, partner)
    first, last = _ages(households, chosen, slots, is_head)
    cost = _fill(persons, slots, masks, move)
    cost += ((sex > 0) & (persons.sex[:, None] != sex)) * _of_other_sex(persons, drift)[:, None]
    heads = np.flatnonzero(is_head)
    cost[:, heads] += _of_heads(persons, households, chosen, slots.household[heads], drift)
    rows, columns = linear_sum_assignment(cost)
    if cost[rows, columns].max(initial=0.0) >= _NEVER:
        raise ValueError("minors and adults do not fit the slots")
    slot_of = np.empty(len(rows), dtype=np.int64)
    slot_of[rows] = columns
    number = slots.number[slot_of]
    now = persons.places
    reach = np.where(masks[number], move[now], np.inf)
    needed = sex[slot_of]
    new_sex = np.where(needed > 0, needed, persons.sex)
    relationship, age = fitted(
        persons.relationship,
        persons.age,
        reach.argmin(axis=1),
        first[slot_of],
        last[slot_of],
        drift.of("age").reshape(2, -1)[new_sex - MALE],
        drift.of_members(),
    )
    unit = slots.household[slot_of]
    return Members(unit, relationship, age, new_sex, persons.hispanic, persons.race)


def _of_other_sex(persons: Persons, drift: Drift) -> np.ndarray:
    """What it costs to make persons of the other sex `(n,)`."""
    of_sex, of_age = drift.of("sex"), drift.of("age")
    origin, other = persons.hispanic - 1, MALE + FEMALE - persons.sex
    new = of_sex[origin_and_sex(origin, other - MALE)] + of_age[sex_and_age(other, persons.age)]
    old = of_sex[origin_and_sex(origin, persons.sex - MALE)]
    old = old + of_age[sex_and_age(persons.sex, persons.age)]
    return np.maximum(_OTHER_SEX + new - old, LEAST)


def _of_heads(
    persons: Persons,
    households: Households,
    chosen: Composition,
    own: np.ndarray,
    drift: Drift,
) -> np.ndarray:
    """What it costs that persons are the householders of some households `(n, n_heads)`: that the
    household's householder is of another age, origin or race."""
    level = levels_of_age(persons.age)
    age, origin, race = households.age[own], households.origin[own], households.race[own]
    each, kind = np.arange(len(own)), book().kind[chosen.pattern[own]]
    of_heads = drift.of_heads(households.sex[own], households.is_rented[own])[each, details()[kind]]
    more = of_heads[each, np.maximum(level, 0)[:, None]] - of_heads[each, age]
    apart = abs(level[:, None] - age)
    cost = np.where(apart > 0, np.maximum(_PER_LEVEL * apart + more, LEAST), 0.0)
    cost += _OTHER_ORIGIN * (persons.hispanic[:, None] != origin + 1)
    cost += _OTHER_RACE * (persons.head_race[:, None] != race)
    of_race = drift.of("race")
    is_other = (persons.hispanic[:, None] != origin + 1) | (persons.head_race[:, None] != race)
    new = of_race[origin_and_race(persons.hispanic - 1, persons.head_race)]
    cost += is_other * np.maximum(
        new[:, None] - of_race[origin_and_race(origin, race)], LEAST - 0.7
    )
    return cost


def _slots(chosen: Composition) -> _Slots:
    """All slots of the households of a block, household by household."""
    patterns = book()
    household, number = [], []
    for one, pattern in enumerate(chosen.pattern):
        start, end = patterns.slots.indptr[pattern : pattern + 2]
        own = np.repeat(
            patterns.slots.indices[start:end], patterns.slots.data[start:end].astype(np.int64)
        )
        further = np.repeat(patterns.open_slot[pattern], chosen.further[one])
        number.append(np.concatenate([own, further]))
        household.append(np.full(len(own) + len(further), one))
    return _Slots(np.concatenate(household), np.concatenate(number).astype(np.int64))


def _partners(masks: np.ndarray) -> np.ndarray:
    """Role of the partner for whom each slot of the catalogue is; 0 for others."""
    found = np.zeros(len(masks), dtype=np.int64)
    for role in PARTNERS:
        found[_of_role(masks, role)] = role
    return found


def _of_role(masks: np.ndarray, role: int) -> np.ndarray:
    """Numbers of the slots of the catalogue that someone of a role can fill."""
    return np.flatnonzero(masks[:, role * N_BANDS : (role + 1) * N_BANDS].any(axis=1))


def _needed_sex(
    households: Households, slots: _Slots, is_head: np.ndarray, partner: np.ndarray
) -> np.ndarray:
    """Sex of who fills each slot; 0 where either may."""
    of_head = households.sex[slots.household] + MALE
    other = MALE + FEMALE - of_head
    of_partner = np.where(np.isin(partner, SAME_SEX), of_head, other)
    return np.where(is_head, of_head, np.where(partner > 0, of_partner, 0))


def _ages(
    households: Households, chosen: Composition, slots: _Slots, is_head: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """First and last age of who fills each slot, besides those of its places."""
    patterns = book()
    first, last = np.zeros(len(is_head), dtype=np.int64), np.full(len(is_head), OLDEST)
    heads = np.flatnonzero(is_head)
    own = slots.household[heads]
    sex, pattern = households.sex[own], chosen.pattern[own]
    ends = np.append(FIRST_AGES[1:], OLDEST + 1)
    first[heads] = np.array(FIRST_AGES)[patterns.first[sex, pattern]]
    last[heads] = ends[patterns.last[sex, pattern]] - 1
    return first, last


def _fill(persons: Persons, slots: _Slots, masks: np.ndarray, move: np.ndarray) -> np.ndarray:
    """What it costs to fill each slot with each person, by places `(n_persons, n_slots)`."""
    now, at = np.unique(persons.places, return_inverse=True)
    number, which = np.unique(slots.number, return_inverse=True)
    reach = np.where(masks[number], move[now][:, None], np.inf).min(axis=2)
    return np.minimum(reach, _NEVER)[at][:, which]
