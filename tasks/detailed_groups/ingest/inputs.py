"""The input of a run: persons and geography, in one of two layouts, checked and summed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ....validation.census.input_rules import RULES
from ....validation.detailed_groups.input_rules import code_rules, household_rules, production_rules
from ....validation.expectations import readable, run_suites
from ....validation.outcome import Outcome
from ....validation.rules import Rule
from ...census.cef_2020 import CENSUS
from ...census.cef_tables import CefTables, recognised_columns
from ...census.counting import RawColumns
from ...census.value_tallies import ValueTally
from ...ledger.recognition import RecordColumn
from ...tables.findings import Finding, InputCheck, UnreadableInput
from ...tables.sources import InputFile
from ..workload.parameters import MechanismParameters
from ..workload.regions import areas_of
from ..workload.specification import Specification, code_positions
from . import census_tables, production_files
from .census_tables import household_cells
from .counts import CountedPersons, Identity, PersonBatch, PersonTally


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
    tables: Mapping[str, str],
    specification: Specification,
    parameters: MechanismParameters,
    scratch: Path | None = None,
    *,
    of_households: bool = False,
) -> InputCheck[AcceptedGroups]:
    """Read the tables, evaluate every rule and sum the persons, or the householders.

    `tables` maps `data` to a folder in the production layout, or `persons`, `units` and
    `geography` to the census tables. The rules are counted by vectorised code and, as a public
    pass or fail, evaluated by Great Expectations; the input is accepted only if both find nothing.
    `scratch` is the folder for temporary files of confidential rows of census tables. Householders
    are counted `of_households` by their household's cell, which only census tables have.
    """
    evidence = ValueTally()
    reader = _HouseholdReader if of_households else _reader_of(tables)
    read = reader(tables, _states(parameters), code_positions(specification), evidence, scratch)
    try:
        blocks, invariants = read.geography()
        missing = _missing_passes(read.names["geography"], set(blocks["TABBLKST"]), parameters)
        if missing:
            outcomes, findings = _evaluate(read.rules(), evidence, read.files)
            return InputCheck(outcomes, findings or missing, None, evidence.files.listed)
        area_of_block, _ = areas_of(blocks)
        tally = PersonTally(area_of_block, parameters.max_race_codes)
        states_seen: set[str] = set()
        state_of_block = blocks["TABBLKST"].to_numpy()
        for batch in read.persons():
            if batch.block.size:
                tally.add(batch)
                states_seen |= set(state_of_block[batch.block])
    except UnreadableInput as error:
        files = evidence.files.listed
        return InputCheck((readable("files", False),), (error.finding,), None, files)
    evidence.files.add_formats(file for files in read.files.values() for file in files)
    outcomes, findings = _evaluate(read.rules(), evidence, read.files)
    findings = findings or read.findings
    findings = findings or _missing_passes(read.names["persons"], states_seen, parameters)
    outcomes = (readable("files", True), *outcomes)
    if findings:
        return InputCheck(outcomes, findings, None, evidence.files.listed)
    accepted = AcceptedGroups(blocks, invariants, *tally.finish(), read.raw())
    return InputCheck(outcomes, (), accepted, evidence.files.listed)


def read_blocks(
    tables: Mapping[str, str], parameters: MechanismParameters
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The blocks of the states that are tabulated, and their invariants where units are given.

    For `tables` see `check_groups_input`; no rule is evaluated. Raises UnreadableInput for a
    file that cannot be read.
    """
    read = _reader_of(tables)(tables, _states(parameters), {}, ValueTally())
    return read.geography()


@dataclass
class _Reader:
    """State of both readers: the states that are tabulated, the codes, and the destinations of
    evidence and temporary files. `findings` are faults of the tables beyond the rules.
    """

    tables: Mapping[str, str]
    states: set[str]
    codes: Mapping[str, int]
    evidence: ValueTally
    scratch: Path | None = None
    findings: tuple[Finding, ...] = ()

    def begin_raw(self, names: Sequence[str], n_blocks: int) -> RawColumns:
        """The raw columns of persons, to be filled by the next reads."""
        self._raw = RawColumns(names, n_blocks, self.scratch)
        return self._raw

    def raw(self) -> list[RecordColumn]:
        """The raw columns that were read, by block."""
        return self._raw.columns()


