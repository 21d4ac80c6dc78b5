"""Counties whose populations are made in parallel, and their files.

The blocks of a piece follow from released counts alone, and pieces are independent: so the
population does not depend on how the pieces are run. The files of the released records have a row
group for every piece.
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
from ...runs.stamps import marked_not_private, stamp_at, write_parquet
from ..ingest.released import Released
from ..workload.household_types import AGE, ELDERLY, ORIGIN, RACE, SEX, TENURE, TYPE
from ..workload.levels import head_races
from ..workload.person_levels import KIND, relationships
from .blocks import Blocks, join_members
from .start import Households, Persons

_UNIVERSE, _RELEASED, _MADE = "population", "released", "made"
_DIGITS = 2, 5, 11, 12
"""Digits of the codes of states, counties, tracts and block groups."""
_CHANGED = ("unit", "relationship", "age", "sex")
"""Columns of persons that a piece may change."""


def pieces_of(blocks: Blocks) -> list[tuple[int, int]]:
    """The first block of each county with households, and the one after its last."""
    starts = blocks.household_starts
    return [(first, end) for first, end in blocks.counties() if starts[end] > starts[first]]


def blocks_of(source: Released) -> Blocks:
    """The released persons in households, and the households, of all blocks.

    Raises ValueError where persons are in households of a block without households.
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
    return [tuple(code[:n] for n in _DIGITS) for code in codes]


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


def write_release_records(run: RunDirectory, codes: np.ndarray, own: Blocks) -> Path:
    """Write the records of all pieces of blocks with these codes; returns the file that is written
    last."""
    every = np.array(pieces_of(own), dtype=int).reshape(-1, 2)
    path = released_file(run, "households")
    for name, records, starts in (
        ("persons", own.persons, own.person_starts),
        ("households", own.households, own.household_starts),
    ):
        geocode = np.repeat(codes, np.diff(starts))
        table = pa.table({"geocode": pa.array(geocode.tolist(), pa.string()), **vars(records)})
        _write(released_file(run, name), table, starts[every])
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
        Households(*(households[field.name].to_numpy() for field in fields(Households))),
        person_starts,
        household_starts,
        areas_of(blocks.tolist()),
    )


def write_members(run: RunDirectory, piece: str, made: Members) -> Path:
    """Write the members of a piece, a row for each."""
    path = made_file(run, piece)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(path, pa.table({name: getattr(made, name) for name in _CHANGED}))
    return path


def read_members(run: RunDirectory, own: Blocks) -> Members:
    """The members of all pieces of some blocks."""
    every, parts = pieces_of(own), []
    for name, (start, stop) in zip(piece_names(run), every, strict=True):
        table = pq.read_table(made_file(run, name))
        first, end = own.person_starts[[start, stop]]
        columns = {column: table[column].to_numpy() for column in _CHANGED}
        persons = own.persons
        parts.append(
            Members(**columns, hispanic=persons.hispanic[first:end], race=persons.race[first:end])
        )
    return join_members(parts, own.household_starts[[first for first, _ in every]])


def _write(path: Path, table: pa.Table, groups: np.ndarray) -> None:
    """Write a table with these rows `(n_groups, 2)` as its row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = marked_not_private(table.schema, stamp_at(path))
    with replacing(path) as part, pq.ParquetWriter(part, schema) as writer:
        for first, end in groups.tolist():
            rows = table.slice(first, end - first).replace_schema_metadata(schema.metadata)
            writer.write_table(rows, row_group_size=max(1, end - first))
