"""Two members of a block who take each other's place or household, so that who lives together is as
the releases tell it.

A move of one member changes what persons are. A swap leaves all persons of the block what they are,
or nearly so:

- two members who are no householders go to each other's household, and keep their relationships:
  of persons nothing changes;
- householders of two households take each other's place: of persons nothing changes but who lives
  alone;
- a householder and another member of the household take each other's place, where their sexes fit
  the couple: of persons the sex, age, origin and race of a relationship change.

Households keep their sizes and tenures, and have to be possible. Their types, oldest members and
householders change: so tables of households come nearer, above all the finest one, at little cost
to persons. Every swap makes the weighted sum of differences smaller.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ..workload.levels import N_MEMBERS, Types, derived_type, types
from ..workload.places import FIRST_PARTNER, LAST_PARTNER, N_BANDS
from ..workload.tables import TRACT
from .counts import (
    Rows,
    Spans,
    State,
    growth_of_homes,
    growth_of_members,
    rows_of,
    shift_two,
    tell_block,
)
from .placing import SAME_SEX

_FINEST = 0
"""Number of the finest table of households."""

# As in `counts`, what is called for each pair of members is inlined.


class Crowd(NamedTuple):
    """Who lives in each household, and what that makes of it.

    size : (n,) members of each. members : (n, N_MEMBERS) how many have each place.
    """

    size: np.ndarray
    members: np.ndarray
    types: Types


class Swaps(NamedTuple):
    """What swaps need beside the state."""

    crowd: Crowd
    rows: Rows


def swaps_of(state: State) -> Swaps:
    """What swaps need of the members and households of some blocks."""
    people, n = state.people, len(state.homes.head)
    place = state.codes.role[people.code] * N_BANDS + state.ages.band[people.age]
    members = np.bincount(people.home * N_MEMBERS + place, minlength=n * N_MEMBERS)
    members = members.reshape(n, N_MEMBERS).astype(np.int16)
    crowd = Crowd(np.bincount(people.home, minlength=n), members, types())
    return Swaps(crowd, rows_of(state))


@njit(cache=True, nogil=True)
def swap_members(state: State, swaps: Swaps, spans: Spans, block: int) -> None:
    """Make the swaps of a block that bring the tables nearer, once through."""
    people, more = state.people, state.households.more
    first, end = spans.persons[block], spans.persons[block + 1]
    tell_block(state, swaps.rows, spans, block)
    for p in range(first, end):
        for q in range(p + 1, end):
            one, two = people.home[p], people.home[q]
            # Of one household the householder and another member, of two alike ones.
            if (one == two) == (people.is_head[p] == people.is_head[q]):
                continue
            a, b = swaps.rows.homes[one, _FINEST], swaps.rows.homes[two, _FINEST]
            # Elsewhere there is little to be made up for, and pairs of a large block are many.
            if one != two and more[a, TRACT] <= 0 and more[b, TRACT] <= 0:
                continue
            if people.is_head[p] or people.is_head[q]:
                _have_other_places(state, swaps, p, q)
            else:
                _have_other_homes(state, swaps, p, q)


@njit(cache=True, nogil=True, inline="always")
def _have_other_places(state: State, swaps: Swaps, p: int, q: int) -> None:
    """Let householders of two households, or a householder and another member of one, have each
    other's place, if the tables come nearer by it."""
    people, codes, ages, homes = state.people, state.codes, state.ages, state.homes
    rows = swaps.rows
    one, two, age, other_age = people.home[p], people.home[q], people.age[p], people.age[q]
    who, other_who = people.who[p], people.who[q]
    is_same_band = ages.band[age] == ages.band[other_age]
    is_same = (
        people.sex[p] == people.sex[q]
        and is_same_band
        and ages.level[age] == ages.level[other_age]
        and people.origin[who] == people.origin[other_who]
        and people.head_race[who] == people.head_race[other_who]
    ) or (
        one != two
        and is_same_band
        and homes.kind[one] == homes.kind[two]
        and homes.elderly[one] == homes.elderly[two]
        and homes.tenure[homes.unit[one]] == homes.tenure[homes.unit[two]]
    )
    code, other = people.code[p], people.code[q]
    fits = codes.first[code] <= other_age <= codes.last[code]
    fits = fits and codes.first[other] <= age <= codes.last[other]
    if is_same or not fits or not _sexes_fit(state, swaps, p, q):
        return
    was = homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two]
    if _swap_places(state, swaps, p, q):
        grown = growth_of_homes(state, rows, one, two)
        if grown + growth_of_members(state, rows, p, q) < 0:
            shift_two(state.persons, rows.persons, rows.new_persons, p, q)
            shift_two(state.households, rows.homes, rows.new_homes, one, two)
            return
    _swap_places(state, swaps, p, q)
    homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two] = was


@njit(cache=True, nogil=True, inline="always")
def _sexes_fit(state: State, swaps: Swaps, p: int, q: int) -> bool:
    """Whether householders of two households, or a householder and another member of one, can have
    each other's sex."""
    people = state.people
    if people.sex[p] == people.sex[q]:
        return True
    one, two = people.home[p], people.home[q]
    if one == two:
        return _is_partner(state, q if people.is_head[p] else p) or not _has_partner(swaps, one)
    return not _has_partner(swaps, one) and not _has_partner(swaps, two)


