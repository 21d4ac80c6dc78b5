"""Ingest of a topdown run: from the settings' tables to the run directory's artifacts.

Shares of a large input are read by several tasks. They exchange files in `confidential/ingest/`,
in a folder named after the state of the input files and of the code: a run that was killed goes on
with them, and ignores those of an earlier state. The ingest removes them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ....validation.outcome import Outcome
from ...census.cef_tables import CefTables
from ...census.census import Census
from ...census.census_input import CensusInput, CensusTables
from ...census.histograms import write_histogram
from ...census.invariants import write_state_totals
from ...census.members import completed_units
from ...census.records import CodeTally
from ...census.shares import check_shares, count_share, read_referred, read_share
from ...ledger.identity import Digests, local_files, store_identity
from ...ledger.store import open_ledger
from ...runs.arrays import files_of
from ...runs.directory import RunDirectory, code_version
from ...runs.objects import write_object
from ...runs.settings import refuse_large_delta
from ...runs.stamps import write_frame
from ...tables.findings import Finding, InputCheck, UnreadableInput, accepted_input
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from .earlier import held_answers, write_held

READERS: Mapping[str, type[CensusTables]] = {"cef": CefTables, "declared": CensusTables}
"""By layout of a census, the reader of its tables."""

Ahead = Callable[[CensusInput], object]
"""Called with the result of a check during its judgement; it must not keep any of it."""


def run_census(settings: TopdownSettings) -> Census:
    """The census of a run, with the structural zeros that its settings add."""
    census = settings.compiled_census
    universes = {
        name: replace(universe, zeros=settings.zeros_of(name))
        for name, universe in census.universes.items()
    }
    return replace(census, universes=universes)


def reading_of(
    settings: TopdownSettings, ahead: Ahead | None = None, codes: CodeTally | None = None
) -> CensusTables:
    """The tables of a run; messages show their file names. `ahead` is called with the result of a
    check during its judgement; `codes` get the values of columns with declared codes."""
    census, paths = run_census(settings), settings.input.paths()
    schemas = {name: settings.schema_of(name) for name in settings.run.universes}
    named = [name for name in (*census.formats, *census.optional_tables) if name in paths]
    tables = READERS[census.layout].of(census, schemas, {name: paths[name] for name in named})
    return replace(tables, ahead=ahead, codes=codes)


def completed(reading: CensusTables, folder: Path) -> tuple[CensusTables, tuple[Finding, ...]]:
    """The tables with the columns of units derived from persons, and their contradictions.

    Completed tables are written to the confidential `folder`; see `census.members`. Without such
    tables, or persons among the input, nothing is read.
    """
    findings, files = list[Finding](), {**reading.files}
    for table, members in reading.census.members.items():
        if members.table not in files:
            continue
        target = _completed_file(folder, table)
        try:
            check = completed_units(files[table], files[members.table], members.key, target)
            findings += check.findings
            files[table] = check.units
        except UnreadableInput as error:
            findings.append(error.finding)
    return replace(reading, files=files), tuple(findings)


def _completed_before(reading: CensusTables, folder: Path) -> CensusTables:
    """The tables with those that `completed` has written to the folder."""
    files = {**reading.files}
    for table in reading.census.members:
        if (target := _completed_file(folder, table)).exists():
            files[table] = (replace(files[table][0], path=str(target), format=None),)
    return replace(reading, files=files)


def _completed_file(folder: Path, table: str) -> Path:
    return folder / f"{table}_with_members.parquet"


def check_with_notes(settings: TopdownSettings) -> InputCheck[CensusInput]:
    """Read and check the tables as `check_input_of`, with notes on codes that look misspelt."""
    return check_input_of(settings, codes=CodeTally())


def check_input_of(
    settings: TopdownSettings,
    scratch: Path | None = None,
    ahead: Ahead | None = None,
    codes: CodeTally | None = None,
) -> InputCheck[CensusInput]:
    """Read and check the tables that the settings name; messages show their file names.

    `scratch` is the folder for temporary files of confidential rows; see `reading_of`.
    """
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch) as folder:
        reading, findings = completed(reading_of(settings, ahead, codes), Path(folder))
        if findings:
            files = dict.fromkeys(finding.file for finding in findings)
            outcomes = tuple(Outcome("members_tell_their_units", name, False) for name in files)
            return InputCheck(outcomes, findings, None)
        return reading.check(scratch)


AREAS_PER_SHARE, MOST_SHARES = 1 << 14, 64
BYTES_OF_AREA = 1 << 8
"""Typical bytes of an area in a text."""
REFERRED = "referred"


def n_shares(run: RunDirectory, settings: TopdownSettings) -> int:
    """Number of tasks that count the records; 1 where one task reads the input, or has read it.

    The server sees the number: it follows from the size of the table of areas, which is public, not
    from the files of records.
    """
    if state_totals_file(run).exists():
        return 1
    files = reading_of(settings).files[settings.compiled_census.geography.table]
    n_areas = sum(map(_n_areas, (Path(file.path) for file in files)))
    return max(1, min(n_areas // AREAS_PER_SHARE, MOST_SHARES))


def _n_areas(file: Path) -> int:
    """About the number of areas in a local file, 0 for any other."""
    if not file.is_file():
        return 0
    with suppress(pa.ArrowInvalid):
        return int(pq.read_metadata(file).num_rows)
    return file.stat().st_size // BYTES_OF_AREA


def _shares_folder(run: RunDirectory, settings: TopdownSettings) -> Path:
    state = json.dumps([local_files(settings), code_version()], sort_keys=True)
    return run.confidential / "ingest" / hashlib.sha256(state.encode()).hexdigest()[:16]


def read_referred_once(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Read the tables that records refer to, for the tasks that count records; False if that was
    done before, or if the tables are refused, as the ingest then says."""
    folder = _shares_folder(run, settings)
    if _is_written(folder / REFERRED):
        return False
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    tables, findings = completed(reading_of(settings), folder)
    with suppress(UnreadableInput):
        if not findings:
            write_object(folder / REFERRED, read_referred(tables, folder))
    return _is_written(folder / REFERRED)


