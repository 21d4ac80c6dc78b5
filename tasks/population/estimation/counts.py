"""How the records of some blocks differ from the released ones, by row of `Tables` and kind of
area: what exchanges and moves read and change, in compiled loops.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from ...census.households import HOUSEHOLDER, MALE, Members
from ..workload.household_types import ELDERLY, TYPE, levels_of_age, possible
from ..workload.levels import TOLD, household_levels
from ..workload.person_levels import relationships
from ..workload.places import (
    AGES_OF_RELATIONSHIP,
    FIRST_RELATIONSHIP,
    LAST_RELATIONSHIP,
    OLDEST,
    PARTNERS,
    ROLE_OF_RELATIONSHIP,
    bands_of,
)
from ..workload.tables import (
    BLOCK,
    BLOCK_GROUP,
    TRACT,
    Tables,
    families,
    household_tables,
    person_tables,
)
from .cells import CARRIED, Cells
from .composition import Households
from .placing import Persons


class People(NamedTuple):
    """Members. By their place in a household `(n,)`: the relationship by its place among those of
    `Told`, and its level; the household, whether it is the householder's, whether either sex may
    have it, and the age, sex and person now there. By person: origin, race, and the race that
    householders are counted by; and levels that were released `(n, 5)`.
    """

    code: np.ndarray
    relationship: np.ndarray
    home: np.ndarray
    is_head: np.ndarray
    is_free: np.ndarray
    age: np.ndarray
    sex: np.ndarray
    who: np.ndarray
    origin: np.ndarray
    race: np.ndarray
    head_race: np.ndarray
    released: np.ndarray


class Homes(NamedTuple):
    """Households `(n,)`: the householder's place among the members, oldest member, type, couple
    and own children, and the unit that it lives in. By unit: tenure; and levels that were
    released `(n, 7)`.
    """

    head: np.ndarray
    elderly: np.ndarray
    kind: np.ndarray
    family: np.ndarray
    unit: np.ndarray
    tenure: np.ndarray
    released: np.ndarray


class Counts(NamedTuple):
    """Records more than were released, by row and kind of area `(n_rows, 5)`; and `Tables`."""

    more: np.ndarray
    part: np.ndarray
    weight: np.ndarray
    n_fine: int


class Ages(NamedTuple):
    """Band and householder's level of each age; ages and types that can be `(2, 9, 4, n)`."""

    band: np.ndarray
    level: np.ndarray
    possible: np.ndarray


class Told(NamedTuple):
    """By relationship `(17,)`: its level, role, first and last age."""

    level: np.ndarray
    role: np.ndarray
    first: np.ndarray
    last: np.ndarray


class State(NamedTuple):
    """All that exchanges read and change."""

    told: Told
    people: People
    homes: Homes
    persons: Counts
    households: Counts
    ages: Ages


class Spans(NamedTuple):
    """Blocks of a county: the first person and household of each, and the number of all
    `(n_blocks + 1,)`; number of the tract and block group of each `(n_blocks,)`.
    """

    persons: np.ndarray
    households: np.ndarray
    tract: np.ndarray
    block_group: np.ndarray


def state_of(
    persons: Persons, households: Households, members: Members, spans: Spans, cells: Cells
) -> State:
    """Members of the households of some blocks of a county, and what these and others have changed.

    persons, households : as they were released, in the order of the members and of their units.
    cells : what other blocks of the state and county have changed.
    """
    state = State(
        _told(),
        _people(persons, members),
        _homes(households, members),
        _counts(cells.persons, person_tables()),
        _counts(cells.households, household_tables()),
        _ages(),
    )
    for level in range(CARRIED):
        _add(state, spans, 0, len(spans.tract), level, 1)
    return state


def changed(persons: Persons, households: Households, members: Members, spans: Spans) -> Cells:
    """What some blocks of a county have changed, as that of their state and county."""
    cells = Cells()
    if len(members.age) == 0:
        return cells
    members_of(state_of(persons, households, members, spans, cells), members, cells)
    return cells


def members_of(state: State, members: Members, cells: Cells) -> Members:
    """The members as they now are, given those that `state` was made of; `cells` are brought up to
    date."""
    people = state.people
    cells.persons[:] = state.persons.more[:, :CARRIED]
    cells.households[:] = state.households.more[:, :CARRIED]
    unit, relationship, age, sex = (np.empty(len(members.age), dtype=np.int64) for _ in range(4))
    unit[people.who] = state.homes.unit[people.home]
    relationship[people.who] = people.code + FIRST_RELATIONSHIP
    age[people.who], sex[people.who] = people.age, people.sex + MALE
    return Members(unit, relationship, age, sex, members.hispanic, members.race)


def _people(persons: Persons, members: Members) -> People:
    told = relationships()
    place = members.relationship - FIRST_RELATIONSHIP
    is_alone = (np.bincount(members.unit) == 1)[members.unit]
    is_head = members.relationship == HOUSEHOLDER
    is_partner = np.isin(ROLE_OF_RELATIONSHIP[place], PARTNERS)
    level = np.where(is_head & is_alone, told.alone, told.level[place])
    was = told.level[persons.relationship - FIRST_RELATIONSHIP]
    was = np.where(persons.is_alone, told.alone, was)
    origin, race = persons.hispanic - 1, persons.race - 1
    # Arrays from files cannot be written to, and loops are compiled for those that can.
    return People(
        place,
        level,
        np.array(members.unit),
        is_head,
        ~is_head & ~is_partner,
        np.array(members.age),
        members.sex - MALE,
        np.arange(len(members.age)),
        origin,
        race,
        np.array(persons.head_race),
        np.stack([was, persons.sex - MALE, persons.age, origin, race], axis=1),
    )


