"""Places of members in a household, and the types of households that units are counted by.

A place is a relationship to the householder and a band of ages, numbered `role * N_BANDS + band`; a
set of them is a row of a Boolean matrix. The type of a household depends on persons only through
their places. It is identified by its declared label; the structural zeros of the universe determine
the types possible with the householder's sex and age and the oldest member's age.

Attributes of households are derived from their members by the declared recodes: the type and the
oldest member in compiled loops, from the number of members in each place.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from ...census.census import Universe, preset_census
from ...census.households import ADULT, MALE, SCHOOL, YOUNGEST_HOUSEHOLDER, Members
from ...census.households import HOUSEHOLDER as HOUSEHOLDER_CODE
from ...census.queries import Schema
from ...tables.columns import CodedColumn

HOUSEHOLDER, OWN_CHILD, GENERATION, RELATIVE, NONRELATIVE, ALONE = 0, 5, 6, 7, 8, 9
"""Roles: householder, own child, parent or grandchild, other relative, nonrelative, and householder
who lives alone."""
N_ROLES = 10
HOUSEHOLDERS = (HOUSEHOLDER, ALONE)
PARTNERS = (1, 2, 3, 4)
"""Roles of spouses of the other and of the same sex, and of such partners, in the order of CPLT."""
FIRST_PARTNER, LAST_PARTNER = PARTNERS[0], PARTNERS[-1]

FIRST_RELATIONSHIP, LAST_RELATIONSHIP = 20, 36
ROLE_OF_RELATIONSHIP = np.array([0, 1, 3, 2, 4, 5, 5, 5, 7, 6, 6, 6, 7, 7, 8, 8, 8])
"""Role of RELSHIP 20 to 36."""

BAND_STARTS = (0, SCHOOL, YOUNGEST_HOUSEHOLDER, ADULT, 60, 65, 75)
OLDEST = 115
N_BANDS, N_PLACES = len(BAND_STARTS), N_ROLES * len(BAND_STARTS)
YOUNG, SCHOOLCHILD, TEENAGER, GROWN = 0, 1, 2, 3
"""Bands below 18, and the first one from 18 on."""
ADULT_BANDS = (3, 4, 5, 6)

AGES_OF_RELATIONSHIP = {
    **dict.fromkeys((20, 21, 22, 23, 24), (YOUNGEST_HOUSEHOLDER, OLDEST)),
    **dict.fromkeys((25, 26, 27), (0, 89)),
    **dict.fromkeys((29, 31), (30, OLDEST)),
    30: (0, 74),
    32: (15, 89),
    35: (0, 20),
    **dict.fromkeys((28, 33, 34, 36), (0, OLDEST)),
}
"""First and last age of each RELSHIP allowed by the persons' structural zeros."""

_RANK = (20, 21, 23, 22, 24, 25, 26, 27, 28, 33, 32, 29, 31, 30, 34, 36, 35)
"""Relationships in the order of choice for persons who change into a role."""

_CHANGED_ROLE, _CHANGED_KIND, _OTHER_HOUSEHOLDER = 1.0, 0.9, 0.8
_BETWEEN_BANDS = (0.6, 0.1, 0.0, 0.5, 0.4, 0.4)
"""Cost of crossing each border of bands; the border between minors and adults is never crossed."""


def bands_of(age: np.ndarray) -> np.ndarray:
    """Band of each age."""
    return np.searchsorted(BAND_STARTS, age, side="right") - 1


def places_of(relationship: np.ndarray, age: np.ndarray, is_alone: np.ndarray) -> np.ndarray:
    """Place of each person in a household; `is_alone` (n,) marks householders who live alone."""
    role = ROLE_OF_RELATIONSHIP[relationship - FIRST_RELATIONSHIP]
    return np.where(is_alone, ALONE, role) * N_BANDS + bands_of(age)


def place_set(roles: tuple[int, ...], bands: tuple[int, ...]) -> np.ndarray:
    """Mask `(N_PLACES,)` of the places of some roles in some bands."""
    mask = np.zeros((N_ROLES, N_BANDS), dtype=bool)
    mask[np.ix_(roles, bands)] = True
    return mask.ravel()


