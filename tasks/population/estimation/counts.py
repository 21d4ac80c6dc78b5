"""How the records of some blocks differ from the released ones, by row of `Tables` and kind of
area: what exchanges and moves read and change, in compiled loops.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ...census.households import HOUSEHOLDER, MALE, Members
from ..workload.household_types import ELDERLY, TYPE, levels_of_age, possible
from ..workload.levels import DERIVED, derived_levels
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


def compiled_once(value: int) -> Any:
    """A number or truth value as an argument of kernels, which are compiled for it as for others.

    For each value of Python that stands in a call, a kernel is compiled anew.
    """
    return np.asarray(value)[()]


_BLOCK, _NONE, _MORE, _LESS = map(compiled_once, (BLOCK, 0, 1, -1))


class People(NamedTuple):
    """Members. By their place in a household `(n,)`: the relationship by its place among those of
    `Codes`, and its level; the household, whether it is the householder's, whether either sex may
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
    """Records more than were released, by row and kind of area `(n_rows, 5)`; and `Tables`.

    A difference d counts `linear` |d| + `square` d^2, times the weight of the table and kind of
    area. step : (n_rows, 2) by how much the sum of these grows if a record leaves or enters a row.
    part : (n_attributes, n_levels, n_tables). first_rows : (n_tables + 1,).
    """

    more: np.ndarray
    step: np.ndarray
    part: np.ndarray
    weight: np.ndarray
    first_rows: np.ndarray
    n_fine: int
    linear: int
    square: int


class Ages(NamedTuple):
    """Band and householder's level of each age; ages and types that can be `(2, 9, 4, n)`."""

    band: np.ndarray
    level: np.ndarray
    possible: np.ndarray


class Codes(NamedTuple):
    """By code of a relationship `(17,)`: its level, role, first and last age."""

    level: np.ndarray
    role: np.ndarray
    first: np.ndarray
    last: np.ndarray


class State(NamedTuple):
    """All that exchanges read and change."""

    codes: Codes
    people: People
    homes: Homes
    persons: Counts
    households: Counts
    ages: Ages


class Rows(NamedTuple):
    """Rows of records in all tables.

    persons, homes : (n, n_tables) of each member and household of the block that is gone through.
    new_persons, new_homes : (2, n_tables) of two members and households after a change.
    """

    persons: np.ndarray
    homes: np.ndarray
    new_persons: np.ndarray
    new_homes: np.ndarray


class Spans(NamedTuple):
    """Blocks of a county: the first person and household of each, and the number of all
    `(n_blocks + 1,)`; number of the tract and block group of each `(n_blocks,)`.
    """

    persons: np.ndarray
    households: np.ndarray
    tract: np.ndarray
    block_group: np.ndarray


