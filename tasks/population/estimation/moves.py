"""Members who become something else in their household, or move to another one of their block, so
that coarse tables of a state and its counties are met.

What blocks have to change is carried on, and later blocks make up for it as far as their prices
reach; once all blocks of a state are made, what is left is known. A move gives a member who is no
householder another relationship, anybody another age on the same side of 18, somebody who is
neither a householder nor a partner the other sex besides, or takes a member to another household of
the block. It may make households of other types, where there are such and no structural zero
excludes them. Nobody's origin or race changes, households keep their householders and tenures, and
a block its adults and minors by origin and race, its homes, and whether a household of it has more
than seven members. Swaps of two members follow the moves of a block, and do change householders.

A move is made where it brings coarse tables nearer to the releases, and all tables together: the
weighted sum of differences without their sign, of the state, county, tract, block group and block,
falls with each. All blocks are gone through twice. First tracts count most: of what is met in all
tracts, counties have the sums. Where counties came first, blocks would meet them at the cost of
their tracts, which no single move puts right. Then counties count as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from ...census.households import ADULT, HOUSEHOLDER, Members
from ..workload.household_types import OPEN_SIZE
from ..workload.person_levels import relationships
from ..workload.places import (
    BAND_STARTS,
    FIRST_PARTNER,
    FIRST_RELATIONSHIP,
    LAST_PARTNER,
    N_BANDS,
    OLDEST,
)
from ..workload.tables import FAMILY, STATE, TRACT, household_tables, person_tables
from .cells import Cells
from .composition import Households
from .counts import (
    Counts,
    Spans,
    State,
    compiled_once,
    enter,
    growth,
    growth_of_two,
    home_row,
    leave,
    members_of,
    person_row,
    shift,
    state_of,
    weigh,
)
from .placing import SAME_SEX, Persons
from .swaps import Crowd, Swaps, is_possible, swap_members, swaps_of, tell_type

TURNS = (10, 10, 80, 20, 10), (60, 60, 80, 20, 10)
"""Weights of coarse tables by kind of area, each time that all blocks are gone through."""
_TIMES = {
    f"{FAMILY} * sex * hhtenshort_2lev": 2.4,
    "relgq * sex": 1.8,
    "hhtenshort_2lev * size": 0.5,
    "hisp * race * hhtenshort_2lev": 0.6,
    "multig * hisp * hhtenshort_2lev": 0.8,
}
"""How many times those count that few moves bring nearer, and those that are nearer to the truth
than their release anyway."""
_FINE = 3, 20
"""What a difference counts in tracts in those tables of persons, and of households, that are not
coarse; while blocks are made it counts nothing."""
_HEAD = HOUSEHOLDER - FIRST_RELATIONSHIP
_STARTS = np.array([*BAND_STARTS, OLDEST + 1])
_BEFORE, _AFTER = map(compiled_once, (0, 1))
_OTHERS, _COARSE = map(compiled_once, (False, True))

# A call passes all arrays of the state one by one: what is called once for a move is inlined in
# what tries a move.


class _Moves(NamedTuple):
    """What moves need beside the state; `crowd` is that of swaps.

    alone : level of relationship of a householder who lives alone.
    of_persons : (n_tables, 3, 2) rows of a member and two householders before and after a move.
    of_homes : (n_tables, 2, 2) rows of two households.
    by_kind, by_age, by_size : numbers of the tables by relationship, by age and by size.
    """

    crowd: Crowd
    alone: int
    of_persons: np.ndarray
    of_homes: np.ndarray
    by_kind: int
    by_age: int
    by_size: int


class _Member(NamedTuple):
    """What a member is: the household, the relationship by its place among those of `Codes`, sex
    and age."""

    home: int
    code: int
    sex: int
    age: int


def moved(
    persons: Persons,
    households: Households,
    members: Members,
    spans: Spans,
    cells: Cells,
    turns: Sequence[Sequence[int]] = TURNS,
) -> Members:
    """The members of the households of some blocks after moves within each.

    persons, households : as they were released, in the order of the members and of their units.
    cells : what other blocks of the state and county have changed; brought up to date.
    turns : weights of coarse tables each time that all blocks are gone through.
    """
    if len(members.age) == 0:
        return members
    state = state_of(persons, households, members, spans, cells)
    swaps = swaps_of(state)
    moves = _moves_of(swaps)
    for turn in turns:
        for counts, weights in zip(
            (state.persons, state.households), weights_of(turn), strict=True
        ):
            counts.weight[:] = weights
            weigh(counts)
        _sweep(state, moves, swaps, spans)
    return members_of(state, members, cells)


def _moves_of(swaps: Swaps) -> _Moves:
    of_persons, of_homes = person_tables().names, household_tables().names
    return _Moves(
        swaps.crowd,
        relationships().alone,
        np.zeros((len(of_persons), 3, 2), dtype=np.int64),
        np.zeros((len(of_homes), 2, 2), dtype=np.int64),
        of_persons.index("relgq * sex"),
        of_persons.index("age * sex"),
        of_homes.index("hhtenshort_2lev * size"),
    )


def weights_of(turn: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """What a difference counts `(n_tables, 5)` in the tables of persons and of households: in
    coarse ones by the weights of a turn, as many times as each counts more or less than most."""
    found = []
    for tables, in_tracts in zip((person_tables(), household_tables()), _FINE, strict=True):
        weights, usual = tables.weight.copy(), tables.weight[:, STATE].max()
        weights[: tables.n_fine, TRACT] = in_tracts
        for table in range(tables.n_fine, len(weights)):
            times = _TIMES.get(tables.names[table], 1.0) * weights[table, STATE]
            weights[table] = np.array(turn) * times // usual
        found.append(weights)
    return found[0], found[1]


@njit(cache=True, nogil=True)
def _sweep(state: State, moves: _Moves, swaps: Swaps, spans: Spans) -> None:
    """Go through all blocks once."""
    for block in range(spans.tract.size):
        enter(state, spans, block)
        _move_members(state, moves, spans, block)
        swap_members(state, swaps, spans, block)
        leave(state, spans, block)


@njit(cache=True, nogil=True)
def _move_members(state: State, moves: _Moves, spans: Spans, block: int) -> None:
    """Make the moves of a block that bring the tables nearer, once through."""
    people, role = state.people, state.codes.role
    first, end = spans.households[block], spans.households[block + 1]
    n_larger = 0
    for home in range(first, end):
        n_larger += max(moves.crowd.size[home] - OPEN_SIZE, 0)
    for at in range(spans.persons[block], spans.persons[block + 1]):
        _give_ages(state, moves, at)
        if people.is_head[at]:
            continue
        _give_relationships(state, moves, at)
        if FIRST_PARTNER <= role[people.code[at]] <= LAST_PARTNER:
            continue
        for home in range(first, end):
            more = _more_beyond(moves, people.home[at], home)
            # Whether all sizes of a block add up to its persons stays as it is.
            is_kept = more <= 0 and (n_larger + more > 0) == (n_larger > 0)
            if is_kept and _is_taken(state, moves, at, home):
                n_larger += more


@njit(cache=True, nogil=True, inline="always")
def _more_beyond(moves: _Moves, home: int, other: int) -> int:
    """How many members more are beyond the seventh, if one goes from a household to another."""
    return int(moves.crowd.size[other] >= OPEN_SIZE) - int(moves.crowd.size[home] > OPEN_SIZE)


@njit(cache=True, nogil=True)
def _give_relationships(state: State, moves: _Moves, at: int) -> None:
    """Give a member other relationships, each if the tables come nearer."""
    people, codes = state.people, state.codes
    home = people.home[at]
    _tell(state, moves, at, home, home, _BEFORE, _COARSE)
    for code in range(codes.role.size):
        sex, age = people.sex[at], people.age[at]
        if code in (_HEAD, people.code[at]):
            continue
        is_adult = age >= ADULT
        low = max(codes.first[code], ADULT if is_adult else 0)
        high = min(codes.last[code], OLDEST if is_adult else ADULT - 1)
        role = codes.role[code]
        if FIRST_PARTNER <= role <= LAST_PARTNER:
            of_head = people.sex[state.homes.head[home]]
            sex = of_head if role in SAME_SEX else 1 - of_head
        if low <= high:
            new = _Member(home, code, sex, min(max(age, low), high))
            if _is_made(state, moves, at, new):
                _tell(state, moves, at, home, home, _BEFORE, _COARSE)


@njit(cache=True, nogil=True)
def _give_ages(state: State, moves: _Moves, at: int) -> None:
    """Give a member another age, in the band or in another one, or the other sex, each if the
    tables come nearer."""
    people, codes = state.people, state.codes
    home, code, who = people.home[at], people.code[at], people.who[at]
    role = codes.role[code]
    is_free = not people.is_head[at] and not FIRST_PARTNER <= role <= LAST_PARTNER
    _tell(state, moves, at, home, home, _BEFORE, _COARSE)
    for new_sex in range(2):
        for band in range(N_BANDS):
            sex, own = people.sex[at], people.age[at]
            if (_STARTS[band] >= ADULT) != (own >= ADULT):
                continue
            if new_sex != sex and not is_free:
                continue
            low, high = _STARTS[band], _STARTS[band + 1] - 1
            best, least = -1, 0
            a = person_row(state, moves.by_age, at, sex, own, who)
            for age in range(max(low, codes.first[code]), min(high, codes.last[code]) + 1):
                if age == own and new_sex == sex:
                    continue
                c = person_row(state, moves.by_age, at, new_sex, age, who)
                grown = growth(state.persons, a, c)
                if best < 0 or grown < least:
                    best, least = age, grown
            if best >= 0 and _is_made(state, moves, at, _Member(home, code, new_sex, best)):
                _tell(state, moves, at, home, home, _BEFORE, _COARSE)


@njit(cache=True, nogil=True)
def _is_taken(state: State, moves: _Moves, at: int, home: int) -> bool:
    """Whether a member now lives in another household, in the relationship that the member had or
    in the one that brings numbers by relationship nearest, by which the tables have come nearer."""
    people, codes = state.people, state.codes
    if home == people.home[at] or not _fits_better(state, moves, people.home[at], home):
        return False
    own, sex, age = people.code[at], people.sex[at], people.age[at]
    _tell(state, moves, at, people.home[at], home, _BEFORE, _COARSE)
    if _is_made(state, moves, at, _Member(home, own, sex, age)):
        return True
    part, best, least = state.persons.part[:, :, moves.by_kind], own, 0
    a = part[0, codes.level[own]] + part[1, sex]
    for code in range(codes.role.size):
        if codes.role[code] > LAST_PARTNER and codes.first[code] <= age <= codes.last[code]:
            grown = growth(state.persons, a, part[0, codes.level[code]] + part[1, sex])
            if grown < least:
                best, least = code, grown
    return best != own and _is_made(state, moves, at, _Member(home, best, sex, age))


@njit(cache=True, nogil=True, inline="always")
def _fits_better(state: State, moves: _Moves, home: int, other: int) -> bool:
    """Whether numbers of households by size, and of householders who live alone, come nearer if
    somebody goes from a household to another."""
    grown, homes, codes = 0, state.homes, state.codes
    of_size = state.households.part[:, :, moves.by_size]
    of_kind = state.persons.part[:, :, moves.by_kind]
    for one, step in ((home, -1), (other, 1)):
        before, after = moves.crowd.size[one], moves.crowd.size[one] + step
        # Sizes are the last factor of their table.
        a = of_size[0, 0] + of_size[5, homes.tenure[homes.unit[one]]] + min(before, OPEN_SIZE) - 1
        c = a + min(after, OPEN_SIZE) - min(before, OPEN_SIZE)
        grown += growth(state.households, a, c)
        if min(before, after) == 1:
            of_head = of_kind[1, state.people.sex[homes.head[one]]]
            alone, others = (
                of_head + of_kind[0, moves.alone],
                of_head + of_kind[0, codes.level[_HEAD]],
            )
            a, c = (others, alone) if after == 1 else (alone, others)
            grown += growth(state.persons, a, c)
    return grown < 0


@njit(cache=True, nogil=True)
def _is_made(state: State, moves: _Moves, at: int, new: _Member) -> bool:
    """Whether a member now is something else, by which the tables have come nearer; the rows before
    of coarse tables have been written down, and hold until a move is made."""
    people = state.people
    old = _Member(people.home[at], people.code[at], people.sex[at], people.age[at])
    one, two = old.home, new.home
    if _put(state, moves, at, new):
        _tell(state, moves, at, one, two, _AFTER, _COARSE)
        grown = _growth(state, moves, one != two, _COARSE)
        if grown < 0:
            # Few moves come so far, that rows of large tables are written down for them alone.
            _tell(state, moves, at, one, two, _AFTER, _OTHERS)
            _put(state, moves, at, old)
            _tell(state, moves, at, one, two, _BEFORE, _OTHERS)
            _put(state, moves, at, new)
            if grown + _growth(state, moves, one != two, _OTHERS) < 0:
                _shift_all(state.persons, moves.of_persons, 1 if one == two else 3)
                _shift_all(state.households, moves.of_homes, 1 if one == two else 2)
                return True
    _put(state, moves, at, old)
    return False


@njit(cache=True, nogil=True, inline="always")
def _put(state: State, moves: _Moves, at: int, new: _Member) -> bool:
    """Let a member be something else; whether households can be so."""
    people, homes, codes, ages = state.people, state.homes, state.codes, state.ages
    crowd, old, can_be = moves.crowd, people.home[at], True
    place = codes.role[people.code[at]] * N_BANDS + ages.band[people.age[at]]
    crowd.members[old, place] -= 1
    crowd.size[old] -= 1
    people.home[at], people.code[at], people.sex[at], people.age[at] = new
    people.relationship[at] = codes.level[new.code]
    crowd.members[new.home, codes.role[new.code] * N_BANDS + ages.band[new.age]] += 1
    crowd.size[new.home] += 1
    for home in (old, new.home):
        head = homes.head[home]
        people.relationship[head] = moves.alone if crowd.size[home] == 1 else codes.level[_HEAD]
        tell_type(state, crowd, home)
        can_be = can_be and is_possible(state, crowd, home)
        if old == new.home:
            break
    return can_be


@njit(cache=True, nogil=True)
def _tables(counts: Counts, are_coarse: bool) -> range:
    """The numbers of the coarse tables, or of the others."""
    n_tables = counts.weight.shape[0]
    return range(counts.n_fine, n_tables) if are_coarse else range(counts.n_fine)


@njit(cache=True, nogil=True)
def _tell(
    state: State, moves: _Moves, at: int, one: int, two: int, when: int, are_coarse: bool
) -> None:
    """Write down the rows of a member, of one or two households and of the householders of two,
    before (0) or after (1) a move, of the coarse tables or of the others."""
    people, homes = state.people, state.homes
    everybody = at, homes.head[one], homes.head[two]
    # Where nobody comes or goes, no other householder changes.
    for k in range(1 if one == two else 3):
        who = everybody[k]
        for table in _tables(state.persons, are_coarse):
            row = person_row(state, table, who, people.sex[who], people.age[who], people.who[who])
            moves.of_persons[table, k, when] = row
    both = one, two
    for k in range(1 if one == two else 2):
        home = both[k]
        head = homes.head[home]
        for table in _tables(state.households, are_coarse):
            age, who = people.age[head], people.who[head]
            row = home_row(state, table, home, age, who, homes.unit[home])
            moves.of_homes[table, k, when] = row


@njit(cache=True, nogil=True, inline="always")
def _growth(state: State, moves: _Moves, are_two: bool, are_coarse: bool) -> int:
    """By how much the sum of the coarse, or of the other tables grows if records go to their rows
    after a move."""
    grown = 0
    for table in _tables(state.persons, are_coarse):
        grown += _growth_of(state.persons, table, moves.of_persons[table], 3 if are_two else 1)
    for table in _tables(state.households, are_coarse):
        grown += _growth_of(state.households, table, moves.of_homes[table], 2 if are_two else 1)
    return grown


@njit(cache=True, nogil=True, inline="always")
def _growth_of(counts: Counts, table: int, rows: np.ndarray, n: int) -> int:
    """By how much the sum of a table grows if `n` records go from their rows before to those
    after."""
    if n == 1:
        return growth(counts, rows[0, 0], rows[0, 1])
    if n == 2 or rows[2, 0] == rows[2, 1]:
        return growth_of_two(counts, table, rows[0, 0], rows[0, 1], rows[1, 0], rows[1, 1])
    if rows[1, 0] == rows[1, 1]:
        return growth_of_two(counts, table, rows[0, 0], rows[0, 1], rows[2, 0], rows[2, 1])
    grown = 0
    for k in range(n):
        grown += growth(counts, rows[k, 0], rows[k, 1])
        shift(counts, table, rows[k, 0], rows[k, 1])
    for k in range(n):
        shift(counts, table, rows[k, 1], rows[k, 0])
    return grown


@njit(cache=True, nogil=True)
def _shift_all(counts: Counts, rows: np.ndarray, n: int) -> None:
    """Let `n` records go from their rows before to those after, in all tables."""
    for table in range(rows.shape[0]):
        for k in range(n):
            shift(counts, table, rows[table, k, 0], rows[table, k, 1])
