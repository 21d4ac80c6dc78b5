"""Patterns: the places of which a household of each type and age of the householder can be made.

A pattern has one slot for every member, and a slot is a set of places. Whoever fills each slot of a
pattern with a person in one of its places has made a household of the pattern's type: what must be
there has a slot of its own, and no other slot has a place that the type excludes. A type may have
several patterns: who is the oldest, who is the relative, who the third generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product

import numpy as np
from scipy import sparse

from .household_types import (
    HEAD_BANDS,
    OPEN_SIZE,
    HouseholdType,
    household_types,
    minor_bands,
    possible,
)
from .places import (
    ADULT_BANDS,
    ALONE,
    GENERATION,
    GROWN,
    HOUSEHOLDER,
    NONRELATIVE,
    OWN_CHILD,
    PARTNERS,
    RELATIVE,
    TEENAGER,
    place_set,
)

Slot = tuple[tuple[int, ...], tuple[int, ...]]
"""Roles and bands of a slot."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What patterns can make of a household, whoever fills them.

    kind, elderly : (n,) level of the type, and of the oldest member.
    band : (n,) band of the householder's age.
    first, last : (2, n) by sex, the levels of the householder's age within the band that no
        structural zero excludes; where all are excluded `first` is above `last`.
    """

    kind: np.ndarray
    elderly: np.ndarray
    band: np.ndarray
    first: np.ndarray
    last: np.ndarray


@dataclass(frozen=True, eq=False)
class Patterns:
    """All patterns.

    outcomes : what some of them make. outcome : (n,) which of these each makes.
    slots : (n, n_slots) how many of each slot of the catalogue a pattern has.
    open_slot : (n,) the slot of members beyond the seventh; -1 where the size is not open.
    masks : (n_slots, N_PLACES) the places of every slot of the catalogue.
    """

    outcomes: Outcomes
    outcome: np.ndarray
    slots: sparse.csr_array
    open_slot: np.ndarray
    masks: np.ndarray

    @cached_property
    def kind(self) -> np.ndarray:
        """Type that each pattern makes `(n,)`."""
        return self.outcomes.kind[self.outcome]

    @cached_property
    def first(self) -> np.ndarray:
        """First level of the householder's age of each pattern, by sex `(2, n)`."""
        return self.outcomes.first[:, self.outcome]

    @cached_property
    def last(self) -> np.ndarray:
        """Last level of the householder's age of each pattern, by sex `(2, n)`."""
        return self.outcomes.last[:, self.outcome]


