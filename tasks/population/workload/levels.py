"""Attributes of households derived from their members by the declared recodes: the type and the
oldest member in compiled loops, from the number of members in each place.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from ...census.households import HOUSEHOLDER, MALE, Members
from ...tables.columns import CodedColumn
from .household_types import (
    AGE,
    ELDERLY,
    NO_COUPLE,
    OPEN_SIZE,
    ORIGIN,
    RACE,
    SEX,
    TYPE,
    levels_of_age,
    parts_of_types,
    possible,
    universe,
)
from .places import (
    ALONE,
    FIRST_PARTNER,
    GENERATION,
    GROWN,
    LAST_PARTNER,
    N_BANDS,
    OWN_CHILD,
    RELATIVE,
    YOUNG,
    places_of,
)

DERIVED = (SEX, AGE, ORIGIN, RACE, ELDERLY, TYPE)
"""Attributes of households derived from members, all except the tenure."""
_N_RACES = 63
"""Combinations of races."""

N_MEMBERS = ALONE * N_BANDS
"""Places that members are counted by; a person living alone is a householder."""
_MARRIED = 2
"""Kinds of couples below it are married; a spouse is a relative."""


class Types(NamedTuple):
    """The possible types.

    kind : (5, 2, 4, 4, 2, 2, 8) level of the type with a couple, relatives or none, own children
        and children of some ages (1 for under 6, 2 for 6 to 17, 3 for both), minors or none, three
        generations or not, and a size; -1 if impossible.
    possible : (2, 9, 4, n_types) mask of types without a structural zero, by the householder's sex
        and level of age and the oldest member.
    """

    kind: np.ndarray
    possible: np.ndarray


@cache
def types() -> Types:
    """The declared types."""
    kind = np.full((NO_COUPLE + 1, 2, 4, 4, 2, 2, OPEN_SIZE + 1), -1)
    names = ("couple", "kin", "own", "children", "minors", "generations", "size")
    household = tuple(parts_of_types()[name] for name in names)
    kind[household] = np.arange(len(household[0]))
    return Types(kind, possible())


def derived_levels(members: Members, n_units: int) -> np.ndarray:
    """Level of each household in the attributes of `DERIVED` `(6, n_units)` by the declared
    recodes, for households with one householder each; -1 for none.
    """
    heads = members.relationship == HOUSEHOLDER
    unit, found = members.unit[heads], np.full((len(DERIVED), n_units), -1)
    found[DERIVED.index(SEX), unit] = members.sex[heads] - MALE
    found[DERIVED.index(AGE), unit] = levels_of_age(members.age[heads])
    found[DERIVED.index(ORIGIN), unit] = members.hispanic[heads] - 1
    found[DERIVED.index(RACE), unit] = head_races(members.race[heads])
    is_alone = np.zeros(len(members.age), dtype=bool)
    place = places_of(members.relationship, members.age, is_alone)
    by_place = np.bincount(members.unit * N_MEMBERS + place, minlength=n_units * N_MEMBERS)
    derived = _derived_of_all(types(), by_place.reshape(n_units, N_MEMBERS))
    found[[DERIVED.index(TYPE), DERIVED.index(ELDERLY)]] = derived
    return found


@njit(cache=True, nogil=True)
def _derived_of_all(types: Types, by_place: np.ndarray) -> np.ndarray:
    """Types and oldest members `(2, n)` of households."""
    n = by_place.shape[0]
    found = np.empty((2, n), dtype=np.int64)
    for home in range(n):
        own = by_place[home]
        found[0, home], found[1, home] = derived_type(types, own, own.sum())
    return found


@njit(cache=True, nogil=True)
def derived_type(types: Types, members: np.ndarray, size: int) -> tuple[int, int]:
    """Levels of the type and of the oldest member of a household of some size, given the number of
    members in each place `(N_MEMBERS,)`; the first is -1 if no such type exists.
    """
    couple, n_partners, oldest, own, children = NO_COUPLE, 0, 0, 0, 0
    has_minors = has_kin = has_own = has_generation = False
    for place in range(N_MEMBERS):
        n = members[place]
        if n == 0:
            continue
        role, band = place // N_BANDS, place % N_BANDS
        is_minor, age = band < GROWN, 1 if band == YOUNG else 2
        has_minors, oldest = has_minors or is_minor, max(oldest, band - GROWN)
        if FIRST_PARTNER <= role <= LAST_PARTNER:
            couple, n_partners = role - FIRST_PARTNER, n_partners + n
        elif role >= OWN_CHILD:
            has_kin = has_kin or role <= RELATIVE
            has_own = has_own or role == OWN_CHILD
            has_generation = has_generation or role == GENERATION
            if is_minor:
                children |= age
                own |= age if role == OWN_CHILD else 0
    if n_partners > 1:
        return -1, 0
    kin = int(has_kin or couple < _MARRIED)
    three = int(has_own and has_generation)
    level_of_size = min(size, OPEN_SIZE)
    return types.kind[couple, kin, own, children, int(has_minors), three, level_of_size], oldest


def are_possible(levels: np.ndarray) -> np.ndarray:
    """Whether households `(6, n)` of `derived_levels` have an existing type and are in no
    structural zero.
    """
    sex, age, _, _, elderly, kind = levels
    is_whole = (levels >= 0).all(axis=0)
    return is_whole & possible()[sex, age, elderly, kind]


def head_races(race: np.ndarray) -> np.ndarray:
    """The level of race that a householder of each combination of races is counted by."""
    return _head_races()[race]


@cache
def _head_races() -> np.ndarray:
    """That level of each combination; 0 for no race."""
    declared, race = universe(), np.arange(_N_RACES + 1)
    recode = declared.recodes[declared.schema.attributes[RACE]]
    (name,) = recode.columns
    column = CodedColumn(race, tuple(map(str, race.tolist())))
    return recode.evaluate({name: column}, len(race)).astype(np.int64)