@dataclass
class _ProductionReader(_Reader):
    """`person-records.txt` and `GRF-C.txt`."""

    def __post_init__(self) -> None:
        self._persons, self._geography = (
            production_files.data_file(self.tables["data"], layout)
            for layout in (production_files.PERSONS_LAYOUT, production_files.GEOGRAPHY_LAYOUT)
        )
        self.files = {"persons": (self._persons,), "geography": (self._geography,)}
        self.names = {table: files[0].name for table, files in self.files.items()}

    def rules(self) -> tuple[Rule, ...]:
        return production_rules()

    def geography(self) -> tuple[pd.DataFrame, None]:
        self._blocks = production_files.read_geography(self._geography, self.states, self.evidence)
        return self._blocks, None

    def persons(self) -> Iterator[PersonBatch]:
        raw = self.begin_raw(production_files.PERSON_COLUMNS, len(self._blocks))
        return production_files.read_persons(
            self._persons, self._blocks, self.states, self.codes, self.evidence, raw
        )


@dataclass
class _CensusReader(_Reader):
    """The tables of the Census Edited File."""

    def __post_init__(self) -> None:
        self.names = {name: path.rpartition("/")[2] for name, path in self.tables.items()}
        self._tables = CefTables.of(CENSUS, {}, self.tables)
        self.files = self._tables.files

    def rules(self) -> tuple[Rule, ...]:
        return (*RULES, *code_rules(no_code=None))

    def geography(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        self._geography = census_tables.read_geography(
            self._tables, self.states, self.evidence, self.scratch
        )
        return self._geography.blocks, self._geography.invariants

    def persons(self) -> Iterator[PersonBatch]:
        return self._persons()

    def _persons(self, households: np.ndarray | None = None) -> Iterator[PersonBatch]:
        raw = self.begin_raw(census_tables.PERSON_COLUMNS, len(self._geography.blocks))
        return census_tables.read_persons(
            self.files["persons"], self._geography, self.codes, self.evidence, raw, households
        )

    def raw(self) -> list[RecordColumn]:
        read = self._geography
        units = replace(read.units, area=read.block_of_unit)
        return super().raw() + recognised_columns(units, len(read.blocks), self.scratch)


class _HouseholdReader(_CensusReader):
    """Reads persons' and housing tables of a census, and counts the householders among them."""

    def rules(self) -> tuple[Rule, ...]:
        return (*super().rules(), *household_rules())

    def persons(self) -> Iterator[PersonBatch]:
        read = self._geography
        cells, self.findings, self._of_households = household_cells(
            self.files["units"],
            self.files["persons"],
            self.evidence,
            read.block_of_unit,
            len(read.blocks),
            self.scratch,
        )
        return self._persons(cells)

    def raw(self) -> list[RecordColumn]:
        return super().raw() + self._of_households


def _reader_of(tables: Mapping[str, str]) -> type[_ProductionReader | _CensusReader]:
    return _ProductionReader if "data" in tables else _CensusReader


def _states(parameters: MechanismParameters) -> set[str]:
    return {state for name in parameters.passes for state in parameters.states_of(name)}


def _missing_passes(
    file: str, present: set[str], parameters: MechanismParameters
) -> tuple[Finding, ...]:
    """A finding for each pass without a state in a file."""
    return tuple(
        Finding(
            file,
            "TABBLKST",
            f"no row is in the states of the pass run_{name}",
            f"set run_{name} to false, or give the rows of its states",
        )
        for name in parameters.passes
        if not present & set(parameters.states_of(name))
    )


def _evaluate(
    rules: Sequence[Rule], evidence: ValueTally, files: Mapping[str, Sequence[InputFile]]
) -> tuple[tuple[Outcome, ...], tuple[Finding, ...]]:
    """Outcomes of the rules by Great Expectations, and findings with counts by our own code."""
    suites = evidence.suites
    rules = [rule for rule in rules if suites.get(rule.suite, {}).get(rule.evidence)]
    outcomes = run_suites(rules, suites)
    return outcomes, evidence.findings(rules, files, outcomes)
