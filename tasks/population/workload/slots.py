"""Slots of a household of each type, sets of places for its members: filled, they make the type.

Free slots leave a choice that may change the type. Slots required by a type precede slots of
further members. Attributes of a household follow from its members at last
(`levels.derived_levels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from .household_types import OPEN_SIZE, HouseholdType, household_types, minor_bands
from .places import (
    ADULT_BANDS,
    ALONE,
    GENERATION,
    HOUSEHOLDER,
    N_BANDS,
    NONRELATIVE,
    OWN_CHILD,
    PARTNERS,
    RELATIVE,
    TEENAGER,
    distances,
    place_set,
)

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
    types, number, masks = household_types(), dict[bytes, int](), list[np.ndarray]()

    def number_of(mask: np.ndarray) -> int:
        if mask.tobytes() not in number:
            number[mask.tobytes()] = len(masks)
            masks.append(mask)
        return number[mask.tobytes()]

    of_type = np.full((len(types), _N_ELDERLY, OPEN_SIZE), -1)
    n_needed, free = np.zeros(len(types), dtype=np.int64), of_type[:, :, 0].copy()
    for kind, one in enumerate(types):
        for elderly in range(_N_ELDERLY):
            adults = ADULT_BANDS[: 1 + elderly]
            needed = _required_members(one, adults)
            free[kind, elderly] = number_of(_free(one, adults))
            own = [number_of(mask) for mask in needed]
            own += [free[kind, elderly]] * (one.size - len(own))
            of_type[kind, elderly, : one.size] = own
        n_needed[kind] = len(needed)
    reach = np.where(np.array(masks), distances()[:, None], np.inf)
    return Slots(of_type, n_needed, free, reach.min(axis=2), reach.argmin(axis=2))


def _required_members(one: HouseholdType, adults: tuple[int, ...]) -> list[np.ndarray]:
    """Masks of the members required by a type, the householder first."""
    roles, bands = _roles(one), (*minor_bands(one.children), *adults)
    found = [place_set((HOUSEHOLDER if one.size > 1 else ALONE,), (TEENAGER, *ADULT_BANDS))]
    if one.is_couple:
        found.append(place_set((PARTNERS[one.couple],), adults))
    found += [place_set((OWN_CHILD,), minor_bands((age,))) for age in one.own]
    kin: tuple[int, ...] = ()
    if one.is_multigenerational:
        kin = (GENERATION,)
        found += [] if one.own else [place_set((OWN_CHILD,), adults)]
    elif one.has_relatives and not (one.is_married or one.own):
        kin = (GENERATION, RELATIVE)
    further = [age for age in one.children if age not in one.own]
    children = [place_set(roles, minor_bands((age,))) for age in further]
    if kin and len(found) + len(children) < one.size:
        grown = () if one.is_multigenerational else (OWN_CHILD,)
        children.append(place_set(kin, bands) | place_set(grown, adults))
    elif kin:
        # One of the children is the relative, or the third generation.
        children[0] = place_set(kin, minor_bands((further[0],)))
    return [*found, *children]


def _free(one: HouseholdType, adults: tuple[int, ...]) -> np.ndarray:
    """Mask of the places of further members."""
    roles = _roles(one)
    grown = (OWN_CHILD, *roles) if len(roles) > 1 else roles
    mask = place_set(grown, adults) | place_set(roles, minor_bands(one.children))
    return mask | place_set((OWN_CHILD,), minor_bands(one.own))


def _roles(one: HouseholdType) -> tuple[int, ...]:
    """Roles of members who are neither householder, partner nor own child."""
    if not (one.has_relatives or one.is_married):
        return (NONRELATIVE,)
    has_generation = one.is_multigenerational or not one.own
    return (GENERATION, RELATIVE, NONRELATIVE) if has_generation else (RELATIVE, NONRELATIVE)


@cache
def anywhere() -> tuple[np.ndarray, np.ndarray]:
    """Cost of a person of each place as a further member of any type, and the nearest such place
    `(n_places,)`.
    """
    reach = np.where(place_set(_OTHERS, tuple(range(N_BANDS))), distances(), np.inf)
    return reach.min(axis=1), reach.argmin(axis=1)
