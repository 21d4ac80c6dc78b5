"""The input of a run: persons and geography, in one of two layouts, checked and summed.

The production layout is `person-records.txt` and `GRF-C.txt`, pipe-delimited. Persons pass through
in batches; rows of other states are left out before any check, as in the production program.

`HHT` of a unit in the census tables (persons, units, geography) follows from its members: if the
table has it, it is compared with them, else it is derived (`tasks.census.members`). Seven types
become five, since nonfamily households are not distinguished by the householder's sex.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ....validation.rules import (
    CENSUS_RULES,
    ETHNICITY_COLUMN,
    GEOGRAPHY_WIDTHS,
    HOUSEHOLD_RULES,
    PERSON_WIDTHS,
    RACE_COLUMNS,
    Rule,
    Value,
    code_rules,
    production_rules,
    readable,
)
from ...census.areas import number_in
from ...census.cef_2020 import CENSUS
from ...census.cef_tables import UNIT_KEY, CefTables, recognised_columns, unit_codes, units_of
from ...census.counting import RawColumns, in_areas
from ...census.households import HOUSEHOLDER
from ...census.invariants import block_invariants
from ...census.joins import coded, read_coded, read_records
from ...census.members import completed_units, household_columns
from ...ledger.recognition import RecordColumn
from ...tables.area_lists import read_whole
from ...tables.columns import CodedColumn, KeyIndex, is_blank_key, temporary_folder
from ...tables.findings import Finding, InputCheck, UnreadableInput
from ...tables.layouts import Field, TableLayout
from ...tables.readers import Selection, read_batches
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally
from ..settings import DATA_FILES
from ..workload.parameters import Parameters
from ..workload.regions import BLOCK_COLUMNS, areas_of
from ..workload.specification import NONE, Specification, code_positions
from ..workload.tabulations import TENURES
from .counts import (
    ATTRIBUTE_COLUMNS,
    CountedPersons,
    Identity,
    PersonBatch,
    PersonTally,
    coded_persons,
    person_evidence,
)


@dataclass
class GroupsReader:
    """Reader of a layout's tables for the persons of some states.

    `codes` are the numbers of race and ethnicity codes, `findings` faults of the tables beyond the
    rules.
    """

    tables: Mapping[str, str]
    states: Collection[str]
    codes: Mapping[str, int]
    evidence: ValueTally
    findings: tuple[Finding, ...] = ()
    files: Mapping[str, tuple[InputFile, ...]] = field(init=False)
    raw: RawColumns = field(init=False)
    """The raw columns of persons, by block, as far as they have been read."""

    def recognised(self) -> list[RecordColumn]:
        """The raw columns that were read, by block."""
        return self.raw.columns()


PERSON_COLUMNS = (*ATTRIBUTE_COLUMNS, *RACE_COLUMNS, ETHNICITY_COLUMN)
"""Columns of persons that groups are counted by, in both layouts."""
PERSONS_FILE, GEOGRAPHY_FILE = DATA_FILES
_HOUSEHOLDER = "HOUSEHOLDER"

PERSONS_LAYOUT = TableLayout(
    "persons",
    (
        *(Field(name, "number") for name in ATTRIBUTE_COLUMNS),
        *(Field(name, "text") for name in (_HOUSEHOLDER, *PERSON_WIDTHS)),
        *(Field(name, "text") for name in (*RACE_COLUMNS, ETHNICITY_COLUMN)),
    ),
    column_names="production",
)
GEOGRAPHY_LAYOUT = TableLayout(
    "geography", tuple(Field(name, "text") for name in GEOGRAPHY_WIDTHS), column_names="production"
)

BLOCK_PARTS = tuple(PERSON_WIDTHS)


@dataclass
class ProductionReader(GroupsReader):
    """Reads `person-records.txt` and `GRF-C.txt` in a folder of the production layout."""

    def __post_init__(self) -> None:
        folder = self.tables["data"].rstrip("/")
        self.files = {
            layout.table: (InputFile("data", f"{folder}/{name}", name, layout),)
            for name, layout in (
                (PERSONS_FILE, PERSONS_LAYOUT),
                (GEOGRAPHY_FILE, GEOGRAPHY_LAYOUT),
            )
        }

    def rules(self) -> tuple[Rule, ...]:
        """The rules on the tables."""
        return production_rules()

    def geography(self) -> tuple[pd.DataFrame, None]:
        """The blocks of the states, by geocode; there are no units.

        The frame has the string columns block_geocode (16 digits; the block group is the first
        digit of the block), TABBLKST, TABBLKCOU, TABTRACTCE, PLACEFP, AIANNHCE. Blocks that a rule
        refuses are in it: it is sound only if the evidence is. Further columns are allowed.
        """
        (file,), evidence = self.files["geography"], self.evidence
        table = read_whole([file], Selection(GEOGRAPHY_LAYOUT.names))
        texts = {name: table.columns[name].texts() for name in GEOGRAPHY_LAYOUT.names}
        frame = pd.DataFrame(texts, dtype=object)
        evidence.add("geography", "TABBLKST", _counts(frame["TABBLKST"]))
        frame = frame[frame["TABBLKST"].isin(self.states)]
        for name in GEOGRAPHY_LAYOUT.names[1:]:
            evidence.add("geography", name, _counts(frame[name]))
        whole = frame[list(BLOCK_PARTS)].notna().all(axis=1)
        repeated = frame.duplicated(list(BLOCK_PARTS), keep=False) & whole
        evidence.add_mask("cross_table", "repeated_block", repeated.to_numpy())
        state, county, tract, block = (frame[name].fillna("") for name in BLOCK_PARTS)
        frame = frame.assign(block_geocode=state + county + tract + block.str[:1] + block)
        frame = frame.sort_values("block_geocode", kind="stable", ignore_index=True)
        self._blocks = frame[["block_geocode", *BLOCK_COLUMNS]].astype("str")
        return self._blocks, None

    def persons(self) -> Iterator[PersonBatch]:
        """The persons of the states, batch by batch.

        Persons that a rule refuses are left out; the evidence then holds the rule.
        """
        (file,), evidence = self.files["persons"], self.evidence
        names = (*PERSON_COLUMNS, _HOUSEHOLDER)
        self.raw = RawColumns(names, len(self._blocks))
        # The block group, fifth from the right of the geocode, is not part of a person's record.
        geocode = self._blocks["block_geocode"].str.replace(r"^(.{11}).", r"\1", regex=True)
        index = KeyIndex(pa.array(pd.to_numeric(geocode, errors="coerce").astype("Int64")))
        for batch in read_batches(file, Selection(PERSONS_LAYOUT.names)):
            columns = coded(batch, PERSONS_LAYOUT.names, PERSONS_LAYOUT)
            evidence.add("persons", "TABBLKST", columns["TABBLKST"].counts())
            is_kept = columns["TABBLKST"].lookup(lambda value: value in self.states, bool)
            if not is_kept.any():
                continue
            columns = {name: column.at(is_kept) for name, column in columns.items()}
            for name in (*BLOCK_PARTS[1:], _HOUSEHOLDER):
                evidence.add("persons", name, columns[name].counts())
            number = _block_numbers(columns)
            block = index.positions(pa.array(number, mask=number < 0))
            # A block that is no number is refused as such, not as unknown.
            is_unknown = (number >= 0) & (block < 0)
            evidence.add_mask("cross_table", "person_in_unknown_block", is_unknown)
            person_evidence(columns, self.codes, evidence)
            self.raw.add(columns, block)
            yield coded_persons(columns, block, self.codes)


def _block_numbers(columns: Mapping[str, CodedColumn]) -> np.ndarray:
    """State, county, tract and block of each person as one number, -1 where they are not digits."""
    number = np.zeros(columns["TABBLK"].codes.size, dtype=np.int64)
    is_whole = np.ones(number.size, dtype=bool)
    for name, width in PERSON_WIDTHS.items():
        part = columns[name].lookup(partial(_digits, width=width), np.int64)
        is_whole &= part >= 0
        number = number * 10**width + part
    return np.where(is_whole, number, -1)


def _digits(value: str | None, width: int) -> int:
    if value is None or len(value) != width or not value.isascii() or not value.isdigit():
        return -1
    return int(value)


def _counts(values: pd.Series) -> dict[Value, int]:
    counts = values.value_counts(dropna=False)
    return {None if pd.isna(value) else value: int(n) for value, n in counts.items()}


_RELATIONSHIP = "RELSHIP"
TYPE, TENURE = "HHT", "TEN"
TYPE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 3, "6": 3, "5": 4, "7": 4}
"""Type of a household by HHT: 4 and 6 live alone, 5 and 7 do not."""
TENURE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 2}
"""Tenure by TEN: rented with and without payment are one."""


@dataclass
class CensusReader(GroupsReader):
    """Reads persons and geography of the Census Edited File."""

    def __post_init__(self) -> None:
        self._tables = CefTables.of(CENSUS, {}, self.tables)
        self.files = self._tables.files

    def rules(self) -> tuple[Rule, ...]:
        """The rules on the tables."""
        return (*CENSUS_RULES, *code_rules(no_code=None))

    def geography(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The blocks of the states, and row by row their housing units and facilities; sound only
        if the evidence is.
        """
        before = self._tables.read_before(self.evidence)
        frame, units = before.areas.frame, units_of(before)
        geocode = frame["block_geocode"].str
        parts = (geocode[:2], geocode[2:5], geocode[5:11], frame["PLACEFP"], frame["AIANNHCE"])
        columns = dict(zip(BLOCK_COLUMNS, parts, strict=True))
        blocks = pd.DataFrame({"block_geocode": frame["block_geocode"], **columns})
        is_kept = blocks["TABBLKST"].isin(self.states).to_numpy()
        position = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
        has_block = units.area >= 0
        invariants = block_invariants(frame["block_geocode"], before.counts)
        self._units, self._n_blocks = units, int(is_kept.sum())
        # Positions in the blocks of the states, -1 for units of other states.
        self._block_of_unit = np.where(has_block, position[units.area], -1)
        return (
            blocks[is_kept].reset_index(drop=True),
            invariants[is_kept].reset_index(drop=True),
        )

    def persons(self) -> Iterator[PersonBatch]:
        """The persons whose units lie in the blocks, batch by batch.

        Persons that a rule refuses are left out; the evidence then holds the rule.
        """
        return self._persons(PERSON_COLUMNS)

    def _persons(
        self, wanted: tuple[str, ...], household_of_unit: np.ndarray | None = None
    ) -> Iterator[PersonBatch]:
        """With the cells of households, shape (n_units,), `NONE` for none, the batches also have
        householders' cells.
        """
        units, files, evidence = self._units, self.files["persons"], self.evidence
        self.raw = RawColumns(PERSON_COLUMNS, self._n_blocks)
        for file, batch, of_all in read_records(files, wanted, (UNIT_KEY,), evidence.files):
            unit = units.index.positions(batch[UNIT_KEY])
            is_blank = is_blank_key(batch[UNIT_KEY])
            is_vacant = (unit >= 0) & (unit_codes(units, unit).occupancy == 0)
            for suite, column, mask in (
                ("persons", "blank_mafid", is_blank),
                ("cross_table", "person_in_unknown_unit", (unit < 0) & ~is_blank),
                ("cross_table", "person_in_vacant_unit", is_vacant),
            ):
                evidence.add_mask(suite, column, mask, file=file)
            block = np.where(unit < 0, -1, self._block_of_unit[unit])
            self.raw.add({name: of_all[name] for name in PERSON_COLUMNS}, block)
            rows = block >= 0
            columns = {name: of_all[name].at(rows) for name in PERSON_COLUMNS}
            household = None
            if household_of_unit is not None:
                relationship = of_all[_RELATIONSHIP].at(rows)
                is_head = relationship.lookup(lambda value: value == str(HOUSEHOLDER), bool)
                household = np.where(is_head, household_of_unit[unit[rows]], NONE)
            if rows.any():
                person_evidence(columns, self.codes, evidence, file=file)
                yield coded_persons(columns, block[rows], self.codes, household)

    def recognised(self) -> list[RecordColumn]:
        """The raw columns of persons and units, by block."""
        units = replace(self._units, area=self._block_of_unit)
        return super().recognised() + recognised_columns(units, self._n_blocks)