@njit(cache=True, nogil=True, inline="always")
def _is_partner(state: State, at: int) -> bool:
    """Whether a member is the householder's spouse or partner."""
    return FIRST_PARTNER <= state.codes.role[state.people.code[at]] <= LAST_PARTNER


@njit(cache=True, nogil=True, inline="always")
def _has_partner(swaps: Swaps, home: int) -> bool:
    """Whether the householder of a household has a spouse or partner."""
    for place in range(FIRST_PARTNER * N_BANDS, (LAST_PARTNER + 1) * N_BANDS):
        if swaps.crowd.members[home, place] > 0:
            return True
    return False


@njit(cache=True, nogil=True, inline="always")
def _swap_places(state: State, swaps: Swaps, p: int, q: int) -> bool:
    """Let two members have each other's place; whether their households can be so."""
    people, codes, ages = state.people, state.codes, state.ages
    one, two = people.home[p], people.home[q]
    role, other = codes.role[people.code[p]] * N_BANDS, codes.role[people.code[q]] * N_BANDS
    band, other_band = ages.band[people.age[p]], ages.band[people.age[q]]
    people.sex[p], people.sex[q] = people.sex[q], people.sex[p]
    people.age[p], people.age[q] = people.age[q], people.age[p]
    people.who[p], people.who[q] = people.who[q], people.who[p]
    if band != other_band:
        swaps.crowd.members[one, role + band] -= 1
        swaps.crowd.members[one, role + other_band] += 1
        swaps.crowd.members[two, other + other_band] -= 1
        swaps.crowd.members[two, other + band] += 1
        tell_type(state, swaps.crowd, one)
        tell_type(state, swaps.crowd, two)
    return is_possible(state, swaps.crowd, one) and is_possible(state, swaps.crowd, two)


@njit(cache=True, nogil=True, inline="always")
def _have_other_homes(state: State, swaps: Swaps, p: int, q: int) -> None:
    """Let two members who are no householders live in each other's household, if the tables come
    nearer by it."""
    people, codes, ages, homes = state.people, state.codes, state.ages, state.homes
    rows = swaps.rows
    place = codes.role[people.code[p]] * N_BANDS + ages.band[people.age[p]]
    other = codes.role[people.code[q]] * N_BANDS + ages.band[people.age[q]]
    one, two = people.home[p], people.home[q]
    if place == other or not _fits_householder(state, p, two):
        return
    if not _fits_householder(state, q, one):
        return
    was = homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two]
    _swap_homes(state, swaps, p, q, place, other)
    tell_type(state, swaps.crowd, one)
    tell_type(state, swaps.crowd, two)
    is_other = was != (homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two])
    if is_other and is_possible(state, swaps.crowd, one) and is_possible(state, swaps.crowd, two):
        if growth_of_homes(state, rows, one, two) < 0:
            shift_two(state.households, rows.homes, rows.new_homes, one, two)
            return
    _swap_homes(state, swaps, p, q, place, other)
    homes.kind[one], homes.elderly[one], homes.kind[two], homes.elderly[two] = was


@njit(cache=True, nogil=True, inline="always")
def _fits_householder(state: State, at: int, home: int) -> bool:
    """Whether a member, who may be a spouse or partner, can be that of a household's
    householder."""
    people, role = state.people, state.codes.role[state.people.code[at]]
    if not FIRST_PARTNER <= role <= LAST_PARTNER:
        return True
    is_same_sex = people.sex[at] == people.sex[state.homes.head[home]]
    return is_same_sex == (role in SAME_SEX)


@njit(cache=True, nogil=True, inline="always")
def _swap_homes(state: State, swaps: Swaps, p: int, q: int, place: int, other: int) -> None:
    """Let two members live in each other's household, given the place that each takes out of the
    household of the first and of the second."""
    people = state.people
    one, two = people.home[p], people.home[q]
    swaps.crowd.members[one, place] -= 1
    swaps.crowd.members[one, other] += 1
    swaps.crowd.members[two, other] -= 1
    swaps.crowd.members[two, place] += 1
    people.home[p], people.home[q] = two, one


@njit(cache=True, nogil=True, inline="always")
def tell_type(state: State, crowd: Crowd, home: int) -> None:
    """Tell the type and the oldest member of a household from its members."""
    derived = derived_type(crowd.types, crowd.members[home], crowd.size[home])
    state.homes.kind[home], state.homes.elderly[home] = derived


@njit(cache=True, nogil=True, inline="always")
def is_possible(state: State, crowd: Crowd, home: int) -> bool:
    """Whether there are households as one now is."""
    homes, people = state.homes, state.people
    kind, elderly, head = homes.kind[home], homes.elderly[home], homes.head[home]
    level = state.ages.level[people.age[head]]
    return kind >= 0 and crowd.types.possible[people.sex[head], level, elderly, kind]
