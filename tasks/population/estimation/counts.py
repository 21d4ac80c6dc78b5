"""Members of households of some blocks, and how tables of them differ from the released ones, by
row of `Tables` and kind of area, for the compiled loops of a search.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from ...census.households import HOUSEHOLDER, MALE, Members
from ..workload.household_types import (
    AGES_OF_RELATIONSHIP,
    DERIVED,
    ELDERLY,
    FIRST_RELATIONSHIP,
    LAST_RELATIONSHIP,
    N_BANDS,
    N_MEMBERS,
    OLDEST,
    PARTNERS,
    ROLE_OF_RELATIONSHIP,
    TENURE,
    TYPE,
    Types,
    bands_of,
    derived_levels,
    levels_of_age,
    types,
)
from ..workload.person_levels import levels_of, relationships
from ..workload.tables import BLOCK, STATE, TRACT, Tables, household_tables, person_tables
from .start import Persons

N_LEVELS = BLOCK + 1
FIRST_AREA = TRACT
"""First of the kinds of areas that are counted during the pass over their blocks."""


class People(NamedTuple):
    """Members, `(n,)` each. By their place in a household: the code of the relationship, from 0 on,
    and its level; the household; whether it is the householder's; the age, sex and person now
    there. By person: origin, race, and the race that householders are counted by.
    """

    code: np.ndarray
    relationship: np.ndarray
    home: np.ndarray
    is_head: np.ndarray
    age: np.ndarray
    sex: np.ndarray
    who: np.ndarray
    origin: np.ndarray
    race: np.ndarray
    head_race: np.ndarray


class Homes(NamedTuple):
    """Households, `(n,)` each: place of the householder and of the spouse or partner among the
    members, -1 without one; size; how many have each place `(n, N_MEMBERS)`; oldest member, type,
    unit. By unit: tenure.
    """

    head: np.ndarray
    partner: np.ndarray
    size: np.ndarray
    members: np.ndarray
    elderly: np.ndarray
    kind: np.ndarray
    unit: np.ndarray
    tenure: np.ndarray


class Counts(NamedTuple):
    """Tables of a universe: records more than were released `(n_rows, 5)` by row and kind of area.

    step : (n_rows, 2) by how much the weighted sum of differences grows if a record leaves or
        enters a row. rows, released : (n_records, n_tables) rows of each record, current and
        released. new : (3, n_tables) rows of up to three records after a change. part :
        (n_attributes, n_levels, n_tables) summands of a row by level. weight : (n_tables, 5).
        n_fine : tables before the coarse ones.
    """

    more: np.ndarray
    step: np.ndarray
    rows: np.ndarray
    released: np.ndarray
    new: np.ndarray
    part: np.ndarray
    weight: np.ndarray
    first_rows: np.ndarray
    n_fine: int


class Codes(NamedTuple):
    """By code of a relationship `(17,)`: level, role, first and last age. By age: band, and level
    of a householder. The level of a relationship of householders who live alone; numbers of the
    tables of persons by relationship and by age, and of households by size.
    """

    level: np.ndarray
    role: np.ndarray
    first: np.ndarray
    last: np.ndarray
    band: np.ndarray
    head_level: np.ndarray
    alone: int
    by_kind: int
    by_age: int
    by_size: int


class State(NamedTuple):
    """State of a search."""

    codes: Codes
    types: Types
    people: People
    homes: Homes
    persons: Counts
    households: Counts


class Spans(NamedTuple):
    """Blocks of a county: the first person and household of each, and the number of all
    `(n_blocks + 1,)`; the first block of the tract, block group and block of each, and the one
    after the last `(3, n_blocks)`.
    """

    persons: np.ndarray
    households: np.ndarray
    first: np.ndarray
    end: np.ndarray


Surplus = np.ndarray | int
"""Records more than were released in a state, by row of the tables of persons and then of
households; 0 for none."""


def surplus_of(state: State) -> np.ndarray:
    """The surplus of a state, the rest of it included."""
    return np.concatenate([own.more[:, STATE] for own in (state.persons, state.households)])


def state_of(
    persons: Persons, households: np.ndarray, members: Members, others: Surplus = 0
) -> State:
    """Members of the households of some blocks of a county.

    persons : released ones, in the order of the members.
    households : (7, n) levels of the released households, in the order of units.
    others : surplus of records in the rest of the state.
    """
    n_rows = person_tables().n_rows, household_tables().n_rows
    more = np.split(np.broadcast_to(others, sum(n_rows)), [n_rows[0]])
    known, code = relationships(), members.relationship - FIRST_RELATIONSHIP
    n = households.shape[1]
    every = range(FIRST_RELATIONSHIP, LAST_RELATIONSHIP + 1)
    first, last = np.array([AGES_OF_RELATIONSHIP[one] for one in every]).T
    ages = np.arange(OLDEST + 1)
    codes = Codes(
        known.level,
        ROLE_OF_RELATIONSHIP,
        first.copy(),
        last.copy(),
        bands_of(ages),
        levels_of_age(ages),
        known.alone,
        person_tables().names.index("relgq * sex"),
        person_tables().names.index("age * sex"),
        household_tables().names.index("hhtenshort_2lev * size"),
    )
    size, is_head = np.bincount(members.unit, minlength=n), members.relationship == HOUSEHOLDER
    level, sex, age, origin, race = levels_of(members, size)
    role = ROLE_OF_RELATIONSHIP[code]
    head, partner = np.full((2, n), -1)
    for one, are in ((head, is_head), (partner, np.isin(role, PARTNERS))):
        one[members.unit[are]] = np.flatnonzero(are)
    place = members.unit * N_MEMBERS + role * N_BANDS + bands_of(members.age)
    by_place = np.bincount(place, minlength=n * N_MEMBERS).reshape(n, N_MEMBERS).astype(np.int16)
    derived = derived_levels(members, n)
    was = known.level[persons.relationship - FIRST_RELATIONSHIP]
    was = np.where(persons.is_alone, known.alone, was)
    now = households.copy()
    now[list(DERIVED)] = derived
    # Arrays from files cannot be written to, and loops are compiled for writable ones.
    return State(
        codes,
        types(),
        People(
            code,
            level,
            np.array(members.unit),
            is_head,
            np.array(members.age),
            sex.copy(),
            np.arange(len(code)),
            origin,
            race,
            np.array(persons.head_race),
        ),
        Homes(
            head,
            partner,
            size,
            by_place,
            now[ELDERLY].copy(),
            now[TYPE].copy(),
            np.arange(n),
            now[TENURE].copy(),
        ),
        _counts(
            person_tables(),
            (was, persons.sex - MALE, persons.age, origin, race),
            (level, sex, age, origin, race),
            more[0],
        ),
        _counts(household_tables(), households, now, more[1]),
    )


def members_of(state: State, members: Members) -> Members:
    """The current members, given the initial ones of `state`."""
    people = state.people
    unit, relationship, age, sex = (np.empty(len(members.age), dtype=np.int64) for _ in range(4))
    unit[people.who] = state.homes.unit[people.home]
    relationship[people.who] = people.code + FIRST_RELATIONSHIP
    age[people.who], sex[people.who] = people.age, people.sex + MALE
    return Members(unit, relationship, age, sex, members.hispanic, members.race)


def weigh(counts: Counts, weight: np.ndarray) -> None:
    """Set the weights of differences in tables, `(n_tables, 5)`."""
    counts.weight[:] = weight
    for table, own in enumerate(weight):
        rows = slice(*counts.first_rows[table : table + 2])
        more = counts.more[rows]
        counts.step[rows, 0] = np.where(more > 0, -1, 1) @ own
        counts.step[rows, 1] = np.where(more < 0, -1, 1) @ own


def _counts(
    tables: Tables,
    released: Iterable[np.ndarray],
    now: Iterable[np.ndarray],
    of_others: np.ndarray,
) -> Counts:
    """Tables of records of these levels, of which state and county are counted."""
    part = np.ascontiguousarray(tables.part.transpose(1, 2, 0))
    own_rows, was = (
        np.sum([one[own] for one, own in zip(part, levels, strict=True)], axis=0)
        for levels in (now, released)
    )
    counted, before = (np.bincount(one.ravel(), minlength=tables.n_rows) for one in (own_rows, was))
    more = np.zeros((tables.n_rows, N_LEVELS), dtype=np.int32)
    more[:, :FIRST_AREA] = (counted - before)[:, None]
    more[:, 0] += of_others
    return Counts(
        more,
        np.zeros((tables.n_rows, 2), dtype=np.int64),
        own_rows,
        was,
        np.zeros((3, len(tables.names)), dtype=np.int64),
        part,
        np.array(tables.weight),
        tables.first_rows,
        tables.n_fine,
    )


@njit(cache=True, nogil=True)
def set_step(counts: Counts, table: int, row: int) -> None:
    """Compute the growth of the sum if a record leaves or enters a row."""
    out = into = 0
    for level in range(N_LEVELS):
        d, weight = counts.more[row, level], counts.weight[table, level]
        out += -weight if d > 0 else weight
        into += -weight if d < 0 else weight
    counts.step[row, 0], counts.step[row, 1] = out, into


@njit(cache=True, nogil=True)
def shift(counts: Counts, table: int, a: int, c: int) -> None:
    """Move a record from row a to row c, for all kinds of areas."""
    if a != c:
        for level in range(N_LEVELS):
            counts.more[a, level] -= 1
            counts.more[c, level] += 1
        set_step(counts, table, a)
        set_step(counts, table, c)


@njit(cache=True, nogil=True)
def growth(counts: Counts, a: int, c: int) -> int:
    """Growth of the sum if a record moves from row a to row c."""
    return 0 if a == c else counts.step[a, 0] + counts.step[c, 1]


@njit(cache=True, nogil=True)
def growth_of_two(counts: Counts, table: int, a: int, c: int, b: int, d: int) -> int:
    """Growth of the sum if two records move from rows a and b to rows c and d."""
    if a == d:
        return growth(counts, b, c)
    if b == c:
        return growth(counts, a, d)
    grown = growth(counts, a, c) + growth(counts, b, d)
    if a == c or b == d:
        return grown
    # Where both leave or enter one row, the second may have no difference left to reduce.
    for level in range(N_LEVELS):
        weight = counts.weight[table, level]
        if a == b and counts.more[a, level] == 1:
            grown += 2 * weight
        if c == d and counts.more[c, level] == -1:
            grown += 2 * weight
    return grown


@njit(cache=True, nogil=True)
def count_areas(state: State, spans: Spans, block: int, is_begun: bool) -> None:
    """Count the changes of areas that begin with a block, or take them back where areas end with
    it."""
    for level in range(spans.first.shape[0]):
        first, end = spans.first[level, block], spans.end[level, block]
        if block != (first if is_begun else end - 1):
            continue
        sign = 1 if is_begun else -1
        _count(state.persons, spans.persons[first], spans.persons[end], FIRST_AREA + level, sign)
        _count(
            state.households,
            spans.households[first],
            spans.households[end],
            FIRST_AREA + level,
            sign,
        )


@njit(cache=True, nogil=True)
def _count(counts: Counts, first: int, end: int, level: int, sign: int) -> None:
    """Count the changes of some records in areas of a kind."""
    for at in range(first, end):
        for table in range(counts.weight.shape[0]):
            a, c = counts.released[at, table], counts.rows[at, table]
            if a != c:
                counts.more[a, level] -= sign
                counts.more[c, level] += sign
                set_step(counts, table, a)
                set_step(counts, table, c)