class HouseholdReader(CensusReader):
    """Reads housing tables too, and counts the householders among the persons."""

    def rules(self) -> tuple[Rule, ...]:
        """The rules on the tables."""
        return (*super().rules(), *HOUSEHOLD_RULES)

    def persons(self) -> Iterator[PersonBatch]:
        """The persons, householders with type by tenure of their household.

        Where members contradict their units, no unit has a household. A completed table of units
        is kept in the confidential folder while it is read. Raises UnreadableInput.
        """
        n_units, block = len(self._units), self._block_of_unit
        cells, first = np.full(n_units, NONE, dtype=np.int8), 0
        with temporary_folder() as folder:
            target = Path(folder) / "units_with_members.parquet"
            units, persons = self.files["units"], self.files["persons"]
            self.findings, _, members, files = completed_units(units, persons, UNIT_KEY, target)
            self._of_households = in_areas(members.columns(), block, self._n_blocks)
            if not self.findings:
                for file, _, columns in read_coded(files, (TYPE, TENURE), ()):
                    kind, tenure = (
                        columns[name].lookup(partial(number_in, of_code), np.int8)
                        for name, of_code in ((TYPE, TYPE_OF_CODE), (TENURE, TENURE_OF_CODE))
                    )
                    counts = columns[TENURE].at(np.flatnonzero(kind != NONE)).counts()
                    self.evidence.add("units", HOUSEHOLD_RULES[0].evidence, counts, file=file)
                    is_known = (kind != NONE) & (tenure != NONE)
                    found = np.where(is_known, kind * len(TENURES) + tenure, NONE)
                    cells[first : first + len(found)] = found
                    first += len(found)
                self._of_households += household_columns(files, (TENURE,), block, self._n_blocks)
        return self._persons((*PERSON_COLUMNS, _RELATIONSHIP), cells)

    def recognised(self) -> list[RecordColumn]:
        """The raw columns of persons, units and households, by block."""
        return super().recognised() + self._of_households


