"""Pieces of a state whose population is made side by side, and their files.

A piece is some tracts of one county, one after the other in the order of their codes, with as many
households as make a task worth its start. What blocks change is carried on from piece to piece, so
that it does not add up over a state: the pieces of each state are some chains, and each piece goes
on where the one before it in its chain ended. Which blocks are a piece, and which chain it is of,
follows from released counts alone: so the population is the same, whatever runs the pieces. The
files of the released records have a row group for every piece, and that of a made piece tells what
the next one goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.households import Members
from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ...runs.stamps import stamp_at, stamped, write_parquet
from ..ingest.released import Released
from ..workload.household_types import AGE, ELDERLY, ORIGIN, RACE, SEX, TENURE, TYPE
from ..workload.levels import head_races
from ..workload.person_levels import KIND, relationships
from .blocks import Blocks, Piece, Way
from .composition import Households
from .drift import Drift
from .placing import Persons

HOUSEHOLDS = 1500
"""Of a piece, before it ends with its tract."""

CHAINS = 2
"""Of the pieces of a state, which can be made side by side."""

_UNIVERSE, _RELEASED, _MADE = "population", "released", "made"
_STATE, _COUNTY, _TRACT, _BLOCK_GROUP = 2, 5, 11, 12
"""Digits of the codes."""
_WAYS = tuple(Way)
_CHANGED = ("unit", "relationship", "age", "sex")
"""What a piece makes of persons."""
_DRIFT = b"drift and cells with oldest members"
"""Key of the metadata of a made piece."""


def extents(blocks: Blocks) -> list[tuple[int, int]]:
    """The pieces of blocks, each from its first one up to another; of empty blocks alone there is
    none.
    """
    found, first, starts = [], 0, blocks.household_starts
    for block in range(1, len(blocks.areas) + 1):
        is_end = block == len(blocks.areas)
        if not is_end:
            (_, county, tract, _), (_, next_county, next_tract, _) = blocks.areas[block - 1 :][:2]
            is_full = starts[block] - starts[first] >= HOUSEHOLDS
            is_end = county != next_county or (is_full and tract != next_tract)
        if is_end:
            if starts[block] > starts[first]:
                found.append((first, block))
            first = block
    return found


def earlier(number: int, states: Sequence[str]) -> int | None:
    """The piece with whose drift another goes on, given the state of each; None of the first of a
    chain."""
    before = number - CHAINS
    return before if before >= 0 and states[before] == states[number] else None


def first_drift(number: int, states: Sequence[str]) -> Drift:
    """What the first piece of a chain begins with, given the state of each piece."""
    return Drift(min(CHAINS, states.count(states[number])))


def blocks_of(source: Released) -> Blocks:
    """The released persons in households, and the households, of all blocks.

    Raises ValueError where persons are in households of a block that has none.
    """
    people, inside, levels = source.people, source.inside, source.household_levels
    every = np.arange(len(source.blocks) + 1)
    person_starts = np.searchsorted(source.persons.block[inside], every)
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
            head_races(people.race[inside]),
            source.person_levels[KIND, inside] == relationships().alone,
        ),
        Households(*(levels[axis] for axis in (SEX, AGE, ORIGIN, RACE, ELDERLY, TENURE, TYPE))),
        person_starts,
        household_starts,
        areas_of(source.blocks.tolist()),
    )


def areas_of(codes: Sequence[str]) -> list[tuple[str, ...]]:
    """State, county, tract and block group of each block."""
    digits = (_STATE, _COUNTY, _TRACT, _BLOCK_GROUP)
    return [tuple(code[:n] for n in digits) for code in codes]


def released_file(run: RunDirectory, records: str) -> Path:
    """The released `persons` or `households` of all pieces."""
    return run.estimates(_UNIVERSE, _RELEASED, records)


def made_file(run: RunDirectory, piece: str) -> Path:
    """The members of the households of a piece."""
    return run.estimates(_UNIVERSE, _MADE, piece)


def pieces_before(run: RunDirectory) -> dict[str, str | None]:
    """The names of all pieces, once the released records are written, and the piece that each goes
    on with."""
    states = _states(run)
    before = [earlier(number, states) for number in range(len(states))]
    return {_name(k): None if one is None else _name(one) for k, one in enumerate(before)}


def write_released(run: RunDirectory, codes: np.ndarray, own: Blocks) -> Path:
    """Write the records of all pieces of blocks with these codes; returns the file that is written
    last."""
    every = extents(own)
    path = released_file(run, "households")
    for name, records, starts in (
        ("persons", own.persons, own.person_starts),
        ("households", own.households, own.household_starts),
    ):
        geocode = np.repeat(codes, np.diff(starts))
        table = pa.table({"geocode": pa.array(geocode.tolist(), pa.string()), **vars(records)})
        _write(released_file(run, name), table, starts[np.array(every, dtype=int).reshape(-1, 2)])
    return path


def read_piece(run: RunDirectory, piece: str) -> Blocks:
    """The records of a piece, by the blocks that have any."""
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
        Households(*(households[field.name].to_numpy() for field in fields(Households))),
        person_starts,
        household_starts,
        areas_of(blocks.tolist()),
    )


def drift_before(run: RunDirectory, piece: str) -> Drift:
    """What a piece goes on with, once the one before it is made."""
    states, number = _states(run), int(piece)
    before = earlier(number, states)
    if before is not None:
        return Drift.from_json(pq.read_schema(made_file(run, _name(before))).metadata[_DRIFT])
    return first_drift(number, states)


def write_made(run: RunDirectory, piece: str, blocks: Blocks, made: Piece, drift: Drift) -> Path:
    """Write what was made of a piece, a row for each person, with how the block was made; and what
    the next piece goes on with.
    """
    block = np.repeat(np.arange(len(blocks.areas)), np.diff(blocks.person_starts))
    way = np.array([_WAYS.index(one) for one in made.way], dtype=np.int64)
    columns = {name: getattr(made.members, name) for name in _CHANGED}
    path = made_file(run, piece)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({**columns, "way": way[block], "cost": made.cost[block]})
    write_parquet(path, table.replace_schema_metadata({_DRIFT: drift.to_json()}))
    return path


def read_made(run: RunDirectory, own: Blocks, every: Sequence[tuple[int, int]]) -> list[Piece]:
    """What was made of all pieces of some blocks, whose names are those of `pieces_before`."""
    found = []
    for name, (start, stop) in zip(pieces_before(run), every, strict=True):
        table = pq.read_table(made_file(run, name))
        first, end = own.person_starts[[start, stop]]
        columns = {column: table[column].to_numpy() for column in table.column_names}
        members = Members(
            **{column: columns[column] for column in _CHANGED},
            hispanic=own.persons.hispanic[first:end],
            race=own.persons.race[first:end],
        )
        n_persons = np.diff(own.person_starts[start : stop + 1])
        way, cost = np.zeros(len(n_persons), dtype=np.int64), np.zeros(len(n_persons))
        # Nothing is there to be made of an empty block, which has no row.
        rows = own.person_starts[start:stop][n_persons > 0] - first
        way[n_persons > 0], cost[n_persons > 0] = columns["way"][rows], columns["cost"][rows]
        found.append(Piece(members, tuple(_WAYS[one] for one in way), cost))
    return found


def _states(run: RunDirectory) -> list[str]:
    """The state of each piece."""
    with pq.ParquetFile(released_file(run, "households")) as file:
        column = file.schema_arrow.get_field_index("geocode")
        groups = [file.metadata.row_group(k) for k in range(file.num_row_groups)]
    return [group.column(column).statistics.min[:_STATE] for group in groups]


def _name(number: int) -> str:
    return f"{number:05d}"


def _write(path: Path, table: pa.Table, groups: np.ndarray) -> None:
    """Write a table with these rows `(n_groups, 2)` as its row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = stamped(table.schema, stamp_at(path))
    with replacing(path) as part, pq.ParquetWriter(part, schema) as writer:
        for first, end in groups.tolist():
            rows = table.slice(first, end - first).replace_schema_metadata(schema.metadata)
            writer.write_table(rows, row_group_size=max(1, end - first))
