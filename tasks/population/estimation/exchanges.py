"""How persons and households of a block are told otherwise, so that the finest tables of a state
and its counties are met.

A block has to change some of its persons, and which cells of the finest tables these leave and
enter is left to chance: over a state nearly every cell has more records than were released, or
fewer. But one member may be told to be of another age in the band, of another relationship in the
role, of the other sex where nothing tells it. And two members may exchange: of one sex and band of
ages their ages, of one sex or origin their races, and those whose sex nothing tells all of these;
two households their tenures. Nobody's place in a household changes, so that a household tells of
its members what it told, but for the age, origin and race of the householder, who may exchange
with anybody; and the block has as many persons as before of voting age by origin and race.

A change is made where it brings the rows of `Tables` nearer to the releases: the weighted sum of
differences without their sign, of the state so far, its county, tract, block group and block, falls
with each, so that there is an end. Coarse tables are among them: no exchange changes numbers by sex
and age or by sex and origin, and who is told otherwise alone makes up for what blocks have changed
in them.
"""

from __future__ import annotations

from numba import njit

from ...census.households import ADULT, Members
from ..workload.household_types import RENTED
from ..workload.places import OLDEST
from ..workload.tables import STATE
from .cells import Cells
from .composition import Households
from .counts import (
    Rows,
    Spans,
    State,
    compiled_once,
    enter,
    growth,
    growth_of_homes,
    growth_of_members,
    leave,
    members_of,
    row_of,
    rows_of,
    shift_two,
    state_of,
    tell_block,
    tell_person,
)
from .placing import Persons

_SWEEPS = 2
"""How often all blocks of a piece are gone through, at most."""
CURVE = 50, 1
"""How much a difference counts without its sign, and its square: large ones somewhat more than many
small ones of their sum, so that they are spread over rows where they can be made up for."""
_NO, _YES = map(compiled_once, (False, True))


def exchanged(
    persons: Persons, households: Households, members: Members, spans: Spans, cells: Cells
) -> Members:
    """The members of the households of some blocks after exchanges within each.

    persons, households : as they were released, in the order of the members and of their units.
    cells : what other blocks of the state and county have changed; brought up to date.
    """
    if len(members.age) == 0:
        return members
    state = state_of(persons, households, members, spans, cells, CURVE)
    _sweep(state, rows_of(state), spans)
    return members_of(state, members, cells)


@njit(cache=True, nogil=True)
def _sweep(state: State, rows: Rows, spans: Spans) -> None:
    """Go through all blocks until no exchange is left, or `_SWEEPS` times."""
    for _ in range(_SWEEPS):
        n_made = 0
        for block in range(spans.tract.size):
            enter(state, spans, block)
            tell_block(state, rows, spans, block)
            n_made += _n_changed(state, rows, spans, block)
            leave(state, spans, block)
        if n_made == 0:
            break


@njit(cache=True, nogil=True)
def _n_changed(state: State, rows: Rows, spans: Spans, block: int) -> int:
    """Make the changes of a block that bring the tables nearer, once through; how many."""
    n_made = 0
    for p in range(spans.persons[block], spans.persons[block + 1]):
        n_made += _is_coded_otherwise(state, rows, p)
        for q in range(p + 1, spans.persons[block + 1]):
            n_made += _is_exchanged(state, rows, p, q)
    for home in range(spans.households[block], spans.households[block + 1]):
        for other in range(home + 1, spans.households[block + 1]):
            n_made += _is_rehoused(state, rows, home, other)
    return n_made


@njit(cache=True, nogil=True)
def _is_coded_otherwise(state: State, rows: Rows, at: int) -> bool:
    """Whether a member now has the age, sex and relationship, of those that the place in the
    household allows, that bring the tables nearest."""
    codes, people, ages, more = state.codes, state.people, state.ages, state.persons.more
    sex, age, code, who = people.sex[at], people.age[at], people.code[at], people.who[at]
    if more[rows.persons[at, 0], STATE] <= 0:
        return False
    band, first, last = ages.band[age], age, age
    while first > 0 and ages.band[first - 1] == band:
        first -= 1
    while last < OLDEST and ages.band[last + 1] == band:
        last += 1
    least, best_code, best_sex, best_age = 0, code, sex, age
    for other in range(codes.role.size):
        if codes.role[other] != codes.role[code]:
            continue
        level = people.relationship[at] if other == code else codes.level[other]
        for new_sex in range(2):
            if new_sex != sex and not people.is_free[at]:
                continue
            for new_age in range(max(first, codes.first[other]), min(last, codes.last[other]) + 1):
                if people.is_head[at] and ages.level[new_age] != ages.level[age]:
                    continue
                grown = 0
                for table in range(state.persons.weight.shape[0]):
                    c = row_of(state, table, level, new_sex, new_age, who)
                    grown += growth(state.persons, rows.persons[at, table], c)
                if grown < least:
                    least, best_code, best_sex, best_age = grown, other, new_sex, new_age
    if least == 0:
        return False
    if best_code != code:
        people.code[at], people.relationship[at] = best_code, codes.level[best_code]
    people.sex[at], people.age[at] = best_sex, best_age
    tell_person(state, at, rows.new_persons[0])
    rows.new_persons[1] = rows.new_persons[0]
    shift_two(state.persons, rows.persons, rows.new_persons, at, at)
    return True


