"""The input of a run: read, checked, and turned into histograms and invariants in one pass."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from ...validation.census.input_rules import applicable_rules
from ...validation.expectations import readable, run_suites
from ...validation.outcome import Outcome
from ..tables.findings import Finding, InputCheck, UnreadableInput, refusal
from ..tables.sources import InputFile, input_files
from .cef_2020 import PERSONS, UNITS
from .histograms import HistogramSum
from .invariants import block_invariants, state_totals
from .schema import Schema
from .tables import (
    EvidenceTally,
    PersonSums,
    UnitsTable,
    load_geography,
    load_units,
    sum_persons,
)

_UNITS_AT_ONCE = 1 << 20
_TABLES = ("geography", "units", "persons")
"""The tables in the order in which they are read."""


@dataclass(frozen=True)
class IngestResult:
    """What a run needs of its input; rows of all members are in the order of `geography`.

    `histograms` maps a universe to int64 counts, shape `(n_blocks, n_cells)`. Blocks that can
    hold nobody are included; see `tasks.census.invariants.inhabitable`.
    """

    geography: pd.DataFrame
    invariants: pd.DataFrame
    state_totals: Mapping[str, int]
    histograms: Mapping[str, sparse.csr_array]
    identity: sparse.csr_array
    """Persons per block and cell of `tasks.census.tables.IDENTITY`."""
    unit_block: np.ndarray
    """Position of the block of every unit, shape `(n_units,)`."""
    unit_population: np.ndarray
    """Persons of every unit, shape `(n_units,)`."""
    unit_vacancy: np.ndarray
    """Code of the vacancy of every housing unit, shape `(n_units,)`; -1 for facilities."""
    outcomes: tuple[Outcome, ...]


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

    A path is that of a file, of a folder of partitions, a glob, or an fsspec URL. `names` gives the
    name that messages show for a table in one file, by default its path;
    `names={"persons": "persons.parquet"}` for example. A universe whose schema is None gets no
    histogram. The rules are counted by vectorised code and, as a public pass or fail, evaluated by
    Great Expectations; the input is accepted only if both find nothing. How the rows of a table are
    spread over its files decides nothing but which of them a finding names. What is large is kept
    in temporary files in the folder `scratch`, by default the system's; they hold confidential
    rows.
    """
    files = table_files({"geography": geography, "units": units, "persons": persons}, names)
    evidence = EvidenceTally()
    try:
        table = "geography"
        blocks = load_geography(files[table], evidence, scratch)
        table = "units"
        unit_table = load_units(files[table], blocks, evidence, scratch)
        table = "persons"
        sums = sum_persons(
            files[table],
            unit_table,
            n_blocks=len(blocks.frame),
            schema=person_schema,
            evidence=evidence,
            scratch=scratch,
        )
    except UnreadableInput as error:
        return unreadable_input(table, error.finding)
    frame = blocks.frame
    return checked(evidence, files, frame, unit_table, sums, person_schema, unit_schema, scratch)


def unreadable_input(table: str, finding: Finding) -> InputCheck[IngestResult]:
    """The check that ended at a table that cannot be read; the tables before it could be."""
    before = _TABLES[: _TABLES.index(table)]
    read = (*(readable(name, True) for name in before), readable(table, False))
    return InputCheck(read, (finding,), None)


def checked(
    evidence: EvidenceTally,
    files: Mapping[str, Sequence[InputFile]],
    geography: pd.DataFrame,
    units: UnitsTable,
    sums: PersonSums,
    person_schema: Schema | None,
    unit_schema: Schema | None,
    scratch: Path | None,
) -> InputCheck[IngestResult]:
    """The check of tables that have been read: every rule is evaluated on the evidence."""
    outcomes, findings = _evaluate(evidence, files)
    outcomes = (*(readable(name, True) for name in _TABLES), *outcomes)
    if findings:
        return InputCheck(outcomes, findings, None)
    result = _assemble(geography, units, sums, person_schema, unit_schema, outcomes, scratch)
    return InputCheck(outcomes, (), result)


def read_addresses(
    *,
    units: str | os.PathLike[str],
    geography: str | os.PathLike[str],
    names: Mapping[str, str] | None = None,
    with_counts: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The geography frame and the invariants, from two tables; no person is read.

    Raises InputRefused for tables that break a rule, with counts only if asked for.
    """
    files = table_files({"geography": geography, "units": units}, names)
    evidence = EvidenceTally()
    try:
        blocks = load_geography(files["geography"], evidence)
        unit_table = load_units(files["units"], blocks, evidence)
    except UnreadableInput as error:
        raise refusal([error.finding], with_counts=with_counts) from None
    if findings := evidence.findings(applicable_rules(evidence.suites), files):
        raise refusal(findings, with_counts=with_counts)
    geocode = blocks.frame["block_geocode"]
    return blocks.frame, block_invariants(geocode, unit_table.block, unit_table.kind)


def table_files(
    paths: Mapping[str, str | os.PathLike[str]], names: Mapping[str, str] | None
) -> dict[str, tuple[InputFile, ...]]:
    """The files of every table; messages name those that are a table by themselves as told."""
    return {
        table: input_files(table, os.fspath(path), (names or {}).get(table, os.fspath(path)))
        for table, path in paths.items()
    }


def _evaluate(
    evidence: EvidenceTally, files: Mapping[str, Sequence[InputFile]]
) -> tuple[tuple[Outcome, ...], tuple[Finding, ...]]:
    """Outcomes of all rules by Great Expectations, and findings with counts by our own code."""
    rules = applicable_rules(evidence.suites)
    outcomes = run_suites(rules, evidence.suites)
    return outcomes, evidence.findings(rules, files, outcomes)


def _assemble(
    geography: pd.DataFrame,
    units: UnitsTable,
    sums: PersonSums,
    person_schema: Schema | None,
    unit_schema: Schema | None,
    outcomes: tuple[Outcome, ...],
    scratch: Path | None,
) -> IngestResult:
    histograms: dict[str, sparse.csr_array] = {}
    if person_schema:
        histograms["persons"] = sums.histogram
    if unit_schema:
        summed = HistogramSum(len(geography), unit_schema.n_cells, scratch)
        for start in range(0, len(units.block), _UNITS_AT_ONCE):
            rows = slice(start, start + _UNITS_AT_ONCE)
            is_housing_unit = ~units.is_facility[rows]
            cells = unit_schema.cells({"occupancy": units.occupancy[rows][is_housing_unit]})
            summed.add(units.block[rows][is_housing_unit], cells, np.ones(len(cells), np.int8))
        histograms["units"] = summed.total()
    block_geocode = geography["block_geocode"]
    return IngestResult(
        geography=geography,
        invariants=block_invariants(block_geocode, units.block, units.kind),
        state_totals=state_totals(block_geocode, sums.population),
        histograms=histograms,
        identity=sums.identity,
        unit_block=units.block,
        unit_population=sums.unit_population,
        unit_vacancy=units.vacancy,
        outcomes=outcomes,
    )