@dataclass(frozen=True)
class AcceptedGroups:
    """The input of a run.

    `blocks` has block_geocode, TABBLKST, TABBLKCOU, TABTRACTCE, PLACEFP and AIANNHCE of the blocks
    of the states that are tabulated; `invariants`, row by row, their housing units and facilities
    where the layout has them. `persons`, `identity` and `raw`, the raw columns that were read by
    block, are confidential.
    """

    blocks: pd.DataFrame
    invariants: pd.DataFrame | None
    persons: CountedPersons
    identity: Identity
    raw: Sequence[RecordColumn]


def check_groups_input(
    tables: Mapping[str, str], specification: Specification, parameters: Parameters
) -> InputCheck[AcceptedGroups]:
    """Read the tables, evaluate every rule and sum the persons, or the householders.

    `tables` maps `data` to a folder in the production layout, or `persons`, `units` and
    `geography` to the census tables. The rules are counted by vectorised code and, as a public
    pass or fail, evaluated by Great Expectations; the input is accepted only if both find nothing.
    For parameters of households, householders are counted by their household's cell, which only
    census tables have.
    """
    evidence = ValueTally()
    of_households = parameters.records == "households"
    reader = HouseholdReader if of_households else _reader_of(tables)
    read = reader(tables, _states(parameters), code_positions(specification), evidence)
    try:
        blocks, invariants = read.geography()
        state_of_block = blocks["TABBLKST"].to_numpy()
        findings = _missing_passes(read, "geography", set(state_of_block), parameters)
        if not findings:
            tally = PersonTally(areas_of(blocks)[0], parameters.max_race_codes)
            states_seen: set[str] = set()
            for batch in read.persons():
                if batch.block.size:
                    tally.add(batch)
                    states_seen |= set(state_of_block[batch.block])
            findings = read.findings or _missing_passes(read, "persons", states_seen, parameters)
    except UnreadableInput as error:
        files = evidence.files.listed
        return InputCheck((readable("files", False),), (error.finding,), None, files)
    evidence.files.add(file for files in read.files.values() for file in files)

    def accept() -> AcceptedGroups | None:
        if findings:
            return None
        return AcceptedGroups(blocks, invariants, *tally.finish(), read.recognised())

    suites = evidence.suites
    rules = [rule for rule in read.rules() if suites.get(rule.suite, {}).get(rule.evidence)]
    check = evidence.checked(rules, read.files, (readable("files", True),), accept)
    return replace(check, findings=check.findings or findings)


def read_blocks(
    tables: Mapping[str, str], parameters: Parameters
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The blocks of the states that are tabulated, and their invariants where units are given.

    For `tables` see `check_groups_input`; no rule is evaluated. Raises UnreadableInput for a
    file that cannot be read.
    """
    return _reader_of(tables)(tables, _states(parameters), {}, ValueTally()).geography()


def _reader_of(tables: Mapping[str, str]) -> type[ProductionReader | CensusReader]:
    return ProductionReader if "data" in tables else CensusReader


def _states(parameters: Parameters) -> set[str]:
    return {state for name in parameters.passes for state in parameters.states_of(name)}


def _missing_passes(
    read: GroupsReader, table: str, present: set[str], parameters: Parameters
) -> tuple[Finding, ...]:
    """A finding for each pass without a state in a table."""
    return tuple(
        Finding(
            read.files[table][0].name,
            "TABBLKST",
            f"no row is in the states of the pass run_{name}",
            f"set run_{name} to false, or give the rows of its states",
        )
        for name in parameters.passes
        if not present & set(parameters.states_of(name))
    )