@njit(cache=True, nogil=True)
def _is_exchanged(state: State, rows: Rows, p: int, q: int) -> bool:
    """Whether two members have exchanged something by which the tables come nearer."""
    people = state.people
    are_of_age = people.age[p] >= ADULT
    if are_of_age != (people.age[q] >= ADULT):
        return False
    one, two = people.who[p], people.who[q]
    is_same_sex = people.sex[p] == people.sex[q]
    is_same_age = people.age[p] == people.age[q]
    is_same_origin = people.origin[one] == people.origin[two]
    is_same_race = is_same_origin and people.race[one] == people.race[two]
    are_heads = people.is_head[p] and people.is_head[q]
    # Of one relationship members differ only as householders of different households.
    is_same_place = people.relationship[p] == people.relationship[q] and not are_heads
    may_who = not is_same_race
    may_age = (
        not (is_same_age and is_same_sex)
        and (is_same_sex or (people.is_free[p] and people.is_free[q]))
        and _fits(state, p, people.age[q])
        and _fits(state, q, people.age[p])
    )
    # Numbers by origin and sex are told too well to be exchanged.
    may_part = is_same_sex or is_same_origin
    is_other = not (is_same_place and is_same_age and is_same_sex)
    if may_who and may_part and is_other and _is_better(state, rows, p, q, _NO, _YES):
        return True
    is_other = not (is_same_place and is_same_race)
    if may_age and may_part and is_other and _is_better(state, rows, p, q, _YES, _NO):
        return True
    return may_age and may_who and not is_same_place and _is_better(state, rows, p, q, _YES, _YES)


@njit(cache=True, nogil=True)
def _fits(state: State, at: int, age: int) -> bool:
    """Whether a place can have another age, and its household stay what it is."""
    people, homes, ages = state.people, state.homes, state.ages
    if ages.band[age] != ages.band[people.age[at]]:
        return False
    code = people.code[at]
    if not state.codes.first[code] <= age <= state.codes.last[code]:
        return False
    if not people.is_head[at]:
        return True
    home = people.home[at]
    return ages.possible[people.sex[at], ages.level[age], homes.elderly[home], homes.kind[home]]


@njit(cache=True, nogil=True)
def _is_better(
    state: State, rows: Rows, p: int, q: int, with_ages: bool, with_persons: bool
) -> bool:
    """Exchange ages with sexes, or persons with their races, or both, if the tables come nearer by
    it; whether they do."""
    people = state.people
    one, two = people.home[p], people.home[q]
    of_heads = people.is_head[p] or people.is_head[q]
    _exchange(state, p, q, with_ages, with_persons)
    grown = growth_of_members(state, rows, p, q)
    if of_heads:
        grown += growth_of_homes(state, rows, one, two)
    if grown >= 0:
        _exchange(state, p, q, with_ages, with_persons)
        return False
    shift_two(state.persons, rows.persons, rows.new_persons, p, q)
    if of_heads:
        shift_two(state.households, rows.homes, rows.new_homes, one, two)
    return True


@njit(cache=True, nogil=True, inline="always")
def _exchange(state: State, p: int, q: int, with_ages: bool, with_persons: bool) -> None:
    """Let two members have each other's age and sex, or be each other, or both."""
    people = state.people
    if with_ages:
        people.sex[p], people.sex[q] = people.sex[q], people.sex[p]
        people.age[p], people.age[q] = people.age[q], people.age[p]
    if with_persons:
        people.who[p], people.who[q] = people.who[q], people.who[p]


@njit(cache=True, nogil=True)
def _is_rehoused(state: State, rows: Rows, home: int, other: int) -> bool:
    """Whether two households have moved to each other's unit, of another tenure."""
    people, homes = state.people, state.homes
    unit, other_unit = homes.unit[other], homes.unit[home]
    one, two = homes.tenure[unit], homes.tenure[other_unit]
    if one == two:
        return False
    head, other_head = homes.head[home], homes.head[other]
    is_same_family = (
        people.sex[head] == people.sex[other_head] and homes.family[home] == homes.family[other]
    )
    if (one == RENTED) != (two == RENTED) and not is_same_family:
        return False
    homes.unit[home], homes.unit[other] = unit, other_unit
    if growth_of_homes(state, rows, home, other) >= 0:
        homes.unit[home], homes.unit[other] = other_unit, unit
        return False
    shift_two(state.households, rows.homes, rows.new_homes, home, other)
    return True
