"""Ingest of a topdown run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ....validation.outcome import Outcome
from ...census.cef_tables import CefTables
from ...census.census_input import CensusInput, CensusTables
from ...census.histograms import write_histogram
from ...census.invariants import write_state_totals
from ...census.members import completed_units
from ...ledger.identity import store_identity
from ...runs.directory import RunDirectory
from ...runs.settings import refuse_large_delta
from ...runs.stamps import write_frame
from ...tables.columns import temporary_files_in, temporary_folder
from ...tables.findings import Finding, InputCheck, UnreadableInput, accepted_input
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from .earlier import held_answers, write_held

READERS: Mapping[str, type[CensusTables]] = {"cef": CefTables, "declared": CensusTables}
"""By layout of a census, the reader of its tables."""


def reading_of(settings: TopdownSettings) -> CensusTables:
    """The tables of a run, with the structural zeros that its settings add; messages show the names
    of their files."""
    census, paths = settings.compiled_census, settings.input.paths()
    universes = {
        name: replace(universe, zeros=settings.zeros_of(name))
        for name, universe in census.universes.items()
    }
    census = replace(census, universes=universes)
    schemas = {name: settings.schema_of(name) for name in settings.run.universes}
    names = (*census.formats, *census.optional_tables)
    named = {name: paths[name] for name in names if name in paths}
    return READERS[census.declared.layout].of(census, schemas, named)


def completed(reading: CensusTables, folder: Path) -> tuple[CensusTables, tuple[Finding, ...]]:
    """The tables with the columns of units derived from persons, and their contradictions.

    Completed tables are written to the confidential `folder`; see `census.members`. Without such
    tables, or persons among the input, nothing is read.
    """
    findings, files = list[Finding](), {**reading.files}
    for table, members in reading.census.declared.members.items():
        if members.table not in files:
            continue
        target = completed_file(folder, table)
        try:
            check = completed_units(files[table], files[members.table], members.key, target)
            findings += check.findings
            files[table] = check.units
        except UnreadableInput as error:
            findings.append(error.finding)
    return replace(reading, files=files), tuple(findings)


def completed_before(reading: CensusTables, folder: Path) -> CensusTables:
    """The tables with those that `completed` has written to the folder."""
    files = {**reading.files}
    for table in reading.census.declared.members:
        if (target := completed_file(folder, table)).exists():
            files[table] = (replace(files[table][0], path=str(target), format=None),)
    return replace(reading, files=files)


def completed_file(folder: Path, table: str) -> Path:
    """Where a table of units is kept with the columns that follow from their members."""
    return folder / f"{table}_with_members.parquet"


def check_input_of(settings: TopdownSettings) -> InputCheck[CensusInput]:
    """Read and check the tables that the settings name."""
    with temporary_folder() as folder:
        reading, findings = completed(reading_of(settings), Path(folder))
        if findings:
            files = dict.fromkeys(finding.file for finding in findings)
            outcomes = tuple(Outcome("members_tell_their_units", name, False) for name in files)
            return InputCheck(outcomes, findings, None)
        return reading.check()


def public_tables(settings: TopdownSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames of the geography and of the declared public facts, as an ingest writes them.

    Records of the run's universes are read only if they are public by declaration. Raises
    InputRefused as the checks of the input; messages show the tables' file names.
    """
    return reading_of(settings).public_tables(with_counts=not settings.input.confidential)


def public_geography(settings: TopdownSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Inputs of spines: the frames of the geography and, where an area without a public record is
    in no spine, of these records.

    Raises InputRefused as `public_tables` does.
    """
    return reading_of(settings).public_geography(with_counts=not settings.input.confidential)


def refuse_large_deltas(settings: TopdownSettings, n_persons: int) -> None:
    """Refuse a delta of a universe's guarantee as `refuse_large_delta` does."""
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)
        if not budget.is_pure:
            key = f"budget.{universe}.delta"
            refuse_large_delta(settings, budget.delta, n_persons, key)


def ingest_input(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write the geography, the declared invariants and the confidential histograms of a run.

    Keyed digests of the people are stored with the histograms, unless the run is not private. The
    state totals come last: their file marks completion. Raises InputRefused for input that breaks a
    rule; its counts are then in `confidential/findings.json`, and for input that is not
    confidential in the message too.
    """
    with temporary_files_in(run.confidential):
        check = check_input_of(settings)
    result = write_accepted(
        run, settings, check, lambda found: store_identity(run, settings, found.digests)
    )
    write_totals(run, settings, result.totals)


def write_accepted(
    run: RunDirectory,
    settings: TopdownSettings,
    check: InputCheck[CensusInput],
    recognise: Callable[[CensusInput], object],
) -> CensusInput:
    """Write the result of a check of the input, without its totals, and `recognise` it meanwhile;
    raises InputRefused."""
    result = accepted_input(run, settings, check)
    refuse_large_deltas(settings, result.n_records)
    held = held_answers(settings, result)
    geography_file(run).parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as other:
        # Hashing and compressing take about as long, and neither holds the interpreter.
        written = other.submit(_write_histograms, run, result)
        recognise(result)
        written.result()
    write_frame(geography_file(run), result.geography)
    write_frame(invariants_file(run), result.public)
    write_held(run, settings, held)
    return result


def write_totals(run: RunDirectory, settings: TopdownSettings, totals: Mapping[str, Any]) -> None:
    """Write the invariant totals, whose file marks the completion of an ingest."""
    # Where areas are estimated alone, totals above them are no constraints.
    is_dropped = settings.blocks_only and settings.compiled_census.follows_block_rules
    write_state_totals(state_totals_file(run), {} if is_dropped else totals)


def _write_histograms(run: RunDirectory, result: CensusInput) -> None:
    for universe, histogram in result.histograms.items():
        path = run.histogram(universe)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_histogram(path, histogram, result.geography["block_geocode"])