def state_of(
    persons: Persons,
    households: Households,
    members: Members,
    spans: Spans,
    cells: Cells,
    curve: tuple[int, int] = (1, 0),
) -> State:
    """Members of the households of some blocks of a county, and what these and others have changed.

    persons, households : as they were released, in the order of the members and of their units.
    cells : what other blocks of the state and county have changed.
    curve : how much a difference counts, and its square.
    """
    state = State(
        _codes(),
        _people(persons, members),
        _homes(households, members),
        _counts(cells.persons, person_tables(), curve),
        _counts(cells.households, household_tables(), curve),
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


def rows_of(state: State) -> Rows:
    """Room for the rows of all members and households."""
    sizes = len(state.people.code), len(state.homes.head)
    n_tables = [own.weight.shape[0] for own in (state.persons, state.households)]
    return Rows(
        *(np.zeros((n, k), dtype=np.int64) for n, k in zip(sizes, n_tables, strict=True)),
        *(np.zeros((2, k), dtype=np.int64) for k in n_tables),
    )


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
    known = relationships()
    place = members.relationship - FIRST_RELATIONSHIP
    is_alone = (np.bincount(members.unit) == 1)[members.unit]
    is_head = members.relationship == HOUSEHOLDER
    is_partner = np.isin(ROLE_OF_RELATIONSHIP[place], PARTNERS)
    level = np.where(is_head & is_alone, known.alone, known.level[place])
    was = known.level[persons.relationship - FIRST_RELATIONSHIP]
    was = np.where(persons.is_alone, known.alone, was)
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
    levels = derived_levels(members, n)
    heads = np.flatnonzero(members.relationship == HOUSEHOLDER)
    head = np.empty(n, dtype=np.int64)
    head[members.unit[heads]] = heads
    own = households
    kind = levels[DERIVED.index(TYPE)]
    released = (own.sex, own.age, own.origin, own.race, own.elderly, own.tenure, own.kind)
    return Homes(
        head,
        levels[DERIVED.index(ELDERLY)],
        kind,
        families()[kind],
        np.arange(n),
        np.array(own.tenure),
        np.stack(released, axis=1),
    )


def _counts(carried: np.ndarray, tables: Tables, curve: tuple[int, int]) -> Counts:
    more = np.zeros((tables.n_rows, BLOCK + 1), dtype=np.int32)
    more[:, :CARRIED] = carried
    step = np.zeros((tables.n_rows, 2), dtype=np.int64)
    part = np.ascontiguousarray(tables.part.transpose(1, 2, 0))
    weight = np.array(tables.weight)
    counts = Counts(more, step, part, weight, tables.first_rows, tables.n_fine, *curve)
    weigh(counts)
    return counts


@njit(cache=True, nogil=True)
def weigh(counts: Counts) -> None:
    """Work out by how much the sum grows with the weights that tables now have."""
    for table in range(counts.weight.shape[0]):
        # Nearly all rows are as they were released.
        unchanged = counts.weight[table].sum() * _growth_of_leaving(counts, _NONE)
        for row in range(counts.first_rows[table], counts.first_rows[table + 1]):
            differs = 0
            for level in range(counts.weight.shape[1]):
                differs |= counts.more[row, level]
            if differs:
                _step(counts, table, row)
            else:
                counts.step[row, 0] = counts.step[row, 1] = unchanged


@njit(cache=True, nogil=True)
def _step(counts: Counts, table: int, row: int) -> None:
    """Work out by how much the sum grows if a record leaves or enters a row."""
    out = into = 0
    for level in range(counts.weight.shape[1]):
        d, weight = counts.more[row, level], counts.weight[table, level]
        out += weight * _growth_of_leaving(counts, d)
        into += weight * _growth_of_leaving(counts, -d)
    counts.step[row, 0], counts.step[row, 1] = out, into


@njit(cache=True, nogil=True)
def _growth_of_leaving(counts: Counts, d: int) -> int:
    """By how much what a difference counts grows if it is smaller by 1."""
    return (-counts.linear if d > 0 else counts.linear) + counts.square * (1 - 2 * d)


@njit(cache=True, nogil=True)
def _count(counts: Counts, table: int, row: int, level: int, by: int) -> None:
    """Count so many records more in a row of a kind of area."""
    d = counts.more[row, level]
    counts.more[row, level] = new = d + by
    weight = counts.weight[table, level]
    if weight > 0:
        out, old = _growth_of_leaving(counts, new), _growth_of_leaving(counts, d)
        counts.step[row, 0] += weight * (out - old)
        into, old = _growth_of_leaving(counts, -new), _growth_of_leaving(counts, -d)
        counts.step[row, 1] += weight * (into - old)


@njit(cache=True, nogil=True)
def shift(counts: Counts, table: int, a: int, c: int) -> None:
    """Let a record go from the row a to c, of all kinds of areas."""
    if a != c:
        for level in range(counts.weight.shape[1]):
            counts.more[a, level] -= 1
            counts.more[c, level] += 1
        _step(counts, table, a)
        _step(counts, table, c)


@njit(cache=True, nogil=True)
def growth(counts: Counts, a: int, c: int) -> int:
    """By how much the sum grows if a record goes from the row a to c."""
    return 0 if a == c else counts.step[a, 0] + counts.step[c, 1]


@njit(cache=True, nogil=True)
def growth_of_two(counts: Counts, table: int, a: int, c: int, b: int, d: int) -> int:
    """By how much the sum grows if two records go from the rows a and b to c and d."""
    if a == c:
        return growth(counts, b, d)
    if b == d:
        return growth(counts, a, c)
    if a == d:
        return growth(counts, b, c)
    if b == c:
        return growth(counts, a, d)
    grown = growth(counts, a, c) + growth(counts, b, d)
    if a == b or c == d:
        # Both leave one row, or enter one.
        for level in range(counts.weight.shape[1]):
            weight = counts.weight[table, level]
            if a == b:
                more = counts.more[a, level]
                grown += weight * _growth_of_leaving(counts, more - 1)
                grown -= weight * _growth_of_leaving(counts, more)
            if c == d:
                more = -counts.more[c, level]
                grown += weight * _growth_of_leaving(counts, more - 1)
                grown -= weight * _growth_of_leaving(counts, more)
    return grown


@cache
def _codes() -> Codes:
    every = range(FIRST_RELATIONSHIP, LAST_RELATIONSHIP + 1)
    first, last = np.array([AGES_OF_RELATIONSHIP[code] for code in every]).T
    return Codes(relationships().level, ROLE_OF_RELATIONSHIP, first.copy(), last.copy())


@cache
def _ages() -> Ages:
    age = np.arange(OLDEST + 1)
    return Ages(bands_of(age), levels_of_age(age), possible())


@njit(cache=True, nogil=True)
def enter(state: State, spans: Spans, block: int) -> None:
    """Count what a block has changed, and its tract and block group where it is their first."""
    for level, area in ((TRACT, spans.tract), (BLOCK_GROUP, spans.block_group)):
        if block == 0 or area[block] != area[block - 1]:
            _add(state, spans, block, _end(area, block), level, _MORE)
    _add(state, spans, block, block + 1, _BLOCK, _MORE)


@njit(cache=True, nogil=True)
def leave(state: State, spans: Spans, block: int) -> None:
    """Take back what a block has changed, and its tract and block group where it is their last."""
    _add(state, spans, block, block + 1, _BLOCK, _LESS)
    for level, area in ((TRACT, spans.tract), (BLOCK_GROUP, spans.block_group)):
        if block + 1 == area.size or area[block + 1] != area[block]:
            _add(state, spans, _first(area, block), block + 1, level, _LESS)


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
    people, homes, persons, households = state.people, state.homes, state.persons, state.households
    for at in range(spans.persons[block], spans.persons[end]):
        for table in range(persons.weight.shape[0]):
            before = _NONE
            for attribute in range(persons.part.shape[0]):
                before += persons.part[attribute, people.released[at, attribute], table]
            now = person_row(state, table, at, people.sex[at], people.age[at], people.who[at])
            if before != now:
                _count(persons, table, before, level, -sign)
                _count(persons, table, now, level, sign)
    for home in range(spans.households[block], spans.households[end]):
        for table in range(households.weight.shape[0]):
            before = _NONE
            for attribute in range(households.part.shape[0]):
                before += households.part[attribute, homes.released[home, attribute], table]
            now = row_now(state, table, home)
            if before != now:
                _count(households, table, before, level, -sign)
                _count(households, table, now, level, sign)


@njit(cache=True, nogil=True)
def person_row(state: State, table: int, at: int, sex: int, age: int, who: int) -> int:
    """The row of a member who has these attributes."""
    return row_of(state, table, state.people.relationship[at], sex, age, who)


@njit(cache=True, nogil=True)
def row_of(state: State, table: int, relationship: int, sex: int, age: int, who: int) -> int:
    """The row of who is a person of these attributes."""
    people, part = state.people, state.persons.part
    row = part[0, relationship, table] + part[1, sex, table] + part[2, age, table]
    return row + part[3, people.origin[who], table] + part[4, people.race[who], table]


@njit(cache=True, nogil=True)
def home_row(state: State, table: int, home: int, age: int, who: int, unit: int) -> int:
    """The row of a household in a unit, whose householder is of an age and who a person is."""
    people, homes, part = state.people, state.homes, state.households.part
    row = part[0, people.sex[homes.head[home]], table] + part[1, state.ages.level[age], table]
    row += part[2, people.origin[who], table] + part[3, people.head_race[who], table]
    row += part[4, homes.elderly[home], table] + part[5, homes.tenure[unit], table]
    return row + part[6, homes.kind[home], table]


@njit(cache=True, nogil=True)
def row_now(state: State, table: int, home: int) -> int:
    """The row of a household as it is."""
    head = state.homes.head[home]
    age, who = state.people.age[head], state.people.who[head]
    return home_row(state, table, home, age, who, state.homes.unit[home])


# A call takes all arrays of the state one by one, longer than most of what is done below: so what
# is called for each pair of members is inlined.


@njit(cache=True, nogil=True)
def tell_block(state: State, rows: Rows, spans: Spans, block: int) -> None:
    """Write down the rows of the members and households of a block."""
    for at in range(spans.persons[block], spans.persons[block + 1]):
        tell_person(state, at, rows.persons[at])
    for home in range(spans.households[block], spans.households[block + 1]):
        tell_home(state, home, rows.homes[home])


@njit(cache=True, nogil=True, inline="always")
def tell_person(state: State, at: int, rows: np.ndarray) -> None:
    """Write down the rows of a member."""
    sex, age, who = state.people.sex[at], state.people.age[at], state.people.who[at]
    for table in range(rows.size):
        rows[table] = person_row(state, table, at, sex, age, who)


@njit(cache=True, nogil=True, inline="always")
def tell_home(state: State, home: int, rows: np.ndarray) -> None:
    """Write down the rows of a household."""
    head = state.homes.head[home]
    age, who, unit = state.people.age[head], state.people.who[head], state.homes.unit[home]
    for table in range(rows.size):
        rows[table] = home_row(state, table, home, age, who, unit)


@njit(cache=True, nogil=True, inline="always")
def growth_of_members(state: State, rows: Rows, p: int, q: int) -> int:
    """By how much the sum grows if two members are what they now are."""
    grown, counts = 0, state.persons
    tell_person(state, p, rows.new_persons[0])
    tell_person(state, q, rows.new_persons[1])
    for table in range(counts.weight.shape[0]):
        a, b = rows.persons[p, table], rows.persons[q, table]
        c, d = rows.new_persons[0, table], rows.new_persons[1, table]
        grown += growth_of_two(counts, table, a, c, b, d)
    return grown


@njit(cache=True, nogil=True, inline="always")
def growth_of_homes(state: State, rows: Rows, one: int, two: int) -> int:
    """By how much the sum grows if two households, or one, are what they now are."""
    grown, counts = 0, state.households
    tell_home(state, one, rows.new_homes[0])
    tell_home(state, two, rows.new_homes[1])
    for table in range(counts.weight.shape[0]):
        a, c = rows.homes[one, table], rows.new_homes[0, table]
        if one == two:
            grown += growth(counts, a, c)
        else:
            b, d = rows.homes[two, table], rows.new_homes[1, table]
            grown += growth_of_two(counts, table, a, c, b, d)
    return grown


@njit(cache=True, nogil=True)
def shift_two(counts: Counts, rows: np.ndarray, new: np.ndarray, one: int, two: int) -> None:
    """Let two records, or one, go to their new rows in all tables."""
    for k in range(2):
        at = two if k else one
        for table in range(rows.shape[1]):
            shift(counts, table, rows[at, table], new[k, table])
            rows[at, table] = new[k, table]