@cache
def distances() -> np.ndarray:
    """Cost of moving a person from a place to another `(N_PLACES, N_PLACES)`.

    Infinite between minors and adults, whose numbers a redistricting release states, and to
    impossible places. Relatives differ less from each other than from others.
    """
    role, band = np.divmod(np.arange(N_PLACES), N_BANDS)
    is_head = np.isin(role, HOUSEHOLDERS)
    kin = np.select([is_head, role <= PARTNERS[-1], role <= RELATIVE], [0, 1, 2], 3)
    roles = np.where(kin[:, None] == kin, _CHANGED_KIND, _CHANGED_ROLE)
    roles[is_head[:, None] & is_head] = _OTHER_HOUSEHOLDER
    roles[role[:, None] == role] = 0.0
    at = np.append(0.0, np.cumsum(_BETWEEN_BANDS))[band]
    cost = roles + abs(at[:, None] - at)
    is_minor = band < GROWN
    cost[is_minor[:, None] != is_minor] = np.inf
    too_young = (is_head | (role <= PARTNERS[-1])) & (band < TEENAGER)
    cost[:, too_young] = np.inf
    return cost


def fit_to_places(
    relationship: np.ndarray, age: np.ndarray, place_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """RELSHIP and age of persons in places `(n,)`, changed as little as the places need.

    Sorted by age, then the person's relationship, then the order of a list. Raises
    ValueError for a place that has no relationship.
    """
    role, band = np.divmod(place_of, N_BANDS)
    role = np.where(role == ALONE, HOUSEHOLDER, role)
    codes = np.array(_RANK)
    youngest, oldest = np.array([AGES_OF_RELATIONSHIP[code] for code in _RANK]).T
    ends = np.append(BAND_STARTS[1:], OLDEST + 1)
    lowest = np.maximum(np.array(BAND_STARTS)[band][:, None], youngest)
    highest = np.minimum(ends[band][:, None] - 1, oldest)
    is_role = ROLE_OF_RELATIONSHIP[codes - FIRST_RELATIONSHIP] == role[:, None]
    is_possible = is_role & (lowest <= highest)
    if not is_possible.any(axis=1).all():
        raise ValueError("a place has no relationship at its ages")
    new_age = np.clip(age[:, None], lowest, highest)
    cost = 100 * abs(new_age - age[:, None]) + 50 * (codes != relationship[:, None])
    cost = np.where(is_possible, cost + np.arange(len(codes)), np.inf)
    chosen, rows = cost.argmin(axis=1), np.arange(len(age))
    return codes[chosen], new_age[rows, chosen]


CENSUS, HOUSEHOLDS, UNITS = "dhc_units_2020", "households", "units"
SEX, AGE, ORIGIN, RACE, ELDERLY, TENURE, TYPE = range(7)
"""Places of the attributes in the schema of households."""

COUPLES = (
    "married opposite",
    "married same",
    "cohabiting opposite",
    "cohabiting same",
    "no couple",
)
MARRIED, NO_COUPLE = (0, 1), 4
"""Kinds of couples."""
OPEN_SIZE = 7
"""The size that represents itself and all larger ones."""

_AGES = {"none": 0, "under 6": 1, "6 to 17": 2, "of both ages": 3}
"""Ages of children as they are numbered in types, each age a bit."""

FIRST_AGES = (15, 25, 35, 45, 55, 60, 65, 75, 85)
"""First age of each level of a householder's age."""


def levels_of_age(age: np.ndarray) -> np.ndarray:
    """Level of a householder of each age; -1 for ages too young."""
    return np.searchsorted(FIRST_AGES, age, side="right") - 1


class HouseholdType(NamedTuple):
    """Attributes of a type: couple; whether relatives live there, as in every marriage; ages of own
    children and of all children, 1 under 6, 2 from 6 to 17, 3 of both ages; whether anyone is a
    minor; whether three generations; size.
    """

    couple: int
    relatives: int
    own: int
    children: int
    minors: int
    generations: int
    size: int


def type_of_label(label: str) -> HouseholdType:
    """The type of a label.

    >>> label = "no couple; relatives; own under 6; children of both ages; minors; size 4"
    >>> type_of_label(label).own
    1
    """
    size = re.search(r"; size (\d)\+?$", label)
    if size is None:
        raise ValueError(f"{label!r} has no size")
    couple, relatives, own, children, minors, *rest = label.split("; ")
    return HouseholdType(
        COUPLES.index(couple),
        int(relatives == "relatives"),
        _AGES[own.removeprefix("own ")],
        _AGES[children.removeprefix("children ")],
        int(minors == "minors"),
        int("three generations" in rest),
        int(size[1]),
    )


def minor_bands(ages: int) -> tuple[int, ...]:
    """Bands of places of children of some ages, numbered as in types."""
    return (YOUNG,) * (ages & 1) + (SCHOOLCHILD, TEENAGER) * (ages >> 1)


def universe() -> Universe:
    """The declared universe of households."""
    return preset_census(CENSUS).universes[HOUSEHOLDS]


def unit_kinds() -> Schema:
    """Attributes that units are counted by: tenure, kind of vacancy, or type of group quarters."""
    return preset_census(CENSUS).universes[UNITS].schema


@cache
def household_types() -> tuple[HouseholdType, ...]:
    """All types, in the order of their levels."""
    schema = universe().schema
    return tuple(type_of_label(label) for label in schema.labels(schema.attributes[TYPE]))


@cache
def parts_of_types() -> dict[str, np.ndarray]:
    """Attributes of all types `(n_types,)`, by name."""
    return dict(zip(HouseholdType._fields, np.array(household_types()).T, strict=True))


DERIVED = (SEX, AGE, ORIGIN, RACE, ELDERLY, TYPE)
"""Attributes of households derived from members, all except the tenure."""
_N_RACES = 63
"""Combinations of races."""

N_MEMBERS = ALONE * N_BANDS
"""Places that members are counted by; a person living alone is a householder."""


class Types(NamedTuple):
    """The possible types.

    kind : (5, 2, 4, 4, 2, 2, 8) level of the type with a couple, relatives or none, own children
        and children of some ages (1 for under 6, 2 for 6 to 17, 3 for both), minors or none, three
        generations or not, and a size; -1 if impossible.
    possible : (2, 9, 4, 522) mask of the combinations of the householder's sex and level of age,
        the oldest member and the type that no structural zero excludes.
    """

    kind: np.ndarray
    possible: np.ndarray


@cache
def types() -> Types:
    """The declared types."""
    kind = np.full((NO_COUPLE + 1, 2, 4, 4, 2, 2, OPEN_SIZE + 1), -1)
    kind[tuple(parts_of_types().values())] = np.arange(len(household_types()))
    schema = universe().schema
    own = schema.of([schema.attributes[axis] for axis in (SEX, AGE, ELDERLY, TYPE)])
    possible = np.ones(own.shape, dtype=bool)
    for zero in universe().zeros:
        possible &= ~own.cells_where(zero.where).reshape(own.shape)
    return Types(kind, possible)


def derived_levels(members: Members, n_units: int) -> np.ndarray:
    """Level of each household in the attributes of `DERIVED` `(6, n_units)` by the declared
    recodes, for households with one householder each; -1 for none.
    """
    heads = members.relationship == HOUSEHOLDER_CODE
    unit, found = members.unit[heads], np.full((len(DERIVED), n_units), -1)
    found[DERIVED.index(SEX), unit] = members.sex[heads] - MALE
    found[DERIVED.index(AGE), unit] = levels_of_age(members.age[heads])
    found[DERIVED.index(ORIGIN), unit] = members.hispanic[heads] - 1
    found[DERIVED.index(RACE), unit] = head_races()[members.race[heads]]
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
    kin = int(has_kin or couple in MARRIED)
    three = int(has_own and has_generation)
    level_of_size = min(size, OPEN_SIZE)
    return types.kind[couple, kin, own, children, int(has_minors), three, level_of_size], oldest


def are_possible(levels: np.ndarray) -> np.ndarray:
    """Whether households `(6, n)` of `derived_levels` have an existing type and are in no
    structural zero.
    """
    sex, age, _, _, elderly, kind = levels
    is_whole = (levels >= 0).all(axis=0)
    return is_whole & types().possible[sex, age, elderly, kind]


@cache
def head_races() -> np.ndarray:
    """The level of race that a householder of each combination of races is counted by; 0 for no
    race.
    """
    declared, race = universe(), np.arange(_N_RACES + 1)
    recode = declared.recodes[declared.schema.attributes[RACE]]
    (name,) = recode.columns
    column = CodedColumn(race, tuple(map(str, race.tolist())))
    return recode.evaluate({name: column}, len(race)).astype(np.int64)
