"""One population for the persons and households of blocks, county by county and state by state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TypeVar

import numpy as np

from ...census.households import Members
from ..workload.levels import are_possible, derived_levels
from ..workload.tables import BLOCK_GROUP, COUNTY, STATE, TRACT
from .counts import Spans, Surplus, members_of, state_of, surplus_of
from .search import search
from .start import Households, LargerBlocks, Persons, first_members

COUNTY_TURNS = (0, 10, 60, 60, 10), (0, 20, 80, 20, 10)
"""Weights of coarse tables by kind of area, for each pass over the blocks of a county. Small areas
come first: tracts have the sums of their block groups. If counties came first, blocks would match
them at the cost of their tracts, which no single move can repair.
"""
STATE_TURNS = (30, 30, 40, 10, 10), (30, 30, 40, 10, 10)
"""Weights of these tables once all counties of a state are made."""

Record = TypeVar("Record", Persons, Households, Members)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Released records of blocks in the order of their codes.

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
        own = [areas[: COUNTY + 1] for areas in self.areas]
        starts = [k for k in range(len(own)) if k == 0 or own[k] != own[k - 1]]
        return list(zip(starts, [*starts[1:], len(own)], strict=True)) if own else []

    def members(self, every: Members, first: int, end: int) -> Members:
        """The members of the households of some of the blocks, their units numbered from 0."""
        own = part_of(every, *self.person_starts[[first, end]])
        return replace(own, unit=own.unit - self.household_starts[first])

    def spans(self) -> Spans:
        """Where the blocks of a county begin, and their tracts and block groups."""
        area = [
            np.unique([areas[level] for areas in self.areas], return_inverse=True)[1]
            for level in (TRACT, BLOCK_GROUP)
        ]
        numbers = np.stack([*area, np.arange(len(self.areas))])
        return Spans(self.person_starts, self.household_starts, numbers)


def populate_county(blocks: Blocks) -> Members:
    """The persons of blocks of one county as members of the households of their blocks, whose
    tables are as near to the releases as moves within blocks bring them.

    Persons keep whether they are minors, origin and race; blocks keep their number of households.

    Raises ValueError unless every block has as many persons as households, and households where
    there are persons.
    """
    parts, larger = [], LargerBlocks()
    for block in range(len(blocks.areas)):
        own = blocks.part(block, block + 1)
        if len(own.persons.age) or len(own.households.kind):
            parts.append(first_members(own.persons, own.households, larger))
    starts = blocks.household_starts[:-1]
    begun = join_members(parts, starts[np.diff(blocks.household_starts) > 0])
    return _search_blocks(blocks, begun, 0, COUNTY_TURNS)[0]


def close_states(blocks: Blocks, made: Members) -> Members:
    """The members of the households of some blocks once all counties of each state are made, when
    the state's differences from the releases are known.

    Raises ValueError for households of an impossible type.
    """
    counties, parts = blocks.counties(), list[Members]()
    for _, extents in groupby(counties, key=lambda county: blocks.areas[county[0]][STATE]):
        pairs = [(blocks.part(*own), blocks.members(made, *own)) for own in extents]
        more: Surplus = 0
        for own, members in pairs:
            more = more + _surplus_of_county(own, members)
        for own, members in pairs:
            others = more - _surplus_of_county(own, members)
            members, more = _search_blocks(own, members, others, STATE_TURNS)
            parts.append(members)
    found = join_members(parts, blocks.household_starts[[k for k, _ in counties]])
    if not are_possible(derived_levels(found, len(blocks.households.kind))).all():
        raise ValueError("households are of a type that cannot be")
    return found


def _search_blocks(
    blocks: Blocks, members: Members, others: Surplus, turns: Sequence[Sequence[int]]
) -> tuple[Members, Surplus]:
    """The members after a search, and the state's surplus of records afterwards; `others` is the
    surplus of the rest of the state before.
    """
    if len(members.age) == 0:
        return members, others
    state = state_of(blocks.persons, blocks.households, members, others)
    search(state, blocks.spans(), turns)
    return members_of(state, members), surplus_of(state)


def _surplus_of_county(blocks: Blocks, members: Members) -> Surplus:
    """The surplus of records of a county alone."""
    return _search_blocks(blocks, members, 0, ())[1]


def part_of(records: Record, first: int, end: int) -> Record:
    """The records from the first one up to another."""
    make: Callable[..., Record] = type(records)
    return make(*(getattr(records, field.name)[first:end] for field in fields(records)))


def join_members(parts: Sequence[Members], first: Sequence[int] | np.ndarray) -> Members:
    """Members of all parts, their units numbered through from the first of each."""
    none = np.empty(0, dtype=np.int64)
    every = [Members(*(none,) * len(fields(Members))), *parts]
    columns = {
        f.name: np.concatenate([getattr(one, f.name) for one in every]) for f in fields(Members)
    }
    size = [len(part.age) for part in parts]
    return Members(
        **columns | {"unit": columns["unit"] + np.repeat(np.array(first, dtype=np.int64), size)}
    )
