"""The tables of the Census Edited File, and its rules beyond single columns.

The geography table is kept in memory. Units pass through in batches, of which some 20 bytes a unit
stay, and so do persons, of which only sums stay. `joins` finds a person's unit and block and
`counting` counts persons, as for every census; this module adds group quarters, vacancy, and the
rules between tables.

The input of a run: read, checked, and turned into histograms and invariants in one pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ...validation.census.input_rules import NURSING_FACILITY, applicable_rules
from ...validation.expectations import readable
from ..ledger.recognition import InputDigest, RecordColumn, digest_of_parts, people_digests
from ..tables.columns import CodedColumn, GrowingColumn, KeyColumn, KeyIndex, is_blank_key, zeros
from ..tables.findings import Finding, InputCheck, UnreadableInput, refusal
from ..tables.layouts import BLOCK_KEY, GEOCODE_FIELDS, GEOGRAPHY_LAYOUT
from ..tables.readers import Batch, Selection, read_partitions
from ..tables.sources import InputFile, input_files
from .cef_2020 import (
    AGE_COLUMN,
    CENSUS,
    IDENTITY_COLUMNS,
    PERSONS,
    TYPE_COLUMN,
    TYPE_OF_CODE,
    UNITS,
    cef_schema,
    is_minor,
    person_columns,
    recode_of,
)
from .census import Census
from .counting import (
    Counted,
    PlacedBatch,
    RawColumns,
    RecordCounter,
    Unreadable,
    Weights,
    check_whole,
)
from .evidence import EvidenceTally
from .histograms import HistogramSum, block_levels, counties_of, numbers_of
from .invariants import block_invariants, state_totals
from .joins import ByTable, JoinedTable, Placed, read_joined
from .recodes import UNKNOWN
from .schema import Schema

HOUSING_UNIT = "2"
FACILITY = "4"
IDENTITY = cef_schema("persons", CENSUS.universes["persons"].declared.identity)
"""Columns of persons that every product reads, apart from their block."""
UNIT_KEY, BLOCK_OF_UNIT = "MAFID", "OIDTB"
"""Column that identifies a unit, and that of its block."""
UNIT_COLUMNS = ("RTYPE", "QGQTYP", "VACS")


@dataclass(frozen=True)
class GeographyTable:
    """The geography frame, and the blocks as units refer to them: their position in it."""

    frame: pd.DataFrame
    blocks: JoinedTable


@dataclass(frozen=True, eq=False)
class UnitCodes:
    """Columns of some units, `(n_units,)` each."""

    rtype: CodedColumn
    qgqtyp: CodedColumn
    vacs: CodedColumn

    @classmethod
    def of(cls, columns: Mapping[str, CodedColumn], prefix: str = "") -> UnitCodes:
        """Select the columns by their names after a prefix."""
        return cls(*(columns[f"{prefix}{name}"] for name in UNIT_COLUMNS))

    @property
    def is_housing_unit(self) -> np.ndarray:
        """Whether it is a housing unit."""
        return self.rtype.lookup(lambda value: value == HOUSING_UNIT, bool)

    @property
    def is_facility(self) -> np.ndarray:
        """Whether it is a facility of group quarters."""
        return self.rtype.lookup(lambda value: value == FACILITY, bool)

    @property
    def occupancy(self) -> np.ndarray:
        """0 vacant or 1 occupied; -1 where unknown, and for facilities."""
        level_of = recode_of("units", "occupancy").level_of
        return np.where(self.is_housing_unit, self.vacs.lookup(level_of, np.int8), UNKNOWN)

    @property
    def kind(self) -> np.ndarray:
        """0 for a housing unit, 1 to 7 by type of group quarters; -1 where unknown."""
        return self.qgqtyp.lookup(_type_of, np.int8)

    @property
    def code(self) -> np.ndarray:
        """Position of QGQTYP among the known codes, blank among them; -1 where unknown."""
        return self.qgqtyp.lookup(_code_position, np.int8)


_PREFIX, _SIZE = "units.", "size"


def unit_codes(units: JoinedTable, rows: slice | np.ndarray) -> UnitCodes:
    """Return the columns of some rows of the units."""
    columns = {name: column.at(rows) for name, column in units.columns.items()}
    return UnitCodes.of(columns, _PREFIX)


def load_geography(
    files: Sequence[InputFile], evidence: EvidenceTally, scratch: Path | None = None
) -> GeographyTable:
    """Read the geography table and sort it by block geocode.

    The frame has block_geocode (16 digits) and every column of the file that is no part of the
    block geocode and not the block's identifier. Files of one table must have the same columns.
    Large arrays go to temporary files in the folder `scratch`.
    """
    keys = KeyColumn(scratch)
    n_rows = np.zeros(len(files), dtype=np.int64)
    parts: dict[str, GrowingColumn] = {}
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
            parts.setdefault(name, GrowingColumn(scratch)).append(column)
            if name in GEOGRAPHY_LAYOUT.names:
                evidence.add("geography", name, column.counts(), file=file)
    index = KeyIndex(keys)
    evidence.files.add_rows(files, n_rows)
    evidence.add_masks("geography", "blank_block_identifier", index.is_blank, n_rows)
    evidence.add_masks("cross_table", "repeated_block_identifier", index.is_repeated, n_rows)

    texts = {name: growing.column().to_arrow() for name, growing in parts.items()}
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
    return GeographyTable(frame, JoinedTable(index, rank, {}, n_rows))


def _geocodes(parts: Sequence[pa.Array]) -> tuple[pa.Array, np.ndarray]:
    """The joined texts of geocodes, and the mask of geocodes without a blank part."""
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
) -> JoinedTable:
    """Read the units table, batch by batch, and find each unit's block.

    Large arrays go to temporary files in the folder `scratch`.
    """

    def tally(batch: Batch, columns: Mapping[str, CodedColumn], placed: Placed, file: int) -> None:
        units = UnitCodes.of(columns)
        is_housing_unit = units.is_housing_unit
        is_blank = units.qgqtyp.lookup(lambda value: value is None, bool)
        evidence.add("units", "RTYPE", units.rtype.counts(), file=file)
        evidence.add("units", "QGQTYP", units.qgqtyp.counts(), file=file)
        for column, mask in {
            "housing_unit_of_unknown_vacancy": is_housing_unit & (units.occupancy == UNKNOWN),
            "housing_unit_with_group_quarters_code": is_housing_unit & ~is_blank,
            "facility_without_group_quarters_code": units.is_facility & is_blank,
        }.items():
            evidence.add_mask("units", column, mask, file=file)
        evidence.add_mask("cross_table", "unit_in_unknown_block", placed.area < 0, file=file)

    columns = {f"{_PREFIX}{name}": name for name in UNIT_COLUMNS}
    place = ByTable(BLOCK_OF_UNIT, geography.blocks)
    units = read_joined(files, UNIT_KEY, columns, place, tally, scratch)
    evidence.files.add_rows(files, units.n_rows)
    evidence.add_masks("units", "blank_mafid", units.index.is_blank, units.n_rows)
    evidence.add_masks("cross_table", "repeated_mafid", units.index.is_repeated, units.n_rows)
    return units


def recognised_columns(
    units: JoinedTable,
    n_blocks: int,
    scratch: Path | None = None,
    n_persons: np.ndarray | None = None,
) -> list[RecordColumn]:
    """The raw columns of units by block, vacancy of housing units alone too, and how many persons
    `(n_units,)` each unit has, where it is known.
    """
    columns = {**units.columns}
    if n_persons is not None:
        sizes = tuple(str(n) for n in range(int(n_persons.max(initial=0)) + 1))
        columns[_SIZE] = CodedColumn(n_persons, sizes)
    all_units, homes = (
        RawColumns(names, n_blocks, scratch) for names in (tuple(columns), (f"{_PREFIX}VACS",))
    )
    all_units.add_rows(columns, units.area)
    homes.add_rows(columns, units.area, unit_codes(units, slice(None)).is_housing_unit)
    return [*all_units.columns(), *homes.columns()]


def tally_empty_facilities(
    evidence: EvidenceTally, units: JoinedTable, n_persons: np.ndarray
) -> None:
    """Record in the evidence whether facilities have persons, from those of every unit
    (n_units,)."""
    is_facility = unit_codes(units, slice(None)).is_facility
    is_empty = is_facility & (n_persons == 0)
    evidence.add_masks("cross_table", "facility_without_person", is_empty, units.n_rows)


class PersonCounter(RecordCounter):
    """Counts persons by unit, and by block and cell of `IDENTITY` and of a schema, if any."""

    def __init__(
        self,
        units: JoinedTable,
        n_blocks: int,
        schema: Schema | None,
        scratch: Path | None,
    ) -> None:
        schemas = {"identity": IDENTITY} | ({"histogram": schema} if schema else {})
        super().__init__(
            ByTable(UNIT_KEY, units),
            schemas,
            lambda attribute: recode_of("persons", attribute),
            n_blocks,
            scratch,
        )
        attributes = tuple(recode.attribute for recode in self.recodes)
        self.keys, self.texts = (UNIT_KEY,), person_columns(attributes)
        self.raw = RawColumns(self.texts, n_blocks, scratch)

    def tally(self, read: PlacedBatch) -> Weights:
        """Add the evidence of the rules on persons."""
        columns = read.columns
        for name in self.texts:
            read.evidence.add("persons", name, columns[name].counts(), file=read.file)
        units, has_unit = UnitCodes.of(columns, _PREFIX), read.placed.row >= 0
        is_blank = is_blank_key(read.batch[UNIT_KEY])
        code, code_of_unit = columns[TYPE_COLUMN].lookup(_code_position, np.int8), units.code
        read.add_mask("persons", "blank_mafid", is_blank)
        masks = {
            "person_in_unknown_unit": ~has_unit & ~is_blank,
            "person_in_vacant_unit": has_unit & (units.occupancy == 0),
            "person_of_other_group_quarters_code": (
                has_unit & (code >= 0) & (code_of_unit >= 0) & (code != code_of_unit)
            ),
        }
        if AGE_COLUMN in columns:
            in_nursing = columns[TYPE_COLUMN].lookup(_type_of, np.int8) == NURSING_FACILITY
            minor = columns[AGE_COLUMN].lookup(is_minor, bool)
            masks["minor_in_nursing_facility"] = minor & in_nursing
        for name, mask in masks.items():
            read.add_mask("cross_table", name, mask)
        return super().tally(read)


_CODE_POSITION = {code: position for position, code in enumerate(TYPE_OF_CODE)}


def _code_position(qgqtyp: str | None) -> int:
    return _CODE_POSITION.get(qgqtyp, UNKNOWN)


def _type_of(qgqtyp: str | None) -> int:
    return TYPE_OF_CODE.get(qgqtyp, UNKNOWN)


_UNITS_AT_ONCE = 1 << 20
_TABLES = ("geography", "units", "persons")
"""The tables in the order in which they are read."""


@dataclass(frozen=True)
class IngestResult:
    """The input of a run; rows of all members are in the order of `geography`.

    `histograms` maps a universe to int64 counts, shape `(n_blocks, n_cells)`. Empty blocks without
    housing units or facilities are included; see `tasks.census.invariants.inhabitable`.
    """

    geography: pd.DataFrame
    invariants: pd.DataFrame
    state_totals: Mapping[str, int]
    histograms: Mapping[str, sparse.csr_array]
    identity: sparse.csr_array
    """Persons per block and cell of `tasks.census.cef_tables.IDENTITY`."""
    unit_block: np.ndarray
    """Position of the block of every unit, shape `(n_units,)`."""
    unit_population: np.ndarray
    """Persons of every unit, shape `(n_units,)`."""
    raw: Sequence[RecordColumn]
    """The raw columns of persons and units that were read, by block."""

    @property
    def public(self) -> pd.DataFrame:
        """Public facts about every block."""
        return self.invariants

    @property
    def n_records(self) -> int:
        """The number of persons."""
        return sum(self.state_totals.values())

    def known_records(self, universe: str) -> int:
        """The number of a universe's records, from its invariants."""
        return int(self.histograms[universe].sum())

    def exact(self, *, areas_alone: bool) -> Mapping[str, int]:
        """Totals that are released exactly; empty where blocks are estimated alone, and where
        persons are not counted.
        """
        return {} if areas_alone or "persons" not in self.histograms else self.state_totals

    def digests(self, key: bytes) -> dict[str, InputDigest]:
        """Keyed digests by which the ledger recognises these people and housing units again."""
        geocode = numbers_of(self.geography["block_geocode"])
        tables = {"persons": (IDENTITY_COLUMNS, self.identity, IDENTITY.shape[1:])}
        if "units" in self.histograms:
            names = ("block_geocode", "cell", "units")
            tables["units"] = (names, self.histograms["units"], ())
        digests = {
            kind: digest_of_parts(kind, names, counties_of(geocode, table, shape), table.nnz, key)
            for kind, (names, table, shape) in tables.items()
        }
        people = people_digests(self.raw, block_levels(geocode), key)
        return digests | {"persons": digests["persons"].recognised_by(people)}


