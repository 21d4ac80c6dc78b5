"""One population for the persons and households of blocks, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

import numpy as np

from ...census.households import HOUSEHOLDER, MALE, Members
from ..workload.household_types import OPEN_SIZE, TYPE, levels_of_age
from ..workload.levels import DERIVED, are_possible, derived_levels, head_races
from ..workload.patterns import book
from ..workload.places import N_PLACES
from ..workload.tables import BLOCK_GROUP, TRACT
from .cells import CARRIED
from .composition import Households, nearest_composition
from .counts import Spans
from .drift import Drift, kinds_of_households, kinds_of_persons
from .exchanges import exchanged
from .fallback import simple_households
from .placing import Persons, placed

Record = TypeVar("Record", Persons, Households, Members)


class Way(StrEnum):
    """How the households of a block were made."""

    OPTIMAL = "nearest"
    LIMIT = "within limits"
    SIMPLE = "simple"


@dataclass(frozen=True, eq=False)
class Blocks:
    """What is released of blocks in the order of their codes.

    person_starts, household_starts : (n_blocks + 1,) first record of each block.
    areas : state, county, tract and block group of each block.
    """

    persons: Persons
    households: Households
    person_starts: np.ndarray
    household_starts: np.ndarray
    areas: Sequence[Sequence[str]]

    def part(self, first: int, end: int) -> Blocks:
        """The blocks from the first one up to another."""
        starts = [one[first : end + 1] for one in (self.person_starts, self.household_starts)]
        return Blocks(
            part_of(self.persons, *starts[0][[0, -1]]),
            part_of(self.households, *starts[1][[0, -1]]),
            starts[0] - starts[0][0],
            starts[1] - starts[1][0],
            self.areas[first:end],
        )

    def counties(self) -> list[tuple[int, int]]:
        """The first block of each county, and the one after its last."""
        own = [areas[:CARRIED] for areas in self.areas]
        starts = [k for k in range(len(own)) if k == 0 or own[k] != own[k - 1]]
        return list(zip(starts, [*starts[1:], len(own)], strict=True)) if own else []


@dataclass(frozen=True, eq=False)
class Piece:
    """Persons of some blocks as members of households, in the order of the persons, units numbered
    from 0.

    way : how each block was made. cost : (n_blocks,) what its nearest composition costs, NaN of
    simple ones.
    """

    members: Members
    way: tuple[Way, ...]
    cost: np.ndarray


@dataclass(frozen=True, eq=False)
class Populated:
    """Persons of all blocks as members of households."""

    members: Members
    way: tuple[Way, ...]

    @cached_property
    def levels(self) -> np.ndarray:
        """What members tell of each household `(6, n_households)`, see `derived_levels`."""
        return derived_levels(self.members, int(self.members.are(HOUSEHOLDER).sum()))


def spans_of(blocks: Blocks) -> Spans:
    """Where the blocks of a county begin, and their tracts and block groups."""
    tract, group = (
        np.unique([areas[level] for areas in blocks.areas], return_inverse=True)[1]
        for level in (TRACT, BLOCK_GROUP)
    )
    return Spans(blocks.person_starts, blocks.household_starts, tract, group)


def populated(blocks: Blocks, drift: Drift) -> Piece:
    """The persons of blocks of one county as members of the households of their blocks; what
    earlier blocks have changed is carried on to later ones, from `drift` on, which is brought up to
    date. At last the blocks exchange what they can.

    Persons keep whether they are minors, origin and race; blocks keep their number of households.
    Everything else is what it was where that is possible, and else as near as the program finds.

    Raises ValueError unless every block has as many persons as households, and households where
    there are persons.
    """
    parts, ways, costs = [], [], []
    for block, areas in enumerate(blocks.areas):
        own = part_of(blocks.persons, *blocks.person_starts[block : block + 2])
        homes = part_of(blocks.households, *blocks.household_starts[block : block + 2])
        drift.enter(areas)
        members, way, cost = _nearest(own, homes, drift)
        parts.append(members)
        ways.append(way)
        costs.append(cost)
    starts = blocks.household_starts
    members = joined_members(parts, starts[:-1])
    wrong = np.flatnonzero(~are_possible(derived_levels(members, int(starts[-1]))))
    # Not seen to happen: patterns exclude it. A block that is wrong is made anew all the same.
    for block in np.unique(np.searchsorted(starts, wrong, side="right") - 1).tolist():
        own = part_of(blocks.persons, *blocks.person_starts[block : block + 2])
        parts[block] = simple_households(own, int(starts[block + 1] - starts[block]))
        ways[block], costs[block] = Way.SIMPLE, np.nan
    if len(wrong):
        members = joined_members(parts, starts[:-1])
    drift.cells.enter(blocks.areas[0][:CARRIED])
    before, homes = members, blocks.households
    members = exchanged(blocks.persons, homes, before, spans_of(blocks), drift.cells)
    # Of tracts and block groups nothing is carried on to another piece.
    was, now = (
        derived_levels(own, int(starts[-1]))[DERIVED.index(TYPE)] for own in (before, members)
    )
    drift.add(_made(before, was, homes.is_rented), _made(members, now, homes.is_rented))
    return Piece(members, tuple(ways), np.array(costs))


def joined(blocks: Blocks, first: Sequence[int], pieces: Sequence[Piece]) -> Populated:
    """The pieces of some blocks together; `first` is the block with which each begins.

    Raises ValueError where households are of a type that cannot be.
    """
    members = joined_members(
        [piece.members for piece in pieces], blocks.household_starts[list(first)]
    )
    # Blocks of no piece are empty.
    ways = [Way.OPTIMAL] * len(blocks.areas)
    for one, piece in zip(first, pieces, strict=True):
        ways[one : one + len(piece.way)] = piece.way
    made = Populated(members, tuple(ways))
    if not are_possible(made.levels).all():
        raise ValueError("simple households are of a type that cannot be")
    return made


def _nearest(persons: Persons, households: Households, drift: Drift) -> tuple[Members, Way, float]:
    n = len(households.kind)
    if n == 0 and len(persons.age) == 0:
        return _nobody(), Way.OPTIMAL, 0.0
    places = np.bincount(persons.places, minlength=N_PLACES)
    is_possible = 1 <= n <= len(persons.age)
    chosen = nearest_composition(households, places, drift) if is_possible else None
    if chosen is None:
        return simple_households(persons, n), Way.SIMPLE, np.nan
    way = Way.OPTIMAL if chosen.is_optimal else Way.LIMIT
    try:
        members = placed(persons, households, chosen, drift)
    except ValueError:
        # A composition that is rounded wrongly has not a place for everybody.
        return simple_households(persons, n), Way.SIMPLE, np.nan
    kind = book().kind[chosen.pattern]
    drift.add(_released(persons, households), _made(members, kind, households.is_rented))
    size = np.bincount(members.unit)
    drift.add_larger(int((size >= OPEN_SIZE).sum()), bool((size > OPEN_SIZE).any()))
    return members, way, chosen.cost


def _released(persons: Persons, households: Households) -> dict[str, np.ndarray]:
    """The kinds of released persons and households."""
    own, homes = persons, households
    people = kinds_of_persons(own.relationship, own.sex, own.age, own.hispanic, own.is_alone)
    return people | kinds_of_households(
        homes.sex, homes.age, homes.origin, homes.race, homes.kind, homes.is_rented
    )


def _made(members: Members, kind: np.ndarray, is_rented: np.ndarray) -> dict[str, np.ndarray]:
    """The kinds of the same persons, and of households of these types, as they were made."""
    own, is_alone = members, np.bincount(members.unit)[members.unit] == 1
    people = kinds_of_persons(own.relationship, own.sex, own.age, own.hispanic, is_alone)
    heads = np.flatnonzero(own.relationship == HOUSEHOLDER)
    unit, sex, origin = own.unit[heads], own.sex[heads] - MALE, own.hispanic[heads] - 1
    age, race = levels_of_age(own.age[heads]), head_races(own.race[heads])
    return people | kinds_of_households(sex, age, origin, race, kind[unit], is_rented[unit])


def _nobody() -> Members:
    none = np.empty(0, dtype=np.int64)
    return Members(none, none, none, none, none, none)


def part_of(records: Record, first: int, end: int) -> Record:
    """The records from the first one up to another."""
    make: Callable[..., Record] = type(records)
    return make(*(getattr(records, field.name)[first:end] for field in fields(records)))


def joined_members(parts: Sequence[Members], first: Sequence[int] | np.ndarray) -> Members:
    """Members of all parts, their units numbered through from the first of each."""
    if not parts:
        return _nobody()
    unit = [part.unit + start for part, start in zip(parts, first, strict=True)]
    columns = (
        np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Members)
    )
    return replace(Members(*columns), unit=np.concatenate(unit))