def count_share_once(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> bool:
    """Count a share of the records; False if that was done before, or if a table is refused."""
    folder = _shares_folder(run, settings)
    stem = folder / f"{number}"
    if _is_written(stem) or not _is_written(folder / REFERRED):
        return False
    tables, referred = (
        _completed_before(reading_of(settings), folder),
        read_share(folder / REFERRED),
    )
    with suppress(UnreadableInput):
        write_object(stem, count_share(tables, referred, (number, of), folder))
    return _is_written(stem)


def _is_written(stem: Path) -> bool:
    return files_of(stem)[0].exists()


def _check_of_shares(
    run: RunDirectory, settings: TopdownSettings, ahead: Ahead
) -> InputCheck[CensusInput] | None:
    """The check of an input from its shares; None unless all were counted."""
    folder = _shares_folder(run, settings)
    stems = [folder / f"{number}" for number in range(n_shares(run, settings))]
    if not all(map(_is_written, stems)):
        return None
    tables = _completed_before(reading_of(settings, ahead), folder)
    referred, shares = read_share(folder / REFERRED), [read_share(stem) for stem in stems]
    return check_shares(tables, referred, shares, run.confidential)


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

    Where all shares of the records were counted they are added up; else the tables are read. Keyed
    digests of the people are stored with the histograms, unless the run is not private. The state
    totals come last: their file marks completion. Raises InputRefused for input that breaks a rule;
    its counts are then in `confidential/findings.json`, and for input that is not confidential in
    the message too.
    """
    own = dict[bytes, Digests]()

    def recognise(counted: CensusInput) -> None:
        # Input that is refused in the end makes no ledger.
        if settings.is_private and Path(settings.privacy.ledger).exists():
            key = open_ledger(Path(settings.privacy.ledger)).key()
            own[key] = counted.digests(key)

    try:
        check = _check_of_shares(run, settings, recognise)
        check = check or check_input_of(settings, run.confidential, recognise)
        _write_ingested(run, settings, check, own)
    finally:
        shutil.rmtree(run.confidential / "ingest", ignore_errors=True)


def _write_ingested(
    run: RunDirectory,
    settings: TopdownSettings,
    check: InputCheck[CensusInput],
    own: Mapping[bytes, Digests],
) -> None:
    """Write the result of a check of the input; `own` are digests of its people by their key."""
    result = accepted_input(run, settings, check)
    refuse_large_deltas(settings, result.n_records)
    held = held_answers(settings, result)
    geography_file(run).parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as other:
        # Hashing and compressing take about as long, and neither holds the interpreter.
        written = other.submit(_write_histograms, run, result)
        store_identity(run, settings, lambda key: own.get(key) or result.digests(key))
        written.result()
    write_frame(geography_file(run), result.geography)
    write_frame(invariants_file(run), result.public)
    write_held(run, settings, held)
    # Where areas are estimated alone, totals above them are no constraints.
    is_dropped = settings.blocks_only and settings.compiled_census.area_rules.totals_need_topdown
    write_state_totals(state_totals_file(run), {} if is_dropped else result.totals)


def _write_histograms(run: RunDirectory, result: CensusInput) -> None:
    for universe, histogram in result.histograms.items():
        path = run.histogram(universe)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_histogram(path, histogram, result.geography["block_geocode"])
