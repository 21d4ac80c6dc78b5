"""Published block counts as input tables: fictional records that tabulate to them.

The records reproduce, for every block, the race combinations, Hispanic origin and voting age of
P1 to P4, the group quarters of P5 and the housing units of H1. What the tables do not tell is made
up: who lives in group quarters is drawn with a fixed seed, among adults first (in juvenile
facilities, among minors first); each type of quarters that a block has is one facility; everyone is
10 or 30 years old and of sex 1.

Two things that tables can say and records cannot are put right and counted: a household without an
occupied housing unit gets one, and minors in nursing facilities move to other institutional
facilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .....validation.census.input_rules import GROUP_QUARTERS_CODES, NURSING_FACILITY
from ....runs.files import replacing
from ....tables.cef_layout import GEOGRAPHY_LAYOUT
from .published import PUBLISHED_PERSONS, PublishedBlocks

JUVENILE_FACILITY, OTHER_INSTITUTIONAL = 2, 4
_IN_ORDER_OF_AGE = (JUVENILE_FACILITY, 0, 7, 6, OTHER_INSTITUTIONAL, 1, 5, NURSING_FACILITY)
"""Levels of `hhgq`, from the one that takes a block's minors to the one that takes its adults."""

MINOR_AGE, ADULT_AGE = 10, 30
PERSONS_PER_BATCH = 1 << 20

_CODE = np.array(["", *(codes[0] for codes in GROUP_QUARTERS_CODES.values())], dtype=object)
_RACE = np.array([f"{level + 1:02d}" for level in range(63)], dtype=object)
_DIGIT = np.array(list("0123456789"), dtype=object)


@dataclass(frozen=True)
class InputTables:
    """The tables written, and what had to differ from the published counts."""

    persons: Path
    units: Path
    geography: Path
    n_units_occupied: int
    """Housing units made occupied, or added, for households that had none."""
    n_minors_moved: int
    """Minors moved out of nursing facilities."""


def write_input_tables(blocks: PublishedBlocks, directory: Path, *, seed: int = 0) -> InputTables:
    """Write `persons.parquet`, `units.parquet` and `grfc.txt` in the Census Edited File layout.

    The same counts and seed give the same tables. Memory is that of a batch of about a million
    persons.
    """
    directory.mkdir(parents=True, exist_ok=True)
    persons_path, units_path = directory / "persons.parquet", directory / "units.parquet"
    geography_path = directory / "grfc.txt"
    random = np.random.default_rng(seed)
    occupancy, n_units_occupied = _with_homes(blocks)
    identifier = np.array([f"{row:011d}" for row in range(len(blocks.geography))], dtype=object)
    n_minors_moved = n_units = 0
    with (
        replacing(persons_path) as persons_part,
        replacing(units_path) as units_part,
        pq.ParquetWriter(persons_part, _PERSONS, compression="zstd") as persons_writer,
        pq.ParquetWriter(units_part, _UNITS, compression="zstd") as units_writer,
    ):
        for part in _batches(blocks):
            persons, moved = _persons(blocks, part, random)
            units = _units(persons, occupancy[part], n_units)
            persons_writer.write_table(_person_records(persons, units))
            units_writer.write_table(_unit_records(units, identifier[part]))
            n_minors_moved += moved
            n_units += len(units.block)
    _write_geography(blocks.geography, identifier, geography_path)
    return InputTables(persons_path, units_path, geography_path, n_units_occupied, n_minors_moved)


_PERSONS = pa.schema(
    [(name, pa.int64()) for name in ("MAFID", "QAGE")]
    + [(name, pa.string()) for name in ("QSEX", "CENHISP", "CENRACE", "QGQTYP")]
)
_UNITS = pa.schema(
    [("RTYPE", pa.string()), ("MAFID", pa.int64()), ("OIDTB", pa.string())]
    + [("QGQTYP", pa.string()), ("VACS", pa.int64())]
)


@dataclass(frozen=True, eq=False)
class _Persons:
    """Persons of a batch of blocks, (n,) each; blocks are numbered from 0 within the batch."""

    block: np.ndarray
    is_adult: np.ndarray
    hispanic: np.ndarray
    cenrace: np.ndarray
    hhgq: np.ndarray


@dataclass(frozen=True, eq=False)
class _Units:
    """Units of a batch of blocks, (n,) each: occupied and vacant housing units, then facilities."""

    first_identifier: int
    block: np.ndarray
    hhgq: np.ndarray
    is_occupied: np.ndarray
    start: np.ndarray
    """(n_blocks, 8): position of the first unit of each block and type."""
    n_occupied: np.ndarray
    """(n_blocks,): occupied housing units of each block."""


