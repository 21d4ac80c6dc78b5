"""Moves within blocks that make up for what is left over once all blocks of a state are made.

A block can make up only for what was changed before it. Once all are made, it is known by how much
the tables of the state and of each county differ from the releases, and blocks are gone through
once more.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from ...census.households import Members
from ..workload.tables import STATE
from .blocks import Blocks, Populated, joined_members, part_of, spans_of
from .cells import Cells
from .counts import changed
from .moves import moved


def closed(blocks: Blocks, made: Populated) -> Populated:
    """The population of some blocks after moves by which tables of each state come nearer."""
    counties = blocks.counties()
    parts: list[Members] = []
    for _, own in groupby(counties, key=lambda county: blocks.areas[county[0]][STATE]):
        extents = list(own)
        parts += _of_state(
            [blocks.part(first, end) for first, end in extents],
            [_part(blocks, made.members, first, end) for first, end in extents],
        )
    members = joined_members(parts, blocks.household_starts[[first for first, _ in counties]])
    return replace(made, members=members)


def _of_state(blocks: list[Blocks], members: list[Members]) -> list[Members]:
    """Members of the counties of a state after moves, one county after the other."""
    total = Cells()
    for own, made in zip(blocks, members, strict=True):
        _count(total, _changed(own, made), 1)
    found = []
    for own, made in zip(blocks, members, strict=True):
        _count(total, _changed(own, made), -1)
        found.append(moved(own.persons, own.households, made, spans_of(own), total))
        # Of a county nothing is carried on to another.
        total.persons[:, STATE + 1 :] = total.households[:, STATE + 1 :] = 0
    return found


def _changed(blocks: Blocks, members: Members) -> Cells:
    return changed(blocks.persons, blocks.households, members, spans_of(blocks))


def _count(total: Cells, own: Cells, sign: int) -> None:
    """Count what a county has changed in that of its state, or take it back."""
    total.persons[:, STATE] += sign * own.persons[:, STATE]
    total.households[:, STATE] += sign * own.households[:, STATE]


def _part(blocks: Blocks, members: Members, first: int, end: int) -> Members:
    """The members of the households of some blocks, their units numbered from 0."""
    start, stop = blocks.person_starts[[first, end]]
    own = part_of(members, start, stop)
    return replace(own, unit=own.unit - blocks.household_starts[first])
