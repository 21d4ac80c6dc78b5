"""Persons of a block as members of its households, by one assignment, with which a search begins.

Every released household has a slot for each member by its type and size, and some further ones that
make it larger. Every person fills one slot, at the least total cost of changes: of relationship,
band of ages and sex, and of the householder's level of ages, origin and race.

Slots are sets of places: filled, they make the type. Free slots leave a choice that may change the
type. Slots required by a type precede slots of further members. Attributes of a household follow
from its members at last (`levels.derived_levels`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import linear_sum_assignment

from ...census.households import ADULT, FEMALE, MALE, Members
from ..workload import household_types
from ..workload.household_types import (
    ADULT_BANDS,
    AGE,
    ALONE,
    ELDERLY,
    FIRST_RELATIONSHIP,
    GENERATION,
    HOUSEHOLDER,
    MARRIED,
    N_BANDS,
    N_PLACES,
    NO_COUPLE,
    NONRELATIVE,
    OPEN_SIZE,
    ORIGIN,
    OWN_CHILD,
    PARTNERS,
    RACE,
    RELATIVE,
    ROLE_OF_RELATIONSHIP,
    SEX,
    TEENAGER,
    TYPE,
    HouseholdType,
    are_possible,
    derived_levels,
    distances,
    fit_to_places,
    levels_of_age,
    minor_bands,
    parts_of_types,
    place_set,
    places_of,
)

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


_OTHERS = (OWN_CHILD, GENERATION, RELATIVE, NONRELATIVE)
_N_ELDERLY = 4


@dataclass(frozen=True, eq=False)
class Slots:
    """Slots of all types, by number.

    of_type : (n_types, 4, 7) slots by type and oldest member, -1 beyond the released size.
    n_needed : (n_types,) number of leading slots required by the type.
    free : (n_types, 4) slot of further members.
    cost, nearest : (n_places, n_slots) cost of filling each slot from each place, and the nearest
        place of the slot; infinite where the slot has no place within reach.
    """

    of_type: np.ndarray
    n_needed: np.ndarray
    free: np.ndarray
    cost: np.ndarray
    nearest: np.ndarray


@cache
def slots() -> Slots:
    """The slots of the declared types."""
    types = household_types.household_types()
    masks = np.zeros((len(types), _N_ELDERLY, OPEN_SIZE + 1, N_PLACES), dtype=bool)
    n_needed = np.zeros(len(types), dtype=np.int64)
    for kind, one in enumerate(types):
        for elderly in range(_N_ELDERLY):
            adults = ADULT_BANDS[: 1 + elderly]
            needed = _required_members(one, adults)
            masks[kind, elderly] = _free(one, adults)
            masks[kind, elderly, : len(needed)] = needed
        n_needed[kind] = len(needed)
    distinct, number = np.unique(masks.reshape(-1, N_PLACES), axis=0, return_inverse=True)
    number = number.reshape(masks.shape[:3])
    is_released = np.arange(OPEN_SIZE) < parts_of_types()["size"][:, None, None]
    of_type = np.where(is_released, number[:, :, :OPEN_SIZE], -1)
    reach = np.where(distinct, distances()[:, None], np.inf)
    free = number[:, :, OPEN_SIZE]
    return Slots(of_type, n_needed, free, reach.min(axis=2), reach.argmin(axis=2))


def _required_members(one: HouseholdType, adults: tuple[int, ...]) -> list[np.ndarray]:
    """Masks of the members required by a type, the householder first."""
    roles, bands = _roles(one), (*minor_bands(one.children), *adults)
    found = [place_set((HOUSEHOLDER if one.size > 1 else ALONE,), (TEENAGER, *ADULT_BANDS))]
    if one.couple != NO_COUPLE:
        found.append(place_set((PARTNERS[one.couple],), adults))
    found += [place_set((OWN_CHILD,), minor_bands(age)) for age in (1, 2) if one.own & age]
    kin: tuple[int, ...] = ()
    if one.generations:
        kin = (GENERATION,)
        found += [] if one.own else [place_set((OWN_CHILD,), adults)]
    elif one.relatives and not (one.own or one.couple in MARRIED):
        kin = (GENERATION, RELATIVE)
    further = [age for age in (1, 2) if one.children & ~one.own & age]
    children = [place_set(roles, minor_bands(age)) for age in further]
    if kin and len(found) + len(children) < one.size:
        grown = () if one.generations else (OWN_CHILD,)
        children.append(place_set(kin, bands) | place_set(grown, adults))
    elif kin:
        # One of the children is the relative, or the third generation.
        children[0] = place_set(kin, minor_bands(further[0]))
    return [*found, *children]


def _free(one: HouseholdType, adults: tuple[int, ...]) -> np.ndarray:
    """Mask of the places of further members."""
    roles = _roles(one)
    grown = (OWN_CHILD, *roles) if len(roles) > 1 else roles
    mask = place_set(grown, adults) | place_set(roles, minor_bands(one.children))
    return mask | place_set((OWN_CHILD,), minor_bands(one.own))


def _roles(one: HouseholdType) -> tuple[int, ...]:
    """Roles of members who are neither householder, partner nor own child."""
    if not one.relatives:
        return (NONRELATIVE,)
    has_generation = one.generations or not one.own
    return (GENERATION, RELATIVE, NONRELATIVE) if has_generation else (RELATIVE, NONRELATIVE)


@cache
def anywhere() -> tuple[np.ndarray, np.ndarray]:
    """Cost of a person of each place as a further member of any type, and the nearest such place
    `(n_places,)`.
    """
    reach = np.where(place_set(_OTHERS, tuple(range(N_BANDS))), distances(), np.inf)
    return reach.min(axis=1), reach.argmin(axis=1)


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


def lacking_larger(so_far: float, size: np.ndarray) -> float:
    """Expected number of blocks with households beyond seven, less the number of such blocks, with
    another block of these sizes of households.
    """
    so_far += 1 - (1 - _LARGER) ** int((size >= OPEN_SIZE).sum())
    return so_far - bool((size > OPEN_SIZE).any())


def first_members(persons: Persons, households: np.ndarray, *, are_few: bool) -> Members:
    """The persons of a block as members of its households, in their order.

    households : (7, n_homes) levels of the released households.
    are_few : whether fewer blocks than expected have households beyond seven so far.

    Raises ValueError unless there are households, and no more than persons.
    """
    n, n_homes = len(persons.age), households.shape[1]
    if not 1 <= n_homes <= n:
        raise ValueError(f"{n} persons cannot live in {n_homes} units")
    own, (home, slot, price, is_further) = slots(), _columns(n, households, are_few)
    place = places_of(persons.relationship, persons.age, persons.is_alone)
    of_excluded, nearest = anywhere()
    cost = own.cost[place][:, slot]
    is_excluded = is_further & (of_excluded[place][:, None] + _EXCLUDED < cost)
    cost = np.where(is_excluded, of_excluded[place][:, None] + _EXCLUDED, cost) + price
    cost[:, :n_homes] += _householder_costs(persons, households)
    role = (own.nearest // N_BANDS)[place][:, slot]
    of_head = households[SEX, home]
    sex = np.where(np.isin(role, SAME_SEX), of_head, 1 - of_head)
    cost += _OTHER_SEX * (np.isin(role, PARTNERS) & (sex != persons.sex[:, None] - MALE))
    # Any person can be a further member, so an assignment without impossible places exists.
    rows, at = linear_sum_assignment(np.where(np.isfinite(cost), cost, _NEVER))
    wished = own.nearest[place, slot[at]]
    wished = np.where(is_excluded[rows, at], nearest[place], wished)
    relationship, age = fit_to_places(persons.relationship, persons.age, wished)
    members = Members(home[at], relationship, age, persons.sex, persons.hispanic, persons.race)
    return _possible(members, n_homes)


def _columns(n: int, households: np.ndarray, are_few: bool) -> tuple[np.ndarray, ...]:
    """All slots of a block of `n` persons, `(n_slots,)` each, householders first: household, number
    in the catalogue, price, and whether it is beyond the released size; the price of members beyond
    seven depends on the number so far.
    """
    own, n_homes = slots(), households.shape[1]
    kind, elderly = households[[TYPE, ELDERLY]]
    released = own.of_type[kind, elderly]
    number, home = np.nonzero(released.T >= 0)
    price = np.where(number < own.n_needed[kind[home]], _NEEDED, _RELEASED) + _MUST * (number == 0)
    n_further = _FURTHER + max(0, -(-(n - len(home)) // n_homes))
    step, of_further = (one.ravel() for one in np.indices((n_further, n_homes)))
    beyond = parts_of_types()["size"][kind[of_further]] + step + 1 - OPEN_SIZE
    first = _FEW_BEYOND if are_few else _MANY_BEYOND
    later = _LATER_BEYOND + 0.01 * beyond
    grown = _PER_FURTHER * (1 + 0.2 * step)
    return (
        np.append(home, of_further),
        np.append(released[home, number], own.free[kind, elderly][of_further]),
        np.append(price, np.select([beyond <= 0, beyond == 1], [grown, first], later)),
        np.arange(len(home) + len(step)) >= len(home),
    )


def _householder_costs(persons: Persons, households: np.ndarray) -> np.ndarray:
    """Cost of persons as householders of households `(n, n_homes)`."""
    level = np.maximum(levels_of_age(persons.age), 0)
    cost = _PER_LEVEL * abs(level[:, None] - households[AGE])
    cost += _MINOR * (persons.age < ADULT)[:, None]
    cost += _OTHER_SEX * (persons.sex[:, None] - MALE != households[SEX])
    cost += _OTHER_ORIGIN * (persons.hispanic[:, None] - 1 != households[ORIGIN])
    return cost + _OTHER_RACE * (persons.head_race[:, None] != households[RACE])


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
    relationship[wrong & (role != HOUSEHOLDER)] = _NONRELATIVE
    return made