class Catalogue:
    """Slots by number, in the order in which they came up."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Slot, ...], int] = {}
        self._number: dict[bytes, int] = {}
        self._masks: list[np.ndarray] = []

    def number(self, slots: tuple[Slot, ...]) -> int:
        """Number of the union of some sets of places."""
        if slots not in self._numbers:
            mask = np.any([place_set(roles, bands) for roles, bands in slots], axis=0)
            number = self._number.setdefault(mask.tobytes(), len(self._masks))
            if number == len(self._masks):
                self._masks.append(mask)
            self._numbers[slots] = number
        return self._numbers[slots]

    @property
    def masks(self) -> np.ndarray:
        """Places of every slot `(n_slots, N_PLACES)`."""
        return np.array(self._masks)


Row = tuple[int, int, int, tuple[int, ...], int]
"""Type, oldest member, band of the householder, slots, and open slot of a pattern."""


@cache
def book() -> Patterns:
    """All patterns of householders of all ages."""
    catalogue = Catalogue()
    rows = [row for band in (TEENAGER, *ADULT_BANDS) for row in _rows(band, catalogue)]
    number = np.repeat(np.arange(len(rows)), [len(row[3]) for row in rows])
    slot = np.concatenate([row[3] for row in rows])
    masks = catalogue.masks
    counts = sparse.coo_array((np.ones(len(slot)), (number, slot)), shape=(len(rows), len(masks)))
    made = np.array([row[:3] for row in rows])
    (kind, elderly, band), outcome = np.unique(made.T, axis=1, return_inverse=True)
    outcomes = Outcomes(kind, elderly, band, *_head_levels(kind, elderly, band))
    open_slot = np.array([row[4] for row in rows])
    return Patterns(outcomes, outcome.reshape(-1), sparse.csr_array(counts), open_slot, masks)


def _head_levels(
    kind: np.ndarray, elderly: np.ndarray, band: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """First and last level of a householder's age that each outcome may have, by sex `(2, n)`.

    Raises ValueError where there are gaps between them.
    """
    level = np.arange(len(HEAD_BANDS))
    of_band = (np.array(HEAD_BANDS) == band[:, None]) | ((band == TEENAGER)[:, None] & (level == 0))
    found = []
    for sex in range(2):
        fits = of_band & possible()[sex][:, elderly, kind].T
        first = np.where(fits.any(axis=1), fits.argmax(axis=1), len(level))
        last = np.where(fits.any(axis=1), len(level) - 1 - fits[:, ::-1].argmax(axis=1), -1)
        if (fits.sum(axis=1) != np.maximum(last - first + 1, 0)).any():
            raise ValueError("ages of householders of a type have gaps")
        found.append((first, last))
    return np.array([one for one, _ in found]), np.array([one for _, one in found])


def _rows(band: int, catalogue: Catalogue) -> Iterator[Row]:
    """Every pattern of householders in a band."""
    is_minor = band == TEENAGER
    alone = catalogue.number((((ALONE,), (band,)),))
    kinds: dict[HouseholdType, list[tuple[int, int]]] = {}
    for kind, household in enumerate(household_types()):
        kinds.setdefault(replace(household, size=0), []).append((household.size, kind))
    for household, sizes in kinds.items():
        for elderly in range(4):
            if not household.has_minors if is_minor else band - GROWN > elderly:
                continue
            ways = {
                (tuple(sorted(map(catalogue.number, slots))), catalogue.number(free))
                for slots, free in _ways(household, band, elderly)
            }
            for (numbers, free), (size, kind) in product(sorted(ways), sizes):
                if size >= len(numbers):
                    every = (*numbers, *(free,) * (size - len(numbers))) if size > 1 else (alone,)
                    yield kind, elderly, band, every, free if size == OPEN_SIZE else -1


def _ways(
    household: HouseholdType, band: int, elderly: int
) -> Iterator[tuple[list[tuple[Slot, ...]], tuple[Slot, ...]]]:
    """Slots of the members who must be there, and the slot of all further ones.

    band : of the householder's age.
    """
    adults = ADULT_BANDS[: 1 + elderly]
    oldest, is_minor = adults[-1], band == TEENAGER
    first: list[tuple[Slot, ...]] = [(((HOUSEHOLDER,), (band,)),)]
    has_oldest = band == oldest or elderly == 0
    lone_minor = household.has_minors and not household.children and not is_minor
    if lone_minor and not household.is_couple:
        return
    # A minor whom no child is there to be can only be the householder or the partner.
    bands = (TEENAGER,) if lone_minor else adults
    if household.has_minors and not lone_minor:
        bands = (TEENAGER, *adults)
    role = (PARTNERS[household.couple],) if household.is_couple else ()
    partner: list[tuple[Slot, ...]] = [((role, bands),)] if role else []
    for others, free in _others(household, adults):
        if has_oldest:
            yield [*first, *partner, *others], free
            continue
        required = [*partner, *others]
        for at, slot in enumerate(required):
            older = _in_band(slot, oldest)
            if older:
                yield [*first, *required[:at], older, *required[at + 1 :]], free
        older = _in_band(free, oldest)
        if older:
            yield [*first, *required, older], free


def _in_band(slot: tuple[Slot, ...], band: int) -> tuple[Slot, ...]:
    """The places of a slot in one band."""
    return tuple((roles, (band,)) for roles, bands in slot if band in bands)


def _others(
    household: HouseholdType, adults: tuple[int, ...]
) -> Iterator[tuple[list[tuple[Slot, ...]], tuple[Slot, ...]]]:
    """Slots of children, relatives and generations that must be there, and of further members."""
    kin_allowed = household.has_relatives or household.is_married
    needs_kin = household.has_relatives and not household.is_married and not household.own
    own = [(((OWN_CHILD,), minor_bands((age,))),) for age in household.own]
    further_ages = tuple(age for age in household.children if age not in household.own)
    if household.is_multigenerational:
        own_adult = [] if household.own else [(((OWN_CHILD,), adults),)]
        roles: tuple[int, ...] = (GENERATION, RELATIVE, NONRELATIVE)
        free = _free(household, adults, roles, has_own_adults=True)
        children = {age: ((roles, minor_bands((age,))),) for age in further_ages}
        yield [*own, *own_adult, *children.values(), (((GENERATION,), adults),)], free
        for age in household.children:
            rest = [slot for other, slot in children.items() if other != age]
            yield [*own, *own_adult, *rest, (((GENERATION,), minor_bands((age,))),)], free
        return
    for has_generations in (True, False):
        if has_generations and (household.own or not kin_allowed):
            continue
        kin: tuple[int, ...] = ()
        if kin_allowed:
            kin = (GENERATION, RELATIVE) if has_generations else (RELATIVE,)
        has_own_adults = kin_allowed and not has_generations
        free = _free(household, adults, (*kin, NONRELATIVE), has_own_adults=has_own_adults)
        children = {age: (((*kin, NONRELATIVE), minor_bands((age,))),) for age in further_ages}
        if not needs_kin:
            yield [*own, *children.values()], free
            continue
        grown = (*kin, OWN_CHILD) if has_own_adults else kin
        yield [*children.values(), ((grown, adults),)], free
        for age in further_ages:
            rest = [slot for other, slot in children.items() if other != age]
            yield [*rest, ((kin, minor_bands((age,))),)], free


def _free(
    household: HouseholdType,
    adults: tuple[int, ...],
    roles: tuple[int, ...],
    *,
    has_own_adults: bool,
) -> tuple[Slot, ...]:
    """The slot of members whom the type does not ask for."""
    if not (household.has_relatives or household.is_married):
        roles = (NONRELATIVE,)
    slots: list[Slot] = [((*roles, OWN_CHILD) if has_own_adults else roles, adults)]
    if household.children:
        slots.append((roles, minor_bands(household.children)))
    if household.own:
        slots.append(((OWN_CHILD,), minor_bands(household.own)))
    return tuple(slots)
