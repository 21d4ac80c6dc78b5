"""The three input tables as arrays, each with the evidence that its rules are checked on.

The geography table is held whole. Units pass through in batches, of which some 30 bytes a unit
stay, and so do persons, of which only sums stay: histogram counts, persons per unit, and rows per
distinct value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ...validation.census.input_rules import NURSING_FACILITY
from ..tables.cef_layout import (
    BLOCK_KEY,
    GEOCODE_FIELDS,
    GEOGRAPHY_LAYOUT,
    PERSONS_LAYOUT,
    UNITS_LAYOUT,
)
from ..tables.columns import CodedColumn, KeyColumn, KeyIndex, is_blank_key
from ..tables.mapped import GrowingArray, zeros
from ..tables.readers import Batch, Selection, read_partitions
from ..tables.sources import InputFile
from .cef_2020 import (
    AGE_COLUMN,
    CENSUS,
    TYPE_COLUMN,
    TYPE_OF_CODE,
    cef_schema,
    is_minor,
    person_columns,
    person_levels,
    recode_of,
)
from .evidence import EvidenceTally
from .histograms import HistogramSum
from .recodes import UNKNOWN, whole_number
from .schema import Schema

HOUSING_UNIT = "2"
FACILITY = "4"
IDENTITY = cef_schema("persons", CENSUS.universes["persons"].declared.identity)
"""What every product that reads persons knows of them beside their block."""
UNIT_COLUMNS = ("RTYPE", "MAFID", "OIDTB", "QGQTYP", "VACS")


@dataclass(frozen=True)
class GeographyTable:
    """The geography frame, and where each block's identifier stands in it."""

    frame: pd.DataFrame
    index: KeyIndex
    rank: np.ndarray
    """Position in `frame` of every row of the file, shape `(n_blocks,)`."""


@dataclass(frozen=True)
class UnitsTable:
    """The units, in the order of the files; arrays have shape `(n_units,)`."""

    index: KeyIndex
    block: np.ndarray
    """Position in the geography frame, int32; -1 where OIDTB is unknown."""
    is_facility: np.ndarray
    occupancy: np.ndarray
    """0 vacant or 1 occupied; -1 where unknown, and for facilities."""
    kind: np.ndarray
    """0 for a housing unit, 1 to 7 by type of group quarters; -1 where unknown."""
    vacancy: np.ndarray
    """The code of VACS; -1 where unknown, and for facilities."""
    code: np.ndarray
    """Position of QGQTYP among the known codes, blank among them; -1 where unknown."""
    n_rows: np.ndarray
    """Units of every file, shape `(n_files,)`."""


@dataclass(frozen=True)
class PersonSums:
    """What remains of the persons."""

    population: np.ndarray
    """Persons per block, shape `(n_blocks,)`."""
    histogram: sparse.csr_array | None
    identity: sparse.csr_array
    """Persons per block and cell of `IDENTITY`, by which the ledger recognises them."""
    unit_population: np.ndarray
    """Persons per unit, in the order of the units, shape `(n_units,)`."""


def load_geography(
    files: Sequence[InputFile], evidence: EvidenceTally, scratch: Path | None = None
) -> GeographyTable:
    """Read the geography table and sort it by block geocode.

    The frame has block_geocode (16 digits) and every column of the file that is no part of the
    block geocode and not the block's identifier. Files of one table must have the same columns.
    What is large goes to temporary files in the folder `scratch`.
    """
    keys = KeyColumn(scratch)
    n_rows = np.zeros(len(files), dtype=np.int64)
    parts: dict[str, list[CodedColumn]] = {}
    for file, batch in read_partitions(files, Selection(GEOGRAPHY_LAYOUT.names, with_others=True)):
        columns = {
            name: CodedColumn.from_arrow(array, GEOGRAPHY_LAYOUT.field(name))
            for name, array in batch.items()
            if name != BLOCK_KEY
        }
        if parts and (other := sorted(set(parts) ^ set(columns))):
            raise files[file].unreadable(
                f"the column {other[0]} is not in all files of the table",
                "write the files of one table with the same columns",
                column=other[0],
            )
        keys.add(batch[BLOCK_KEY])
        n_rows[file] += len(batch[BLOCK_KEY])
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
            if name in GEOGRAPHY_LAYOUT.names:
                evidence.add("geography", name, column.counts(), file=file)
    index = KeyIndex(keys)
    evidence.add_masks("geography", "blank_block_identifier", index.is_blank, n_rows)
    evidence.add_masks("cross_table", "repeated_block_identifier", index.is_repeated, n_rows)

    texts = {name: CodedColumn.concatenated(column).to_arrow() for name, column in parts.items()}
    del parts
    geocode, is_whole = _geocodes([texts.pop(name) for name in GEOCODE_FIELDS])
    order = pc.sort_indices(geocode)
    geocode = geocode.take(order)
    is_as_before = pc.equal(geocode[1:], geocode[:-1]).to_numpy(zero_copy_only=False)
    is_repeated = np.zeros(len(geocode), dtype=bool)
    rows = order.to_numpy().astype(np.int64)
    is_repeated[rows[1:]] = is_as_before
    is_repeated[rows[:-1]] |= is_as_before
    evidence.add_masks("cross_table", "repeated_block", is_repeated & is_whole, n_rows)

    rank = np.empty_like(rows)
    rank[rows] = np.arange(len(rows))
    texts.pop("block_geocode", None)
    columns_of_frame = {"block_geocode": geocode}
    columns_of_frame |= {name: column.take(order) for name, column in texts.items()}
    frame = pd.DataFrame(
        {name: pd.array(column, dtype="str") for name, column in columns_of_frame.items()}
    )
    return GeographyTable(frame, index, rank)


