"""A local search that brings tables of one population nearer to the releases, block by block.

A move gives one or two members of a block another household, relationship, sex, age or person, or
two households each other's unit. There are three kinds of moves of one member, `_change_codes`,
`_change_ages` and `_change_home`; of two members the rows of `EXCHANGES`; and one of households.
Each is kept if the resulting households are possible, the coarse tables come no farther from the
releases, and all tables together come nearer: the weighted sum of absolute differences, over the
state, county, tract, block group and block, falls with each move, so that the search ends.

No person's origin, race or side of 18 changes, households keep their tenures, and a block keeps its
homes, and whether any of its households has more than seven members. Moves are tried in the order
of the records, and no random number is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from ...census.households import ADULT, HOUSEHOLDER
from ..workload.household_types import (
    FIRST_PARTNER,
    FIRST_RELATIONSHIP,
    LAST_PARTNER,
    N_BANDS,
    OLDEST,
    OPEN_SIZE,
    derived_type,
)
from ..workload.tables import weights_of
from .counts import Counts, Spans, State, count_areas, growth, growth_of_two, shift, weigh
from .start import SAME_SEX

EXCHANGES = np.array(
    [
        # Household, sex and age, person (origin and race).
        (True, False, False),
        (False, True, True),
        (False, True, False),
        (False, False, True),
    ]
)
"""Exchanges of two members: of their households; of all but their places in households; of sex and
age; of origin and race."""
_MOST = 64
"""Number of members, or households, of a block that each one is tried with; evenly spread in larger
blocks.
"""
_HEAD = HOUSEHOLDER - FIRST_RELATIONSHIP
_NOBODY = -1
"""Place of the partner of a householder without one, and of a second member that is not there."""

_Member = tuple[int, int, int, int, int]
"""Household, code of the relationship, sex, age and person of a member."""


def search(state: State, spans: Spans, turns: Sequence[Sequence[int]]) -> None:
    """Make the moves in some blocks of a county that bring tables nearer, in one pass over all
    blocks for each of the `turns`, the weights of coarse tables by kind of area.
    """
    for turn in turns:
        for counts, weights in zip(
            (state.persons, state.households), weights_of(turn), strict=True
        ):
            weigh(counts, weights)
        _sweep(state, spans, EXCHANGES)


@njit(cache=True, nogil=True)
def _sweep(state: State, spans: Spans, exchanges: np.ndarray) -> None:
    """Make one pass over all blocks."""
    for block in range(spans.persons.size - 1):
        count_areas(state, spans, block, True)
        first, end = spans.persons[block], spans.persons[block + 1]
        homes = spans.households[block], spans.households[block + 1]
        n_beyond = 0
        for home in range(homes[0], homes[1]):
            n_beyond += max(state.homes.size[home] - OPEN_SIZE, 0)
        for at in range(first, end):
            _change_ages(state, at)
            if not state.people.is_head[at]:
                _change_codes(state, at)
                n_beyond = _change_home(state, at, homes, n_beyond)
        step = 1 + (end - first) // _MOST
        for p in range(first, end):
            for q in range(p + 1, end, step):
                _exchange(state, p, q, exchanges)
        step = 1 + (homes[1] - homes[0]) // _MOST
        for one in range(homes[0], homes[1]):
            for two in range(one + 1, homes[1], step):
                _exchange_units(state, one, two)
        count_areas(state, spans, block, False)


@njit(cache=True, nogil=True)
def _has_surplus(counts: Counts, at: int) -> bool:
    """Whether removing a record would bring some table nearer."""
    for table in range(counts.weight.shape[0]):
        if counts.step[counts.rows[at, table], 0] < 0:
            return True
    return False


@njit(cache=True, nogil=True)
def _are_in_excess(counts: Counts, one: int, two: int) -> bool:
    """Whether removing two records would bring the finest table nearer."""
    return counts.step[counts.rows[one, 0], 0] + counts.step[counts.rows[two, 0], 0] < 0


@njit(cache=True, nogil=True)
def _member_at(state: State, at: int) -> _Member:
    people = state.people
    return people.home[at], people.code[at], people.sex[at], people.age[at], people.who[at]


@njit(cache=True, nogil=True)
def _change_codes(state: State, at: int) -> None:
    """Try other relationships of a member; keep each that brings the tables nearer."""
    codes = state.codes
    for code in range(codes.role.size):
        home, own, sex, age, who = _member_at(state, at)
        if code in (_HEAD, own) or not _has_surplus(state.persons, at):
            continue
        low = max(codes.first[code], ADULT if age >= ADULT else 0)
        high = min(codes.last[code], OLDEST if age >= ADULT else ADULT - 1)
        role = codes.role[code]
        if FIRST_PARTNER <= role <= LAST_PARTNER:
            if state.homes.partner[home] not in (_NOBODY, at):
                continue
            of_head = state.people.sex[state.homes.head[home]]
            sex = of_head if role in SAME_SEX else 1 - of_head
        if low <= high:
            new = home, code, sex, min(max(age, low), high), who
            _try_change(state, at, _NOBODY, new, new)


@njit(cache=True, nogil=True)
def _change_ages(state: State, at: int) -> None:
    """Give a member other ages on the same side of 18, or the other sex, where numbers by age and
    sex come nearer by it, or do not change, each if all tables do."""
    codes = state.codes
    part = state.persons.part[:, :, codes.by_age]
    for sex in range(2):
        home, code, own_sex, own, who = _member_at(state, at)
        low, high = (ADULT, OLDEST) if own >= ADULT else (0, ADULT - 1)
        for age in range(max(low, codes.first[code]), min(high, codes.last[code]) + 1):
            if not _has_surplus(state.persons, at):
                return
            a = part[0, 0] + part[1, own_sex] + part[2, own]
            grown = growth(state.persons, a, part[0, 0] + part[1, sex] + part[2, age])
            if grown < 0 or (age == own and sex != own_sex):
                new = home, code, sex, age, who
                if _try_change(state, at, _NOBODY, new, new):
                    own_sex, own = sex, age


@njit(cache=True, nogil=True)
def _change_home(state: State, at: int, homes: tuple[int, int], n_beyond: int) -> int:
    """Try a member in other households of the block; keep each move that brings the tables nearer,
    in the relationship that the member had or in the one that brings numbers by relationship
    nearest; `n_beyond` members of the block live beyond the seventh of a household, and do at
    last.
    """
    codes, size = state.codes, state.homes.size
    step = 1 + (homes[1] - homes[0]) // _MOST
    for other in range(homes[0] + at % step, homes[1], step):
        home, own, sex, age, who = _member_at(state, at)
        if other == home or not _fit_sizes(state, home, other):
            continue
        more = int(size[other] >= OPEN_SIZE) - int(size[home] > OPEN_SIZE)
        # Whether all sizes of a block add up to its persons must not change.
        if more > 0 or (n_beyond + more > 0) != (n_beyond > 0):
            continue
        new = other, own, sex, age, who
        if _try_change(state, at, _NOBODY, new, new):
            n_beyond += more
            continue
        part, best, least = state.persons.part[:, :, codes.by_kind], own, 0
        a = part[0, codes.level[own]] + part[1, sex]
        for code in range(codes.role.size):
            if codes.role[code] > LAST_PARTNER and codes.first[code] <= age <= codes.last[code]:
                grown = growth(state.persons, a, part[0, codes.level[code]] + part[1, sex])
                if grown < least:
                    best, least = code, grown
        new = other, best, sex, age, who
        if best != own and _try_change(state, at, _NOBODY, new, new):
            n_beyond += more
    return n_beyond


@njit(cache=True, nogil=True)
def _fit_sizes(state: State, home: int, other: int) -> bool:
    """Whether a person's move to another household brings the numbers of households by size, and of
    householders living alone, closer to the released ones.
    """
    grown, homes, codes = 0, state.homes, state.codes
    of_size, of_kind = (
        state.households.part[:, :, codes.by_size],
        state.persons.part[:, :, codes.by_kind],
    )
    for one, step in ((home, -1), (other, 1)):
        before, after = homes.size[one], homes.size[one] + step
        # Sizes are the last factor of their table.
        a = of_size[0, 0] + of_size[5, homes.tenure[homes.unit[one]]] + min(before, OPEN_SIZE) - 1
        c = a + min(after, OPEN_SIZE) - min(before, OPEN_SIZE)
        grown += growth(state.households, a, c)
        if min(before, after) == 1:
            of_head = of_kind[1, state.people.sex[homes.head[one]]]
            alone, others = (
                of_head + of_kind[0, codes.alone],
                of_head + of_kind[0, codes.level[_HEAD]],
            )
            a, c = (others, alone) if after == 1 else (alone, others)
            grown += growth(state.persons, a, c)
    return grown < 0


@njit(cache=True, nogil=True)
def _exchange(state: State, p: int, q: int, exchanges: np.ndarray) -> None:
    """Make the exchanges of two members that bring the tables nearer."""
    people, codes = state.people, state.codes
    are_heads = people.is_head[p] or people.is_head[q]
    for kind in range(exchanges.shape[0]):
        with_home, with_age, with_who = exchanges[kind]
        # Elsewhere little can be gained, and there are many pairs.
        if with_age == with_who:
            if not _are_in_excess(state.households, people.home[p], people.home[q]):
                continue
        elif not _are_in_excess(state.persons, p, q):
            continue
        a, b = _member_at(state, p), _member_at(state, q)
        is_same_person = (
            people.origin[a[4]] == people.origin[b[4]] and people.race[a[4]] == people.race[b[4]]
        )
        is_same_age = a[2] == b[2] and a[3] == b[3]
        if with_home:
            place, other = codes.role[a[1]], codes.role[b[1]]
            is_same_place = place == other and codes.band[a[3]] == codes.band[b[3]]
            if are_heads or a[0] == b[0] or is_same_place:
                continue
        elif (a[1] == b[1] and not are_heads) or (
            (is_same_age or not with_age) and (is_same_person or not with_who)
        ):
            continue
        if with_age != with_who and (a[3] >= ADULT) != (b[3] >= ADULT):
            continue
        if with_age:
            fits = codes.first[a[1]] <= b[3] <= codes.last[a[1]]
            if not fits or not codes.first[b[1]] <= a[3] <= codes.last[b[1]]:
                continue
        _try_change(
            state,
            p,
            q,
            _mix_members(a, b, with_home, with_age, with_who),
            _mix_members(b, a, with_home, with_age, with_who),
        )


@njit(cache=True, nogil=True)
def _mix_members(
    a: _Member, b: _Member, with_home: bool, with_age: bool, with_who: bool
) -> _Member:
    """A member with some attributes of another one."""
    home, (sex, age) = b[0] if with_home else a[0], b[2:4] if with_age else a[2:4]
    return home, a[1], sex, age, b[4] if with_who else a[4]


@njit(cache=True, nogil=True)
def _exchange_units(state: State, one: int, two: int) -> None:
    """Swap the units of two households of different tenure if that brings the tables nearer."""
    homes, counts = state.homes, state.households
    unit, other = homes.unit[one], homes.unit[two]
    if homes.tenure[unit] == homes.tenure[other]:
        return
    if not (_has_surplus(counts, one) or _has_surplus(counts, two)):
        return
    homes.unit[one], homes.unit[two] = other, unit
    if not _come_nearer(state, (0, 0, 0), 0, (one, two), 2):
        homes.unit[one], homes.unit[two] = unit, other


@njit(cache=True, nogil=True)
def _try_change(state: State, p: int, q: int, a: _Member, b: _Member) -> bool:
    """Change a member, and an optional second one, if that brings the tables closer; return whether
    it did.
    """
    people, homes = state.people, state.homes
    old = _member_at(state, p)
    other = old if q < 0 else _member_at(state, q)
    one, two = old[0], a[0] if q < 0 else other[0]
    head, second = homes.head[one], homes.head[two]
    was = homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two]
    alone = people.relationship[head], people.relationship[second]
    _set_members(state, p, q, a, b)
    if _can_be(state, one) and (one == two or _can_be(state, two)):
        changed, n = (p, q, 0), 1 if q < 0 else 2
        if q < 0 and one != two:
            if people.relationship[head] != alone[0]:
                changed, n = (p, head, 0), 2
            if people.relationship[second] != alone[1]:
                changed, n = (p, second, head), n + 1
        now = homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two]
        n_homes = 0
        if now != was or people.is_head[p] or (q >= 0 and people.is_head[q]):
            n_homes = 1 if one == two else 2
        if _come_nearer(state, changed, n, (one, two), n_homes):
            return True
    _set_members(state, p, q, old, other)
    homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two] = was
    people.relationship[head], people.relationship[second] = alone
    return False


@njit(cache=True, nogil=True)
def _set_members(state: State, p: int, q: int, a: _Member, b: _Member) -> None:
    """Replace a member's attributes, and an optional second one's."""
    people, homes, codes = state.people, state.homes, state.codes
    for k in range(1 if q < 0 else 2):
        at = q if k else p
        home, role = people.home[at], codes.role[people.code[at]]
        homes.members[home, role * N_BANDS + codes.band[people.age[at]]] -= 1
        homes.size[home] -= 1
        if homes.partner[home] == at:
            homes.partner[home] = _NOBODY
    for k in range(1 if q < 0 else 2):
        at, new = (q, b) if k else (p, a)
        home, code, sex, age, who = new
        people.home[at], people.code[at], people.sex[at] = home, code, sex
        people.age[at], people.who[at] = age, who
        if not people.is_head[at]:
            people.relationship[at] = codes.level[code]
        role = codes.role[code]
        homes.members[home, role * N_BANDS + codes.band[age]] += 1
        homes.size[home] += 1
        if FIRST_PARTNER <= role <= LAST_PARTNER and homes.partner[home] == _NOBODY:
            homes.partner[home] = at


@njit(cache=True, nogil=True)
def _can_be(state: State, home: int) -> bool:
    """Derive the type and oldest member of a household; whether such households are possible."""
    people, homes, codes = state.people, state.homes, state.codes
    head, partner = homes.head[home], homes.partner[home]
    people.relationship[head] = codes.alone if homes.size[home] == 1 else codes.level[_HEAD]
    kind, elderly = derived_type(state.types, homes.members[home], homes.size[home])
    homes.kind[home], homes.elderly[home] = kind, elderly
    if partner >= 0:
        is_same_sex = people.sex[partner] == people.sex[head]
        if is_same_sex != (codes.role[people.code[partner]] in SAME_SEX):
            return False
    level = codes.head_level[people.age[head]]
    return kind >= 0 and level >= 0 and state.types.possible[people.sex[head], level, elderly, kind]


@njit(cache=True, nogil=True)
def _come_nearer(
    state: State, people: tuple[int, int, int], n: int, homes: tuple[int, int], n_homes: int
) -> bool:
    """Count the first `n` members and the first households in their new state if that brings all
    tables nearer and no coarse one farther; return whether it does.
    """
    persons, households, grown = state.persons, state.households, 0
    for are_fine in range(2):
        first, end = _tables(persons, are_fine)
        for table in range(first, end):
            for k in range(n):
                persons.new[k, table] = _person_row(state, table, people[k])
            grown += _growth_of(persons, table, people, n)
        first, end = _tables(households, are_fine)
        for table in range(first, end):
            for k in range(n_homes):
                households.new[k, table] = _home_row(state, table, homes[k])
            grown += _growth_of(households, table, (homes[0], homes[1], 0), n_homes)
        if grown > 0:
            return False
    if grown == 0:
        return False
    _recount(persons, people, n)
    _recount(households, (homes[0], homes[1], 0), n_homes)
    return True


@njit(cache=True, nogil=True)
def _tables(counts: Counts, are_fine: int) -> tuple[int, int]:
    """The first of the coarse tables, or of the others, and the one after the last."""
    return (0, counts.n_fine) if are_fine else (counts.n_fine, counts.weight.shape[0])


@njit(cache=True, nogil=True)
def _person_row(state: State, table: int, at: int) -> int:
    people, part = state.people, state.persons.part
    who = people.who[at]
    row = part[0, people.relationship[at], table] + part[1, people.sex[at], table]
    row += part[2, people.age[at], table] + part[3, people.origin[who], table]
    return row + part[4, people.race[who], table]


@njit(cache=True, nogil=True)
def _home_row(state: State, table: int, home: int) -> int:
    people, homes, part = state.people, state.homes, state.households.part
    head = homes.head[home]
    who, level = people.who[head], state.codes.head_level[people.age[head]]
    row = part[0, people.sex[head], table] + part[1, level, table]
    row += part[2, people.origin[who], table] + part[3, people.head_race[who], table]
    row += part[4, homes.elderly[home], table] + part[5, homes.tenure[homes.unit[home]], table]
    return row + part[6, homes.kind[home], table]


@njit(cache=True, nogil=True)
def _growth_of(counts: Counts, table: int, at: tuple[int, int, int], n: int) -> int:
    """Growth of the sum of a table if the first `n` records move to their new rows."""
    rows, new = counts.rows, counts.new
    if n == 0:
        return 0
    if n == 1:
        return growth(counts, rows[at[0], table], new[0, table])
    a, c, b, d = rows[at[0], table], new[0, table], rows[at[1], table], new[1, table]
    if n == 2 or rows[at[2], table] == new[2, table]:
        return growth_of_two(counts, table, a, c, b, d)
    grown = 0
    for k in range(n):
        grown += growth(counts, rows[at[k], table], new[k, table])
        shift(counts, table, rows[at[k], table], new[k, table])
    for k in range(n):
        shift(counts, table, new[k, table], rows[at[k], table])
    return grown


@njit(cache=True, nogil=True)
def _recount(counts: Counts, at: tuple[int, int, int], n: int) -> None:
    """Move the first `n` records to their new rows in all tables."""
    for k in range(n):
        for table in range(counts.weight.shape[0]):
            shift(counts, table, counts.rows[at[k], table], counts.new[k, table])
            counts.rows[at[k], table] = counts.new[k, table]