def check_inputs(
    *,
    persons: str | os.PathLike[str],
    units: str | os.PathLike[str],
    geography: str | os.PathLike[str],
    person_schema: Schema | None = PERSONS,
    unit_schema: Schema | None = UNITS,
    names: Mapping[str, str] | None = None,
    scratch: Path | None = None,
) -> InputCheck[IngestResult]:
    """Read the three tables, evaluate every rule and build the result.

    A path is a file, a folder of partitions, a glob, or an fsspec URL. `names` gives the name that
    messages show for a table in one file, by default its path; `names={"persons":
    "persons.parquet"}` for example. A universe whose schema is None gets no histogram. The rules
    are counted by vectorised code and, as a public pass or fail, evaluated by Great Expectations;
    the input is accepted only if both find nothing. The division of a table's rows into files
    affects only the file that a finding names. Large arrays go to temporary files in the folder
    `scratch`, by default the system's; they hold confidential rows.
    """
    paths = {"geography": geography, "units": units, "persons": persons}
    reading = CefTables(table_files(paths, names), person_schema, unit_schema)
    return check_whole(reading, scratch)


@dataclass(frozen=True, eq=False)
class Addresses:
    """Tables to which persons refer: the units, and the frame of blocks."""

    units: JoinedTable
    geography: pd.DataFrame