def _geocodes(parts: Sequence[pa.Array]) -> tuple[pa.Array, np.ndarray]:
    """The texts of geocodes, put together, and the mask of those of which no part is blank."""
    is_whole = np.ones(len(parts[0]), dtype=bool)
    for part in parts:
        is_whole &= part.is_valid().to_numpy(zero_copy_only=False)
    filled = [pc.fill_null(part, "") for part in parts]
    return pc.binary_join_element_wise(*filled, pa.scalar("", pa.large_string())), is_whole


def load_units(
    files: Sequence[InputFile],
    geography: GeographyTable,
    evidence: EvidenceTally,
    scratch: Path | None = None,
) -> UnitsTable:
    """Read the units table, batch by batch, and find each unit's block.

    What is large goes to temporary files in the folder `scratch`.
    """
    occupancy = recode_of("units", "occupancy")
    keys = KeyColumn(scratch)
    columns = {
        name: GrowingArray(dtype, scratch)
        for name, dtype in {
            "block": np.int32,
            "is_facility": bool,
            "occupancy": np.int8,
            "kind": np.int8,
            "vacancy": np.int8,
            "code": np.int8,
        }.items()
    }
    n_rows = np.zeros(len(files), dtype=np.int64)
    for file, batch in read_partitions(files, Selection(UNIT_COLUMNS)):
        rtype, qgqtyp, vacs = (
            CodedColumn.from_arrow(batch[name], UNITS_LAYOUT.field(name))
            for name in ("RTYPE", "QGQTYP", "VACS")
        )
        position = geography.index.positions(batch["OIDTB"])
        block = np.where(position < 0, -1, geography.rank[position]).astype(np.int32)
        is_housing_unit = rtype.lookup(lambda value: value == HOUSING_UNIT, bool)
        is_facility = rtype.lookup(lambda value: value == FACILITY, bool)
        is_blank = qgqtyp.lookup(lambda value: value is None, bool)
        occupied = np.where(is_housing_unit, vacs.lookup(occupancy.level_of, np.int8), UNKNOWN)
        keys.add(batch["MAFID"])
        n_rows[file] += len(block)
        for name, values in {
            "block": block,
            "is_facility": is_facility,
            "occupancy": occupied,
            "kind": qgqtyp.lookup(_type_of, np.int8),
            "vacancy": np.where(is_housing_unit, vacs.lookup(_vacancy, np.int8), UNKNOWN),
            "code": qgqtyp.lookup(_code_position, np.int8),
        }.items():
            columns[name].append(values)

        evidence.add("units", "RTYPE", rtype.counts(), file=file)
        evidence.add("units", "QGQTYP", qgqtyp.counts(), file=file)
        for column, mask in {
            "housing_unit_of_unknown_vacancy": is_housing_unit & (occupied == UNKNOWN),
            "housing_unit_with_group_quarters_code": is_housing_unit & ~is_blank,
            "facility_without_group_quarters_code": is_facility & is_blank,
        }.items():
            evidence.add_mask("units", column, mask, file=file)
        evidence.add_mask("cross_table", "unit_in_unknown_block", block < 0, file=file)
    index = KeyIndex(keys)
    del keys
    evidence.add_masks("units", "blank_mafid", index.is_blank, n_rows)
    evidence.add_masks("cross_table", "repeated_mafid", index.is_repeated, n_rows)
    arrays = {name: column.array() for name, column in columns.items()}
    return UnitsTable(index=index, n_rows=n_rows, **arrays)


def sum_persons(
    files: Sequence[InputFile],
    units: UnitsTable,
    *,
    n_blocks: int,
    schema: Schema | None,
    evidence: EvidenceTally,
    scratch: Path | None = None,
) -> PersonSums:
    """Pass through the persons once; without a schema there is no histogram.

    What is large goes to temporary files in the folder `scratch`.

    Persons whose unit, block or cell cannot be told are left out of the sums; the evidence then
    holds the rule that they break.
    """
    counter = PersonCounter(units, n_blocks, schema, scratch)
    n_persons = zeros(len(units.block), np.int64, scratch)
    for file, batch in read_partitions(files, Selection(counter.columns)):
        unit = counter.add(batch, evidence, file)
        np.add.at(n_persons, unit[unit >= 0], 1)
    add_empty_facilities(evidence, units, n_persons)
    return person_sums(counter.population, counter.totals(), n_persons)


