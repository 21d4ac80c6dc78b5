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
    Spans,
    State,
    enter,
    growth,
    growth_of_two,
    home_row,
    leave,
    members_of,
    person_row,
    row_now,
    row_of,
    shift,
    state_of,
)
from .placing import Persons

_SWEEPS = 2
"""How often all blocks of a piece are gone through, at most."""
CURVE = 50, 1
"""How much a difference counts without its sign, and its square: large ones somewhat more than many
small ones of their sum, so that they are spread over rows where they can be made up for."""


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
    _sweep(state, spans)
    return members_of(state, members, cells)


@njit(cache=True, nogil=True)
def _sweep(state: State, spans: Spans) -> None:
    """Go through all blocks until no exchange is left, or `_SWEEPS` times."""
    for _ in range(_SWEEPS):
        n_made = 0
        for block in range(spans.tract.size):
            enter(state, spans, block)
            n_made += _n_changed(state, spans, block)
            leave(state, spans, block)
        if n_made == 0:
            break


@njit(cache=True, nogil=True)
def _n_changed(state: State, spans: Spans, block: int) -> int:
    """Make the changes of a block that bring the tables nearer, once through; how many."""
    n_made = 0
    for p in range(spans.persons[block], spans.persons[block + 1]):
        n_made += _is_coded_otherwise(state, p)
        for q in range(p + 1, spans.persons[block + 1]):
            n_made += _is_exchanged(state, p, q)
    for home in range(spans.households[block], spans.households[block + 1]):
        for other in range(home + 1, spans.households[block + 1]):
            n_made += _is_rehoused(state, home, other)
    return n_made


@njit(cache=True, nogil=True)
def _is_coded_otherwise(state: State, at: int) -> bool:
    """Whether a member now has the age, sex and relationship, of those that the place in the
    household allows, that bring the tables nearest."""
    codes, people, ages, more = state.codes, state.people, state.ages, state.persons.more
    sex, age, code, who = people.sex[at], people.age[at], people.code[at], people.who[at]
    now = person_row(state, 0, at, sex, age, who)
    if more[now, STATE] <= 0:
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
                    a = person_row(state, table, at, sex, age, who)
                    c = row_of(state, table, level, new_sex, new_age, who)
                    grown += growth(state.persons, a, c)
                if grown < least:
                    least, best_code, best_sex, best_age = grown, other, new_sex, new_age
    if least == 0:
        return False
    level = people.relationship[at] if best_code == code else codes.level[best_code]
    for table in range(state.persons.weight.shape[0]):
        a = person_row(state, table, at, sex, age, who)
        shift(state.persons, table, a, row_of(state, table, level, best_sex, best_age, who))
    people.code[at], people.relationship[at] = best_code, level
    people.sex[at], people.age[at] = best_sex, best_age
    return True


@njit(cache=True, nogil=True)
def _is_exchanged(state: State, p: int, q: int) -> bool:
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
    if may_who and may_part and is_other and _is_better(state, p, q, False, True):
        return True
    is_other = not (is_same_place and is_same_race)
    if may_age and may_part and is_other and _is_better(state, p, q, True, False):
        return True
    return may_age and may_who and not is_same_place and _is_better(state, p, q, True, True)


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
def _is_better(state: State, p: int, q: int, with_ages: bool, with_persons: bool) -> bool:
    """Exchange ages with sexes, or persons with their races, or both, if the tables come nearer by
    it; whether they do."""
    people, homes = state.people, state.homes
    one, two = (q, p) if with_ages else (p, q)
    sex, other_sex, age, other_age = (
        people.sex[one],
        people.sex[two],
        people.age[one],
        people.age[two],
    )
    one, two = (q, p) if with_persons else (p, q)
    who, other_who = people.who[one], people.who[two]
    home, other = people.home[p], people.home[q]
    householder, other_householder = _householder(state, home), _householder(state, other)
    if people.is_head[p]:
        householder = age, who, homes.unit[home]
    if people.is_head[q]:
        other_householder = other_age, other_who, homes.unit[other]
    grown = 0
    # At first to see what it comes to, and then to do it.
    for is_made in (False, True):
        for table in range(state.persons.weight.shape[0]):
            a = person_row(state, table, p, people.sex[p], people.age[p], people.who[p])
            b = person_row(state, table, q, people.sex[q], people.age[q], people.who[q])
            c = person_row(state, table, p, sex, age, who)
            d = person_row(state, table, q, other_sex, other_age, other_who)
            if is_made:
                shift(state.persons, table, a, c)
                shift(state.persons, table, b, d)
            else:
                grown += growth_of_two(state.persons, table, a, c, b, d)
        if people.is_head[p] or people.is_head[q]:
            grown += _growth_of_homes(state, home, other, householder, other_householder, is_made)
        if grown >= 0:
            return False
    people.sex[p], people.age[p], people.who[p] = sex, age, who
    people.sex[q], people.age[q], people.who[q] = other_sex, other_age, other_who
    return True


@njit(cache=True, nogil=True)
def _householder(state: State, home: int) -> tuple[int, int, int]:
    """Age of a household's householder, who is a person, and the unit that it lives in."""
    head = state.homes.head[home]
    return state.people.age[head], state.people.who[head], state.homes.unit[home]


@njit(cache=True, nogil=True)
def _growth_of_homes(
    state: State,
    home: int,
    other: int,
    householder: tuple[int, int, int],
    other_householder: tuple[int, int, int],
    is_made: bool,
) -> int:
    """By how much the sum grows if two households have householders of an age, who is a person, and
    live in a unit; or, if it is to be made so, 0 once their rows are the new ones."""
    grown = 0
    for table in range(state.households.weight.shape[0]):
        a, b = row_now(state, table, home), row_now(state, table, other)
        c = home_row(state, table, home, householder[0], householder[1], householder[2])
        d = home_row(
            state, table, other, other_householder[0], other_householder[1], other_householder[2]
        )
        if is_made:
            shift(state.households, table, a, c)
            shift(state.households, table, b, d)
        else:
            grown += growth_of_two(state.households, table, a, c, b, d)
    return grown


@njit(cache=True, nogil=True)
def _is_rehoused(state: State, home: int, other: int) -> bool:
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
    householder = people.age[head], people.who[head], unit
    other_householder = people.age[other_head], people.who[other_head], other_unit
    if _growth_of_homes(state, home, other, householder, other_householder, False) >= 0:
        return False
    _growth_of_homes(state, home, other, householder, other_householder, True)
    homes.unit[home], homes.unit[other] = unit, other_unit
    return True
