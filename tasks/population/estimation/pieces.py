"""Pieces of a state whose population is made side by side, and their files.

A piece is some tracts of one county, one after the other in the order of their codes, with as many
households as make a task worth its start. Which blocks are a piece follows from released counts
alone, and what blocks change is carried within a piece only: so the population is the same,
whatever runs the pieces. The files of the released records have a row group for every piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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
from .placing import Persons

HOUSEHOLDS = 1500
"""Of a piece, before it ends with its tract."""

_UNIVERSE, _RELEASED, _MADE = "population", "released", "made"
_COUNTY, _TRACT, _BLOCK_GROUP = 5, 11, 12
"""Digits of the codes."""
_WAYS = tuple(Way)


@dataclass(frozen=True)
class Extent:
    """The blocks of a piece, from the first one up to another."""

    first: int
    end: int


def extents(blocks: Blocks) -> list[Extent]:
    """The pieces of blocks; of empty blocks alone there is none."""
    found, first, starts = [], 0, blocks.household_starts
    for block in range(1, len(blocks.areas) + 1):
        is_end = block == len(blocks.areas)
        if not is_end:
            (county, tract, _), (same_county, same_tract, _) = blocks.areas[block - 1 : block + 1]
            is_full = starts[block] - starts[first] >= HOUSEHOLDS
            is_end = county != same_county or (is_full and tract != same_tract)
        if is_end:
            if starts[block] > starts[first]:
                found.append(Extent(first, block))
            first = block
    return found


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


def areas_of(codes: Sequence[str]) -> list[tuple[str, str, str]]:
    """County, tract and block group of each block."""
    return [(code[:_COUNTY], code[:_TRACT], code[:_BLOCK_GROUP]) for code in codes]


def released_file(run: RunDirectory, records: str) -> Path:
    """The released `persons` or `households` of all pieces."""
    return run.estimates(_UNIVERSE, _RELEASED, records)


def made_file(run: RunDirectory, piece: str) -> Path:
    """The members of the households of a piece."""
    return run.estimates(_UNIVERSE, _MADE, piece)


def piece_names(run: RunDirectory) -> list[str]:
    """Names of all pieces, once the released records are written."""
    n = pq.read_metadata(released_file(run, "households")).num_row_groups
    return [f"{number:05d}" for number in range(n)]


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
        rows = [(int(starts[one.first]), int(starts[one.end])) for one in every]
        _write(released_file(run, name), table, rows)
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


def write_made(run: RunDirectory, piece: str, blocks: Blocks, made: Piece) -> Path:
    """Write what was made of a piece: a row for each person, with how the block was made."""
    block = np.repeat(np.arange(len(blocks.areas)), np.diff(blocks.person_starts))
    way = np.array([_WAYS.index(one) for one in made.way], dtype=np.int64)
    told = {name: getattr(made.members, name) for name in ("unit", "relationship", "age", "sex")}
    path = made_file(run, piece)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(path, pa.table({**told, "way": way[block], "cost": made.cost[block]}))
    return path


def read_made(run: RunDirectory, own: Blocks, every: Sequence[Extent]) -> list[Piece]:
    """What was made of all pieces of some blocks, whose names are those of `piece_names`."""
    found = []
    for name, extent in zip(piece_names(run), every, strict=True):
        table = pq.read_table(made_file(run, name))
        first, end = own.person_starts[extent.first], own.person_starts[extent.end]
        told = {column: table[column].to_numpy() for column in table.column_names}
        members = Members(
            told["unit"],
            told["relationship"],
            told["age"],
            told["sex"],
            own.persons.hispanic[first:end],
            own.persons.race[first:end],
        )
        n_persons = np.diff(own.person_starts[extent.first : extent.end + 1])
        way, cost = np.zeros(len(n_persons), dtype=np.int64), np.zeros(len(n_persons))
        # Nothing is there to be made of an empty block, which has no row.
        rows = own.person_starts[extent.first : extent.end][n_persons > 0] - first
        way[n_persons > 0], cost[n_persons > 0] = told["way"][rows], told["cost"][rows]
        found.append(Piece(members, tuple(_WAYS[one] for one in way), cost))
    return found


def _write(path: Path, table: pa.Table, groups: Sequence[tuple[int, int]]) -> None:
    """Write a table with these rows as its row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = stamped(table.schema, stamp_at(path))
    with replacing(path) as part, pq.ParquetWriter(part, schema) as writer:
        for first, end in groups:
            rows = table.slice(first, end - first).replace_schema_metadata(schema.metadata)
            writer.write_table(rows, row_group_size=max(1, end - first))