def add_empty_facilities(evidence: EvidenceTally, units: UnitsTable, n_persons: np.ndarray) -> None:
    """Add to the evidence whether facilities have persons, from those of every unit (n_units,)."""
    is_empty = units.is_facility & (n_persons == 0)
    evidence.add_masks("cross_table", "facility_without_person", is_empty, units.n_rows)


def person_sums(
    population: np.ndarray, totals: Mapping[str, sparse.csr_array], unit_population: np.ndarray
) -> PersonSums:
    """The sums, from what a `PersonCounter` counted."""
    return PersonSums(population, totals.get("histogram"), totals["identity"], unit_population)


class PersonCounter:
    """Counts persons by block, and by block and cell, batch by batch.

    population : persons of every block so far, shape `(n_blocks,)`.
    columns : those that are read of the table.
    """

    def __init__(
        self, units: UnitsTable, n_blocks: int, schema: Schema | None, scratch: Path | None
    ) -> None:
        self._units, self._schemas = units, self._schemas_of(schema)
        of_all = (name for kind in self._schemas.values() for name in kind.attributes)
        self._attributes = tuple(dict.fromkeys(of_all))
        self.columns = person_columns(self._attributes)
        self.population = np.zeros(n_blocks, dtype=np.int64)
        self._histograms = {
            name: HistogramSum(n_blocks, kind.n_cells, scratch)
            for name, kind in self._schemas.items()
        }

    @staticmethod
    def _schemas_of(schema: Schema | None) -> dict[str, Schema]:
        return {"identity": IDENTITY} | ({"histogram": schema} if schema else {})

    @classmethod
    def sizes(cls, schema: Schema | None) -> dict[str, int]:
        """The cells of each histogram that is counted, by its name."""
        return {name: kind.n_cells for name, kind in cls._schemas_of(schema).items()}

    def add(self, batch: Batch, evidence: EvidenceTally, file: int) -> np.ndarray:
        """Count a batch of the table's file at this position; returns its units (n_rows,), or -1.

        The evidence gets what the rules on persons ask for.
        """
        columns = {
            name: CodedColumn.from_arrow(array, PERSONS_LAYOUT.field(name))
            for name, array in batch.items()
            if name != "MAFID"
        }
        unit = self._units.index.positions(batch["MAFID"])
        _tally_persons(batch, columns, unit, self._units, evidence, file)
        levels = {name: person_levels(name, columns) for name in self._attributes}
        block = np.where(unit >= 0, self._units.block[unit], -1)
        is_known = block >= 0
        np.add.at(self.population, block[is_known], 1)
        for level in levels.values():
            is_known &= level != UNKNOWN
        known = {name: level[is_known] for name, level in levels.items()}
        for name, kind in self._schemas.items():
            ones = np.ones(int(is_known.sum()), dtype=np.int8)
            self._histograms[name].add(block[is_known], kind.cells(known), ones)
        return unit

    def totals(self) -> dict[str, sparse.csr_array]:
        """The histograms so far, by name."""
        return {name: histogram.total() for name, histogram in self._histograms.items()}


def _tally_persons(
    batch: Batch,
    columns: Mapping[str, CodedColumn],
    unit: np.ndarray,
    units: UnitsTable,
    evidence: EvidenceTally,
    file: int,
) -> None:
    """Add a batch of persons to the evidence; `unit` is each person's unit or -1."""
    for name, column in columns.items():
        evidence.add("persons", name, column.counts(), file=file)
    has_unit = unit >= 0
    is_blank = is_blank_key(batch["MAFID"])
    code = columns[TYPE_COLUMN].lookup(_code_position, np.int8)
    code_of_unit = units.code[unit]
    evidence.add_mask("persons", "blank_mafid", is_blank, file=file)
    masks = {
        "person_in_unknown_unit": ~has_unit & ~is_blank,
        "person_in_vacant_unit": has_unit & (units.occupancy[unit] == 0),
        "person_of_other_group_quarters_code": (
            has_unit & (code >= 0) & (code_of_unit >= 0) & (code != code_of_unit)
        ),
    }
    if AGE_COLUMN in columns:
        in_nursing = columns[TYPE_COLUMN].lookup(_type_of, np.int8) == NURSING_FACILITY
        minor = columns[AGE_COLUMN].lookup(is_minor, bool)
        masks["minor_in_nursing_facility"] = minor & in_nursing
    for name, mask in masks.items():
        evidence.add_mask("cross_table", name, mask, file=file)


_CODE_POSITION = {code: position for position, code in enumerate(TYPE_OF_CODE)}


def _code_position(qgqtyp: str | None) -> int:
    return _CODE_POSITION.get(qgqtyp, UNKNOWN)


def _vacancy(vacs: str | None) -> int:
    code = whole_number(vacs)
    return UNKNOWN if code is None or code > np.iinfo(np.int8).max else code


def _type_of(qgqtyp: str | None) -> int:
    return TYPE_OF_CODE.get(qgqtyp, UNKNOWN)
