"""One population for the persons and households of blocks, county by county and state by state.

Counties are the pieces whose populations are made in parallel, and which have files. The blocks of
a piece follow from released counts alone, and pieces are independent: so the
population does not depend on how the pieces are run. The files of the released records have a row
group for every piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.households import Members
from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ...runs.stamps import stamped, write_parquet
from ..ingest.released import Released
from ..workload.household_types import are_possible, derived_levels, head_races
from ..workload.person_levels import KIND, relationships
from ..workload.tables import BLOCK_GROUP, COUNTY, STATE, TRACT
from .counts import Spans, Surplus, members_of, state_of, surplus_of
from .search import search
from .start import Persons, first_members, lacking_larger

COUNTY_TURNS = (0, 10, 60, 60, 10), (0, 20, 80, 20, 10)
"""Weights of coarse tables by kind of area, for each pass over the blocks of a county. Small areas
come first: tracts have the sums of their block groups. If counties came first, blocks would match
them at the cost of their tracts, which no single move can repair.
"""
STATE_TURNS = (30, 30, 40, 10, 10), (30, 30, 40, 10, 10)
"""Weights of these tables once all counties of a state are made."""

_DIGITS = 2, 5, 11, 12
"""Digits of the codes of states, counties, tracts and block groups."""

Record = TypeVar("Record", Persons, Members)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Released records of blocks in the order of their codes.

    households : (7, n) levels of the released households.
    person_starts, household_starts : (n_blocks + 1,) first record of each block.
    codes : (n_blocks,) as texts.
    """

    persons: Persons
    households: np.ndarray
    person_starts: np.ndarray
    household_starts: np.ndarray
    codes: np.ndarray

    def part(self, first: int, end: int) -> Blocks:
        """The blocks from the first one up to another."""
        persons, homes = (
            one[first : end + 1] for one in (self.person_starts, self.household_starts)
        )
        return Blocks(
            part_of(self.persons, persons[0], persons[-1]),
            self.households[:, homes[0] : homes[-1]],
            persons - persons[0],
            homes - homes[0],
            self.codes[first:end],
        )

    def counties(self) -> list[tuple[int, int]]:
        """The first block of each county with households, and the one after its last."""
        starts = np.unique(self.areas(COUNTY), return_index=True)[1].tolist()
        homes = self.household_starts
        every = pairwise([*starts, len(self.codes)])
        return [(first, end) for first, end in every if homes[end] > homes[first]]

    def areas(self, kind: int) -> np.ndarray:
        """The code of the area of a kind that each block is in."""
        return self.codes.astype(f"<U{_DIGITS[kind]}")

    def members(self, every: Members, first: int, end: int) -> Members:
        """The members of the households of some of the blocks, their units numbered from 0."""
        own = part_of(every, *self.person_starts[[first, end]])
        return replace(own, unit=own.unit - self.household_starts[first])

    def spans(self) -> Spans:
        """Where the blocks of a county begin, and their tracts and block groups."""
        kinds = self.areas(TRACT), self.areas(BLOCK_GROUP), self.codes
        first, end = (
            np.stack([np.searchsorted(codes, codes, side) for codes in kinds])
            for side in ("left", "right")
        )
        return Spans(self.person_starts, self.household_starts, first, end)


def populate_county(blocks: Blocks) -> Members:
    """The persons of blocks of one county as members of the households of their blocks, whose
    tables are as near to the releases as moves within blocks bring them.

    Persons keep whether they are minors, origin and race; blocks keep their number of households.

    Raises ValueError unless every block has as many persons as households, and households where
    there are persons.
    """
    parts, lacking = list[Members](), 0.0
    for block in range(len(blocks.codes)):
        own = blocks.part(block, block + 1)
        if len(own.persons.age) or own.households.size:
            parts.append(first_members(own.persons, own.households, are_few=lacking > 0))
            lacking = lacking_larger(lacking, np.bincount(parts[-1].unit))
    starts = blocks.household_starts[:-1]
    begun = join_members(parts, starts[np.diff(blocks.household_starts) > 0])
    return _search_blocks(blocks, begun, 0, COUNTY_TURNS)[0]


def close_states(blocks: Blocks, made: Members) -> Members:
    """The members of the households of some blocks once all counties of each state are made, when
    the state's differences from the releases are known.

    Raises ValueError for households of an impossible type.
    """
    counties, states, parts = blocks.counties(), blocks.areas(STATE), list[Members]()
    for _, extents in groupby(counties, key=lambda county: states[county[0]]):
        pairs = [(blocks.part(*own), blocks.members(made, *own)) for own in extents]
        more: Surplus = sum(_surplus_of_county(*pair) for pair in pairs)
        for own, members in pairs:
            others = more - _surplus_of_county(own, members)
            members, more = _search_blocks(own, members, others, STATE_TURNS)
            parts.append(members)
    found = join_members(parts, blocks.household_starts[[k for k, _ in counties]])
    if not are_possible(derived_levels(found, blocks.households.shape[1])).all():
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
    moved = [replace(own, unit=own.unit + unit) for own, unit in zip(parts, first, strict=True)]
    names = (field.name for field in fields(Members))
    return Members(*(np.concatenate([none, *(getattr(own, n) for own in moved)]) for n in names))


