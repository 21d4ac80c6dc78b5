"""The tables of the Census Edited File, and its rules beyond single columns.

The geography table is kept in memory. Units pass through in batches, of which some 20 bytes a unit
stay, and so do persons, of which only sums stay. `census_input` reads and judges tables of every
census, `joins` finds a person's unit and block, and `counting` counts persons; this module, which
the preset names, adds group quarters, vacancy, and the rules between tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ...validation.rules import ADULT_AGE, NURSING_FACILITY, Rule, applicable_rules
from ..ledger.recognition import InputDigest, RecordColumn, digest_of_parts
from ..tables.area_lists import read_whole
from ..tables.columns import CodedColumn, KeyIndex, is_blank_key
from ..tables.findings import refusal, refuse_unreadable
from ..tables.layouts import BLOCK_KEY, GEOCODE_FIELDS, GEOGRAPHY_LAYOUT
from ..tables.readers import Selection
from ..tables.sources import InputFile, input_files
from ..tables.value_tallies import ValueTally
from .areas import Areas
from .cef_2020 import AGE_COLUMN, CENSUS, IDENTITY_COLUMNS, TYPE_COLUMN, recode_of, type_of
from .census_input import CensusInput, CensusTables, ReferredRows, ReferredTables
from .counting import RawColumns, RecordCounter, Weights
from .histograms import HistogramSum, block_levels, counties_of, numbers_of
from .invariants import N_KINDS, block_invariants, state_totals
from .joins import ByTable, JoinedTable, PlacedBatch, Placing, read_joined
from .queries import Schema
from .recodes import UNKNOWN
from .records import AreaLookup

IDENTITY = CENSUS.schema("persons", CENSUS.universes["persons"].declared.identity)
"""Columns of persons that every product reads, apart from their block."""
UNIT_KEY, BLOCK_OF_UNIT = "MAFID", "OIDTB"
"""Column that identifies a unit, and that of its block."""
UNIT_COLUMNS = ("RTYPE", "QGQTYP", "VACS")


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
        return self.rtype.lookup(CENSUS.universes["units"].rows["RTYPE"].holds, bool)

    @property
    def is_facility(self) -> np.ndarray:
        """Whether it is a facility of group quarters."""
        return self.rtype.lookup(CENSUS.universes["facilities"].rows["RTYPE"].holds, bool)

    @property
    def occupancy(self) -> np.ndarray:
        """0 vacant or 1 occupied; -1 where unknown, and for facilities."""
        level_of = recode_of("units", "occupancy").level_of
        return np.where(self.is_housing_unit, self.vacs.lookup(level_of, np.int8), UNKNOWN)

    @property
    def kind(self) -> np.ndarray:
        """The kind of a unit as in `invariants.block_invariants`; -1 where unknown."""
        kind = self.qgqtyp.lookup(type_of, np.int8)
        of_facility = np.where(self.is_facility & (kind > 0), kind + 1, UNKNOWN)
        return np.where(self.is_housing_unit, self.occupancy, of_facility)

    @property
    def code(self) -> np.ndarray:
        """QGQTYP as a number, 0 where blank; -1 where unknown."""
        return self.qgqtyp.lookup(_known_code, np.int16)


def _known_code(qgqtyp: str | None) -> int:
    return UNKNOWN if type_of(qgqtyp) == UNKNOWN else int(qgqtyp or 0)


_PREFIX, _SIZE = "units.", "size"


def unit_codes(units: JoinedTable, rows: slice | np.ndarray) -> UnitCodes:
    """Return the columns of some rows of the units."""
    columns = {name: column.at(rows) for name, column in units.columns.items()}
    return UnitCodes.of(columns, _PREFIX)


def load_geography(
    files: Sequence[InputFile], evidence: ValueTally
) -> tuple[pd.DataFrame, JoinedTable]:
    """The geography frame, sorted by block geocode, and the blocks as units refer to them: their
    position in it.

    The frame has block_geocode (16 digits) and every column of the file that is no part of the
    block geocode and not the block's identifier. Files of one table must have the same columns.
    """
    selection = Selection(GEOGRAPHY_LAYOUT.names, with_others=True)
    table = read_whole(files, selection, BLOCK_KEY)
    for name in sorted(table.lacking):
        raise files[table.lacking[name]].unreadable(
            f"the column {name} is not in all files of the table",
            "write the files of one table with the same columns",
            column=name,
        )
    index, n_rows = KeyIndex(table.keys), table.n_rows
    for name in GEOGRAPHY_LAYOUT.names:
        if name != BLOCK_KEY:
            evidence.add_column("geography", name, table.columns[name], n_rows)
    evidence.files.add(files, n_rows)
    evidence.add_masks("geography", "blank_block_identifier", index.is_blank, n_rows)
    evidence.add_masks("cross_table", "repeated_block_identifier", index.is_repeated, n_rows)

    texts = {name: column.to_arrow() for name, column in table.columns.items()}
    del table
    parts = [texts.pop(name) for name in GEOCODE_FIELDS]
    # Null where a part is blank.
    geocode = pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))
    codes = geocode.dictionary_encode().indices.fill_null(-1).to_numpy()
    is_repeated = (codes >= 0) & (np.bincount(codes + 1)[codes + 1] > 1)
    evidence.add_masks("cross_table", "repeated_block", is_repeated, n_rows)

    columns = {**texts, "block_geocode": geocode.fill_null("")}
    order = pc.sort_indices(columns["block_geocode"])
    rank = np.argsort(order.to_numpy().astype(np.int64))
    names = dict.fromkeys(("block_geocode", *columns))
    frame = pd.DataFrame({n: pd.array(columns[n].take(order), dtype="str") for n in names})
    return frame, JoinedTable(index, rank, {}, n_rows)


def read_blocks(path: str) -> pd.DataFrame:
    """The geography frame of a table alone, of which no rule is evaluated.

    Raises UnreadableInput.
    """
    return load_geography(input_files("geography", path), ValueTally())[0]


def load_units(
    files: Sequence[InputFile], blocks: JoinedTable, evidence: ValueTally
) -> tuple[JoinedTable, sparse.csr_array]:
    """Read the units table, batch by batch, find each unit's block, and count them by block and
    kind."""
    counts = HistogramSum(len(blocks), N_KINDS)

    def tally(read: PlacedBatch) -> None:
        units = UnitCodes.of(read.columns)
        is_housing_unit = units.is_housing_unit
        is_blank = units.qgqtyp.lookup(lambda value: value is None, bool)
        evidence.add("units", "RTYPE", units.rtype.counts(), file=read.file)
        evidence.add("units", "QGQTYP", units.qgqtyp.counts(), file=read.file)
        for column, mask in {
            "housing_unit_of_unknown_vacancy": is_housing_unit & (units.occupancy == UNKNOWN),
            "housing_unit_with_group_quarters_code": is_housing_unit & ~is_blank,
            "facility_without_group_quarters_code": units.is_facility & is_blank,
        }.items():
            read.add_mask("units", column, mask)
        read.add_mask("cross_table", "unit_in_unknown_block", read.area < 0)
        kind = units.kind
        rows = np.flatnonzero((read.area >= 0) & (kind >= 0))
        counts.add(read.area[rows], kind[rows], np.ones(len(rows), np.int8))

    columns = {f"{_PREFIX}{name}": name for name in UNIT_COLUMNS}
    place = ByTable(BLOCK_OF_UNIT, blocks)
    units = read_joined(files, UNIT_KEY, columns, place, evidence, tally)
    evidence.files.add(files, units.n_rows)
    evidence.add_masks("units", "blank_mafid", units.index.is_blank, units.n_rows)
    evidence.add_masks("cross_table", "repeated_mafid", units.index.is_repeated, units.n_rows)
    return units, counts.total()


def recognised_columns(
    units: JoinedTable, n_blocks: int, n_persons: np.ndarray | None = None
) -> list[RecordColumn]:
    """The raw columns of units by block, vacancy of housing units alone too, and how many persons
    `(n_units,)` each unit has, where it is known.
    """
    columns = {**units.columns}
    if n_persons is not None:
        sizes = tuple(str(n) for n in range(int(n_persons.max(initial=0)) + 1))
        columns[_SIZE] = CodedColumn(n_persons, sizes)
    all_units, homes = (
        RawColumns(names, n_blocks) for names in (tuple(columns), (f"{_PREFIX}VACS",))
    )
    all_units.add(columns, units.area)
    homes.add(columns, units.area, unit_codes(units, slice(None)).is_housing_unit)
    return [*all_units.columns(), *homes.columns()]


class PersonCounter(RecordCounter):
    """Counts persons by unit, and by block and cell of `IDENTITY` and of a schema, if any."""

    def __init__(self, place: Placing, n_blocks: int, schema: Schema | None) -> None:
        schemas = {"identity": IDENTITY} | ({"histogram": schema} if schema else {})
        super().__init__(place, schemas, CENSUS.universes["persons"].recodes, n_blocks)
        needed = [column for recode in self.recodes for column in recode.columns]
        self.keys, self.texts = (UNIT_KEY,), tuple(dict.fromkeys((TYPE_COLUMN, *needed)))
        self.raw = RawColumns(self.texts, n_blocks)

    def tally(self, read: PlacedBatch) -> Weights:
        """Add the evidence of the rules on persons."""
        columns = read.columns
        for name in self.texts:
            read.evidence.add("persons", name, columns[name].counts(), file=read.file)
        units, has_unit = UnitCodes.of(columns, _PREFIX), read.row >= 0
        is_blank = is_blank_key(read.batch[UNIT_KEY])
        code, code_of_unit = columns[TYPE_COLUMN].lookup(_known_code, np.int16), units.code
        read.add_mask("persons", "blank_mafid", is_blank)
        masks = {
            "person_in_unknown_unit": ~has_unit & ~is_blank,
            "person_in_vacant_unit": has_unit & (units.occupancy == 0),
            "person_of_other_group_quarters_code": (
                has_unit & (code >= 0) & (code_of_unit >= 0) & (code != code_of_unit)
            ),
        }
        if AGE_COLUMN in columns:
            in_nursing = columns[TYPE_COLUMN].lookup(type_of, np.int8) == NURSING_FACILITY
            age = columns[AGE_COLUMN].lookup(recode_of("persons", "age").level_of, np.int16)
            masks["minor_in_nursing_facility"] = (age >= 0) & (age < ADULT_AGE) & in_nursing
        for name, mask in masks.items():
            read.add_mask("cross_table", name, mask)
        return super().tally(read)


@dataclass(frozen=True, eq=False)
class CefTables(CensusTables):
    """The tables of the Census Edited File: geography, units, and persons, who alone are counted
    record by record, whatever universes run.
    """

    @property
    def records(self) -> Mapping[str, tuple[InputFile, ...]]:
        """Persons alone are counted as records."""
        return {"persons": self.files["persons"]}

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables in the order in which they are read."""
        return ("geography", "units", "persons")

    def read_before(self, evidence: ValueTally) -> ReferredTables:
        """Read geography and units; raises UnreadableInput."""
        frame, blocks = load_geography(self.files["geography"], evidence)
        units, counts = load_units(self.files["units"], blocks, evidence)
        way = AreaLookup(ByTable(UNIT_KEY, units), {}, RawColumns((), len(frame)))
        return ReferredTables(Areas(frame, (), {}), {"persons": way}, counts)

    def counter(
        self, before: ReferredTables, universe: str, evidence: ValueTally
    ) -> tuple[PersonCounter, tuple[InputFile, ...]]:
        """Return the counter of persons, and their files."""
        schema, place = self.schemas.get("persons"), before.ways["persons"].place
        return PersonCounter(place, len(before.areas), schema), self.files[universe]

    def public_tables(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the geography frame and the public facts about every block; no person is read.

        Raises InputRefused for tables that break a rule, with counts only on request.
        """
        evidence = ValueTally()
        with refuse_unreadable(with_counts=with_counts):
            before = self.read_before(evidence)
        if findings := evidence.findings(applicable_rules(evidence.suites), self.files):
            raise refusal(findings, with_counts=with_counts)
        geography = before.areas.frame
        return geography, block_invariants(geography["block_geocode"], before.counts)

    def rules(
        self, before: ReferredTables, counted: Mapping[str, RecordCounter], evidence: ValueTally
    ) -> Sequence[Rule]:
        """The rules on the three tables, as far as there is evidence for them."""
        evidence.files.add(file for files in self.files.values() for file in files)
        units, n_persons = units_of(before), counted["persons"].references
        is_empty = unit_codes(units, slice(None)).is_facility & (n_persons == 0)
        evidence.add_masks("cross_table", "facility_without_person", is_empty, units.n_rows)
        return applicable_rules(evidence.suites)

    def result(self, before: ReferredTables, counted: Mapping[str, RecordCounter]) -> CensusInput:
        """The input that has met every rule.

        Empty blocks without housing units or facilities are included; see `invariants.inhabitable`.
        Whole persons are recognised by block and cell of `IDENTITY`.
        """
        geocode, units = before.areas.frame["block_geocode"], units_of(before)
        persons = counted["persons"]
        identity = persons.totals["identity"]
        population = state_totals(geocode, identity.sum(axis=1))
        digested = {"persons": (IDENTITY_COLUMNS, identity, IDENTITY.shape[1:])}
        histograms = {}
        if "persons" in self.schemas:
            histograms["persons"] = persons.totals["histogram"]
        if "units" in self.schemas:
            homes = histograms["units"] = before.counts[:, : self.schemas["units"].n_cells]
            digested["units"] = ("block_geocode", "cell", "units"), homes, ()
        raw = recognised_columns(units, len(geocode), persons.references)
        return CensusInput(
            before.areas,
            block_invariants(geocode, before.counts),
            histograms,
            population if "persons" in self.schemas else {},
            {name: int(counts.sum()) for name, counts in histograms.items()},
            sum(population.values()),
            {"persons": [*persons.raw.columns(), *raw]},
            {kind: partial(_counts_digest, kind, geocode, *own) for kind, own in digested.items()},
            lambda: block_levels(numbers_of(geocode)),
            {},
            {"persons": ReferredRows(units.area, persons.references)},
        )


def units_of(before: ReferredTables) -> JoinedTable:
    """The units to which persons refer."""
    place = before.ways["persons"].place
    assert isinstance(place, ByTable)
    return place.joined


def _counts_digest(
    kind: str,
    geocode: pd.Series,
    names: Sequence[str],
    table: sparse.csr_array,
    shape: Sequence[int],
    key: bytes,
) -> InputDigest:
    """The digest of counts by block and cell, and those of counties."""
    counties = counties_of(numbers_of(geocode), table, shape)
    return digest_of_parts(kind, names, counties, table.nnz, key)