def _with_homes(blocks: PublishedBlocks) -> tuple[np.ndarray, int]:
    """Vacant and occupied units of every block, with one occupied where there is a household."""
    occupancy = blocks.occupancy.copy()
    homeless = (blocks.hhgq[:, 0] > 0) & (occupancy[:, 1] == 0)
    occupancy[homeless, 1] = 1
    occupancy[homeless & (occupancy[:, 0] > 0), 0] -= 1
    return occupancy, int(homeless.sum())


def _batches(blocks: PublishedBlocks) -> list[slice]:
    """Consecutive blocks of about `PERSONS_PER_BATCH` persons each."""
    population = np.cumsum(blocks.hhgq.sum(axis=1))
    wanted = np.arange(PERSONS_PER_BATCH, population[-1], PERSONS_PER_BATCH)
    cuts = np.unique([0, *np.searchsorted(population, wanted), len(population)])
    return [slice(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]


def _persons(
    blocks: PublishedBlocks, part: slice, random: np.random.Generator
) -> tuple[_Persons, int]:
    """The persons of a batch, and how many minors left nursing facilities."""
    entries = blocks.persons[part].tocoo()
    block = np.repeat(entries.row, entries.data).astype(np.int64)
    cell = np.repeat(entries.col, entries.data)
    is_adult, hispanic, cenrace = np.unravel_index(cell, PUBLISHED_PERSONS.shape)
    order = np.lexsort((random.random(len(block)), is_adult, block))
    counts = blocks.hhgq[part][:, _IN_ORDER_OF_AGE].ravel()
    hhgq = np.repeat(np.tile(_IN_ORDER_OF_AGE, len(counts) // len(_IN_ORDER_OF_AGE)), counts)
    is_adult = is_adult[order].astype(bool)
    moved = (hhgq == NURSING_FACILITY) & ~is_adult
    hhgq[moved] = OTHER_INSTITUTIONAL
    persons = _Persons(block[order], is_adult, hispanic[order], cenrace[order], hhgq)
    return persons, int(moved.sum())


def _units(persons: _Persons, occupancy: np.ndarray, first_identifier: int) -> _Units:
    """Housing units of each block, and a facility for each type of quarters that persons need."""
    n_blocks, n_types = len(occupancy), len(_IN_ORDER_OF_AGE)
    lived_in = np.bincount(persons.block * n_types + persons.hhgq, minlength=n_blocks * n_types)
    n_units = (lived_in.reshape(n_blocks, n_types) > 0).astype(np.int64)
    n_units[:, 0] = occupancy.sum(axis=1)
    flat = n_units.ravel()
    key = np.repeat(np.arange(n_blocks * n_types), flat)
    start = np.cumsum(flat) - flat
    rank = np.arange(len(key)) - start[key]
    block, hhgq = np.divmod(key, n_types)
    is_occupied = (hhgq > 0) | (rank < occupancy[block, 1])
    return _Units(
        first_identifier,
        block,
        hhgq,
        is_occupied,
        start.reshape(n_blocks, n_types),
        occupancy[:, 1],
    )


def _person_records(persons: _Persons, units: _Units) -> pa.Table:
    """Households are dealt out over a block's occupied units in turn."""
    unit = units.start[persons.block, persons.hhgq]
    in_household = np.flatnonzero(persons.hhgq == 0)
    block = persons.block[in_household]
    first = np.searchsorted(block, np.arange(len(units.start)))
    rank = np.arange(len(block)) - first[block]
    unit[in_household] += rank % np.maximum(units.n_occupied[block], 1)
    return pa.table(
        {
            "MAFID": unit + units.first_identifier + 1,
            "QAGE": np.where(persons.is_adult, ADULT_AGE, MINOR_AGE),
            "QSEX": pa.repeat(pa.scalar("1"), len(unit)),
            "CENHISP": _DIGIT[persons.hispanic + 1],
            "CENRACE": _RACE[persons.cenrace],
            "QGQTYP": _CODE[persons.hhgq],
        },
        schema=_PERSONS,
    )


def _unit_records(units: _Units, identifier: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "RTYPE": np.where(units.hhgq == 0, "2", "4").astype(object),
            "MAFID": np.arange(len(units.block)) + units.first_identifier + 1,
            "OIDTB": identifier[units.block],
            "QGQTYP": _CODE[units.hhgq],
            "VACS": (~units.is_occupied).astype(np.int64),
        },
        schema=_UNITS,
    )


def _write_geography(geography: pd.DataFrame, identifier: np.ndarray, path: Path) -> None:
    geocode = geography["block_geocode"].str
    parts = {"OIDTABBLK": identifier}
    position = 0
    for field in GEOGRAPHY_LAYOUT.fields[1:6]:
        parts[field.name] = geocode[position : position + field.digits].to_numpy()
        position += field.digits
    table = pd.DataFrame(parts).join(geography.drop(columns="block_geocode"))
    with replacing(path) as part:
        table.to_csv(part, sep="|", index=False, lineterminator="\n")