_UNIVERSE, _RELEASED, _MADE = "population", "released", "made"
_HOUSEHOLDS = ("sex", "age", "origin", "race", "elderly", "tenure", "kind")
"""Columns of released households, in the order of their levels."""
_CHANGED = ("unit", "relationship", "age", "sex")
"""Columns of persons that a piece may change."""


def blocks_of(source: Released) -> Blocks:
    """The released persons in households, and the households, of all blocks.

    Raises ValueError where persons are in households of a block without households.
    """
    people, inside = source.people, source.inside
    every = np.arange(len(source.blocks) + 1)
    person_starts = np.searchsorted(source.person_block[inside], every)
    household_starts = np.searchsorted(source.household_block, every)
    homeless = (np.diff(person_starts) > 0) & (np.diff(household_starts) == 0)
    if homeless.any():
        raise ValueError(
            f"{int(homeless.sum())} blocks have persons in households and no occupied unit"
        )
    return Blocks(
        Persons(
            people.relationship[inside],
            people.sex[inside],
            people.age[inside],
            people.hispanic[inside],
            people.race[inside],
            head_races()[people.race[inside]],
            source.person_levels[KIND, inside] == relationships().alone,
        ),
        source.household_levels,
        person_starts,
        household_starts,
        source.blocks,
    )


def released_file(run: RunDirectory, records: str) -> Path:
    """The released `persons` or `households` of all pieces."""
    return run.estimates(_UNIVERSE, _RELEASED, records)


def made_file(run: RunDirectory, piece: str) -> Path:
    """The members of the households of a piece."""
    return run.estimates(_UNIVERSE, _MADE, piece)


def piece_names(run: RunDirectory) -> list[str]:
    """The names of all pieces, once the released records are written."""
    n = pq.read_metadata(released_file(run, "households")).num_row_groups
    return [f"{number:05d}" for number in range(n)]


def write_release_records(run: RunDirectory, own: Blocks) -> Path:
    """Write the records of all pieces of blocks; returns the file that is written last."""
    every = np.array(own.counties(), dtype=int).reshape(-1, 2)
    path = released_file(run, "households")
    path.parent.mkdir(parents=True, exist_ok=True)
    households = dict(zip(_HOUSEHOLDS, own.households, strict=True))
    for name, columns, starts in (
        ("persons", vars(own.persons), own.person_starts),
        ("households", households, own.household_starts),
    ):
        geocode = pa.array(np.repeat(own.codes, np.diff(starts)).tolist(), pa.string())
        table = pa.table({"geocode": geocode, **columns})
        file = released_file(run, name)
        schema = stamped(table.schema, file)
        with replacing(file) as part, pq.ParquetWriter(part, schema) as writer:
            for first, end in starts[every].tolist():
                rows = table.slice(first, end - first).replace_schema_metadata(schema.metadata)
                writer.write_table(rows, row_group_size=max(1, end - first))
    return path


def read_piece(run: RunDirectory, piece: str) -> Blocks:
    """The records of a piece, by block, for blocks with records."""
    tables = []
    for records in ("persons", "households"):
        with pq.ParquetFile(released_file(run, records)) as file:
            tables.append(file.read_row_group(int(piece)))
    codes = [np.array(table["geocode"].to_pylist(), dtype=str) for table in tables]
    blocks = np.unique(np.concatenate(codes))
    person_starts, household_starts = (
        np.append(np.searchsorted(own, blocks), len(own)) for own in codes
    )
    persons, households = tables
    return Blocks(
        Persons(*(persons[field.name].to_numpy() for field in fields(Persons))),
        np.stack([households[name].to_numpy() for name in _HOUSEHOLDS]),
        person_starts,
        household_starts,
        blocks,
    )


def write_members(run: RunDirectory, piece: str, made: Members) -> Path:
    """Write the members of a piece, a row for each."""
    path = made_file(run, piece)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(path, pa.table({name: getattr(made, name) for name in _CHANGED}))
    return path


def read_members(run: RunDirectory, own: Blocks) -> Members:
    """The members of all pieces of some blocks."""
    every, parts = own.counties(), []
    for name, (start, stop) in zip(piece_names(run), every, strict=True):
        table = pq.read_table(made_file(run, name))
        first, end = own.person_starts[[start, stop]]
        columns = {column: table[column].to_numpy() for column in _CHANGED}
        persons = own.persons
        parts.append(
            Members(**columns, hispanic=persons.hispanic[first:end], race=persons.race[first:end])
        )
    return join_members(parts, own.household_starts[[first for first, _ in every]])