@dataclass(frozen=True, eq=False)
class CefTables:
    """The tables of the Census Edited File; see `tasks.census.counting.CensusReading`.

    `ahead` is called with the result of a check while that is judged.
    """

    files: Mapping[str, tuple[InputFile, ...]]
    person_schema: Schema | None
    unit_schema: Schema | None
    ahead: Callable[[IngestResult], object] | None = None

    @property
    def census(self) -> Census:
        """The census that declares them."""
        return CENSUS

    @property
    def records(self) -> Mapping[str, tuple[InputFile, ...]]:
        """Persons alone are counted as records."""
        return {"persons": self.files["persons"]}

    def read_before(self, evidence: EvidenceTally, scratch: Path | None) -> Addresses | Unreadable:
        """Read geography and units."""
        table = "geography"
        try:
            blocks = load_geography(self.files[table], evidence, scratch)
            table = "units"
            units = load_units(self.files[table], blocks, evidence, scratch)
        except UnreadableInput as error:
            return Unreadable(table, error.finding)
        return Addresses(units, blocks.frame)

    def counter(
        self, before: Addresses, universe: str, scratch: Path | None, evidence: EvidenceTally
    ) -> tuple[PersonCounter, tuple[InputFile, ...]]:
        """Return the counter of persons, and their files."""
        counter = PersonCounter(before.units, len(before.geography), self.person_schema, scratch)
        return counter, self.files[universe]

    def unreadable(
        self, subject: str, finding: Finding, before: Sequence[str] = ()
    ) -> InputCheck[IngestResult]:
        """The check that ended at a table that cannot be read; the tables before it could be."""
        read = (readable(name, True) for name in _TABLES[: _TABLES.index(subject)])
        return InputCheck((*read, readable(subject, False)), (finding,), None)

    def public_tables(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the geography frame and the public facts about every block; no person is read.

        Raises InputRefused for tables that break a rule, with counts only on request.
        """
        evidence = EvidenceTally()
        before = self.read_before(evidence, None)
        if isinstance(before, Unreadable):
            raise refusal([before.finding], with_counts=with_counts)
        if findings := evidence.findings(applicable_rules(evidence.suites), self.files):
            raise refusal(findings, with_counts=with_counts)
        geography, units = before.geography, before.units
        kind, _ = unit_counts(geography, units, None, None)
        return geography, block_invariants(geography["block_geocode"], units.area, kind)

    def public_geography(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the input of spines: the public tables, since blocks without an address are in no
        spine.

        Raises InputRefused as `public_tables`.
        """
        return self.public_tables(with_counts=with_counts)

    def put_together(
        self,
        before: Addresses,
        counted: Mapping[str, Counted],
        evidence: EvidenceTally,
        scratch: Path | None,
    ) -> InputCheck[IngestResult]:
        """The check of tables that have been read: every rule is evaluated on the evidence."""
        units, persons = before.units, counted["persons"]
        evidence.files.add_formats(file for files in self.files.values() for file in files)
        tally_empty_facilities(evidence, units, persons.references)
        rules, read = applicable_rules(evidence.suites), [readable(name, True) for name in _TABLES]

        def build() -> IngestResult:
            geography = before.geography
            kind, occupied = unit_counts(geography, units, self.unit_schema, scratch)
            histograms: dict[str, sparse.csr_array] = {}
            if self.person_schema:
                histograms["persons"] = persons.totals["histogram"]
            if occupied is not None:
                histograms["units"] = occupied
            geocode, identity = geography["block_geocode"], persons.totals["identity"]
            return IngestResult(
                geography=geography,
                invariants=block_invariants(geocode, units.area, kind),
                state_totals=state_totals(geocode, identity.sum(axis=1)),
                histograms=histograms,
                identity=identity,
                unit_block=units.area,
                unit_population=persons.references,
                raw=[
                    *persons.raw,
                    *recognised_columns(units, len(geography), scratch, persons.references),
                ],
            )

        return evidence.checked(rules, self.files, read, build, self.ahead)


def unit_counts(
    geography: pd.DataFrame, units: JoinedTable, schema: Schema | None, scratch: Path | None
) -> tuple[np.ndarray, sparse.csr_array | None]:
    """Return the kinds of units `(n_units,)` as in `UnitCodes`, and the housing units by block and
    cell of a schema, if any.
    """
    kind = zeros(len(units), np.int8, scratch)
    summed = None if schema is None else HistogramSum(len(geography), schema.n_cells, scratch)
    for start in range(0, len(units), _UNITS_AT_ONCE):
        rows = slice(start, start + _UNITS_AT_ONCE)
        codes = unit_codes(units, rows)
        kind[rows] = codes.kind
        if summed is not None and schema is not None:
            is_housing_unit = ~codes.is_facility
            cells = schema.cells({"occupancy": codes.occupancy[is_housing_unit]})
            summed.add(units.area[rows][is_housing_unit], cells, np.ones(len(cells), np.int8))
    return kind, None if summed is None else summed.total()


def table_files(
    paths: Mapping[str, str | os.PathLike[str]], names: Mapping[str, str] | None
) -> dict[str, tuple[InputFile, ...]]:
    """The files of every table; messages call a table of one file by its name of `names`."""
    return {
        table: input_files(table, os.fspath(path), (names or {}).get(table, os.fspath(path)))
        for table, path in paths.items()
    }