def _homes(households: Households, members: Members) -> Homes:
    n = len(households.kind)
    levels = household_levels(members, n)
    heads = np.flatnonzero(members.relationship == HOUSEHOLDER)
    head = np.empty(n, dtype=np.int64)
    head[members.unit[heads]] = heads
    own = households
    kind = levels[TOLD.index(TYPE)]
    released = (own.sex, own.age, own.origin, own.race, own.elderly, own.tenure, own.kind)
    return Homes(
        head,
        levels[TOLD.index(ELDERLY)],
        kind,
        families()[kind],
        np.arange(n),
        np.array(own.tenure),
        np.stack(released, axis=1),
    )


def _counts(carried: np.ndarray, tables: Tables) -> Counts:
    more = np.zeros((tables.n_rows, BLOCK + 1), dtype=np.int32)
    more[:, :CARRIED] = carried
    return Counts(more, tables.part, tables.weight, tables.n_fine)


@cache
def _told() -> Told:
    every = range(FIRST_RELATIONSHIP, LAST_RELATIONSHIP + 1)
    first, last = np.array([AGES_OF_RELATIONSHIP[code] for code in every]).T
    return Told(relationships().level, ROLE_OF_RELATIONSHIP, first.copy(), last.copy())


@cache
def _ages() -> Ages:
    age = np.arange(OLDEST + 1)
    return Ages(bands_of(age), levels_of_age(age), possible())


@njit(cache=True, nogil=True)
def enter(state: State, spans: Spans, block: int) -> None:
    """Count what a block has changed, and its tract and block group where it is their first."""
    for level, area in ((TRACT, spans.tract), (BLOCK_GROUP, spans.block_group)):
        if block == 0 or area[block] != area[block - 1]:
            _add(state, spans, block, _end(area, block), level, 1)
    _add(state, spans, block, block + 1, BLOCK, 1)


@njit(cache=True, nogil=True)
def leave(state: State, spans: Spans, block: int) -> None:
    """Take back what a block has changed, and its tract and block group where it is their last."""
    _add(state, spans, block, block + 1, BLOCK, -1)
    for level, area in ((TRACT, spans.tract), (BLOCK_GROUP, spans.block_group)):
        if block + 1 == area.size or area[block + 1] != area[block]:
            _add(state, spans, _first(area, block), block + 1, level, -1)


@njit(cache=True, nogil=True)
def _first(numbers: np.ndarray, last: int) -> int:
    """Where the equal numbers begin that end with `last`."""
    first = last
    while first > 0 and numbers[first - 1] == numbers[last]:
        first -= 1
    return first


@njit(cache=True, nogil=True)
def _end(numbers: np.ndarray, first: int) -> int:
    """Where the equal numbers end that begin at `first`."""
    end = first
    while end < numbers.size and numbers[end] == numbers[first]:
        end += 1
    return end


@njit(cache=True, nogil=True)
def _add(state: State, spans: Spans, block: int, end: int, level: int, sign: int) -> None:
    """Count what some blocks have changed in areas of a kind, or take it back."""
    people, homes = state.people, state.homes
    for at in range(spans.persons[block], spans.persons[end]):
        for table in range(state.persons.weight.shape[0]):
            before, part = 0, state.persons.part[table]
            for attribute in range(part.shape[0]):
                before += part[attribute, people.released[at, attribute]]
            now = person_row(state, table, at, people.sex[at], people.age[at], people.who[at])
            state.persons.more[before, level] -= sign
            state.persons.more[now, level] += sign
    for home in range(spans.households[block], spans.households[end]):
        for table in range(state.households.weight.shape[0]):
            before, part = 0, state.households.part[table]
            for attribute in range(part.shape[0]):
                before += part[attribute, homes.released[home, attribute]]
            now = row_now(state, table, home)
            state.households.more[before, level] -= sign
            state.households.more[now, level] += sign


@njit(cache=True, nogil=True)
def person_row(state: State, table: int, at: int, sex: int, age: int, who: int) -> int:
    """The row of a member who has these attributes."""
    return row_of(state, table, state.people.relationship[at], sex, age, who)


@njit(cache=True, nogil=True)
def row_of(state: State, table: int, relationship: int, sex: int, age: int, who: int) -> int:
    """The row of who is a person of these attributes."""
    people, part = state.people, state.persons.part[table]
    row = part[0, relationship] + part[1, sex] + part[2, age]
    return row + part[3, people.origin[who]] + part[4, people.race[who]]


@njit(cache=True, nogil=True)
def home_row(state: State, table: int, home: int, age: int, who: int, unit: int) -> int:
    """The row of a household in a unit, whose householder is of an age and who a person is."""
    people, homes, part = state.people, state.homes, state.households.part[table]
    row = part[0, people.sex[homes.head[home]]] + part[1, state.ages.level[age]]
    row += part[2, people.origin[who]] + part[3, people.head_race[who]]
    return (
        row + part[4, homes.elderly[home]] + part[5, homes.tenure[unit]] + part[6, homes.kind[home]]
    )


@njit(cache=True, nogil=True)
def row_now(state: State, table: int, home: int) -> int:
    head = state.homes.head[home]
    age, who = state.people.age[head], state.people.who[head]
    return home_row(state, table, home, age, who, state.homes.unit[home])
