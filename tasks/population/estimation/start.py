"""Persons of a block as members of its households, by one assignment, with which a search begins.

Every released household has a slot for each member by its type and size, and some further ones that
make it larger. Every person fills one slot, at the least total cost of changes: of relationship,
band of ages and sex, and of the householder's level of ages, origin and race.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from ...census.households import ADULT, FEMALE, HOUSEHOLDER, MALE, Members
from ..workload.household_types import (
    OPEN_SIZE,
    levels_of_age,
    parts_of_types,
)
from ..workload.levels import are_possible, derived_levels
from ..workload.places import (
    FIRST_RELATIONSHIP,
    N_BANDS,
    PARTNERS,
    ROLE_OF_RELATIONSHIP,
    fit_to_places,
    places_of,
)
from ..workload.slots import anywhere, slots

_OTHER_SEX, _PER_LEVEL, _OTHER_ORIGIN, _OTHER_RACE = 0.6, 0.08, 0.7, 0.9
_MUST, _NEEDED, _RELEASED, _MINOR = -1000.0, -1.0, -0.25, 3.0
"""Cost of a householder, of a member required by the type, of another released one, and of a
householder who is a minor."""
_PER_FURTHER, _EXCLUDED = 0.25, 0.6
"""Cost of a member beyond the released size, and of one whose role the type excludes."""
_FURTHER = 2
"""Slots beyond the released size of each household, in addition to the slots that a block's persons
need.
"""
_LATER_BEYOND, _FEW_BEYOND, _MANY_BEYOND = 0.4, 0.05, 1.0
"""Cost of a member beyond seven: for a later one, for a household's first while fewer blocks than
expected have one, and for its first afterwards.
"""
_LARGER = 0.45
"""Assumed share of households of seven or more that have more than seven members: no release states
it."""
SAME_SEX = (2, 4)
"""Roles of partners of the householder's sex."""
_NONRELATIVE, _NEVER = 36, 1e5


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons in households, `(n,)` each: RELSHIP, sex, age, origin, race, as in `Members`, the
    level of the race that householders are counted by, and whether they live alone.
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
class Households:
    """Released households, `(n,)` each, as levels of their attributes."""

    sex: np.ndarray
    age: np.ndarray
    origin: np.ndarray
    race: np.ndarray
    elderly: np.ndarray
    tenure: np.ndarray
    kind: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """Released size of each `(n,)`, `OPEN_SIZE` for that many and more."""
        return parts_of_types()["size"][self.kind]


@dataclass(frozen=True, eq=False)
class _Columns:
    """Slots of a block, `(n,)` each, householders first: household, number in the catalogue, price,
    and whether it is beyond the released size.
    """

    home: np.ndarray
    slot: np.ndarray
    price: np.ndarray
    is_further: np.ndarray


class LargerBlocks:
    """Expected number of blocks with households beyond seven, less the number of such blocks."""

    def __init__(self) -> None:
        self.lacking = 0.0

    def add(self, size: np.ndarray) -> None:
        """Record a block's household sizes."""
        self.lacking += 1 - (1 - _LARGER) ** int((size >= OPEN_SIZE).sum())
        self.lacking -= bool((size > OPEN_SIZE).any())


def first_members(persons: Persons, households: Households, larger: LargerBlocks) -> Members:
    """The persons of a block as members of its households, in their order.

    Raises ValueError unless there are households, and no more than persons.
    """
    n, n_homes = len(persons.age), len(households.kind)
    if not 1 <= n_homes <= n:
        raise ValueError(f"{n} persons cannot live in {n_homes} units")
    columns, own, place = _columns(n, households, larger.lacking > 0), slots(), persons.places
    of_excluded, nearest = anywhere()
    cost = own.cost[place][:, columns.slot]
    is_excluded = columns.is_further & (of_excluded[place][:, None] + _EXCLUDED < cost)
    cost = np.where(is_excluded, of_excluded[place][:, None] + _EXCLUDED, cost) + columns.price
    cost[:, :n_homes] += _householder_costs(persons, households)
    role = (own.nearest // N_BANDS)[place][:, columns.slot]
    of_head = households.sex[columns.home]
    sex = np.where(np.isin(role, SAME_SEX), of_head, 1 - of_head)
    cost += _OTHER_SEX * (np.isin(role, PARTNERS) & (sex != persons.sex[:, None] - MALE))
    # Any person can be a further member, so an assignment without impossible places exists.
    rows, at = linear_sum_assignment(np.where(np.isfinite(cost), cost, _NEVER))
    wished = own.nearest[place, columns.slot[at]]
    wished = np.where(is_excluded[rows, at], nearest[place], wished)
    relationship, age = fit_to_places(persons.relationship, persons.age, wished)
    unit = columns.home[at]
    larger.add(np.bincount(unit))
    return _possible(
        Members(unit, relationship, age, persons.sex, persons.hispanic, persons.race), n_homes
    )


def _columns(n: int, households: Households, are_few: bool) -> _Columns:
    """All slots of a block of `n` persons; the price of members beyond seven depends on the number
    so far.
    """
    own, kind, n_homes = slots(), households.kind, len(households.kind)
    released = own.of_type[kind, households.elderly]
    number, home = np.nonzero(released.T >= 0)
    price = np.where(number < own.n_needed[kind[home]], _NEEDED, _RELEASED) + _MUST * (number == 0)
    n_further = _FURTHER + max(0, -(-(n - len(home)) // n_homes))
    step, of_further = (one.ravel() for one in np.indices((n_further, n_homes)))
    beyond = households.size[of_further] + step + 1 - OPEN_SIZE
    first = _FEW_BEYOND if are_few else _MANY_BEYOND
    later = _LATER_BEYOND + 0.01 * beyond
    grown = _PER_FURTHER * (1 + 0.2 * step)
    return _Columns(
        np.append(home, of_further),
        np.append(released[home, number], own.free[kind, households.elderly][of_further]),
        np.append(price, np.select([beyond <= 0, beyond == 1], [grown, first], later)),
        np.arange(len(home) + len(step)) >= len(home),
    )


def _householder_costs(persons: Persons, households: Households) -> np.ndarray:
    """Cost of persons as householders of households `(n, n_homes)`."""
    level = np.maximum(levels_of_age(persons.age), 0)
    cost = _PER_LEVEL * abs(level[:, None] - households.age)
    cost += _MINOR * (persons.age < ADULT)[:, None]
    cost += _OTHER_SEX * (persons.sex[:, None] - MALE != households.sex)
    cost += _OTHER_ORIGIN * (persons.hispanic[:, None] - 1 != households.origin)
    return cost + _OTHER_RACE * (persons.head_race[:, None] != households.race)


def _possible(members: Members, n_homes: int) -> Members:
    """The members with partners of a fitting sex; in impossible households, all but the householder
    become nonrelatives.
    """
    relationship, unit = members.relationship.copy(), members.unit
    role = ROLE_OF_RELATIONSHIP[relationship - FIRST_RELATIONSHIP]
    of_head = members.of_householder(n_homes, members.sex)[unit]
    fitting = np.where(np.isin(role, SAME_SEX), of_head, MALE + FEMALE - of_head)
    sex = np.where(np.isin(role, PARTNERS), fitting, members.sex)
    made = replace(members, sex=sex, relationship=relationship)
    wrong = ~are_possible(derived_levels(made, n_homes))[unit]
    relationship[wrong & (relationship != HOUSEHOLDER)] = _NONRELATIVE
    return made
