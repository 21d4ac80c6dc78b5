"""Ingest of a topdown run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ....validation.outcome import Outcome
from ...census.code_notes import CodeTally
from ...census.histograms import write_histogram
from ...census.invariants import write_state_totals
from ...census.partitions import check_whole
from ...ledger.identity import Digests, store_identity
from ...ledger.store import open_ledger
from ...runs.directory import RunDirectory
from ...runs.settings import refuse_large_delta
from ...runs.stamps import write_frame
from ...tables.findings import InputCheck, accepted_input
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from .earlier import held_answers, write_held
from .reading import Ahead, IngestedInput, check_of_parts, completed, reading_of


def check_with_notes(settings: TopdownSettings) -> InputCheck[IngestedInput]:
    """Read and check the tables as `check_input_of`, with notes on codes that look misspelt."""
    return check_input_of(settings, codes=CodeTally())


def check_input_of(
    settings: TopdownSettings,
    scratch: Path | None = None,
    ahead: Ahead | None = None,
    codes: CodeTally | None = None,
) -> InputCheck[IngestedInput]:
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
        return check_whole(reading, scratch)


def public_tables(settings: TopdownSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames of the geography and of what is declared to be public, as an ingest writes them.

    Of the universes of the run no record is read that is not public by declaration. Raises
    InputRefused as the checks of the input; messages show the tables' file names.
    """
    return reading_of(settings).public_tables(with_counts=not settings.input.confidential)


def public_geography(settings: TopdownSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What spines are built of: the frames of the geography and, where an area without a public
    record is in no spine, of these records.

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

    Where records were counted in parts, these are put together, else the tables are read. Keyed
    digests of the people are stored with the histograms, unless the run is not private. The
    state totals come last: where they are, all is. Raises InputRefused for input that breaks a
    rule; its counts are then in `confidential/findings.json`, and for input that is not
    confidential in the message too.
    """
    own = dict[bytes, Digests]()

    def recognise(counted: IngestedInput) -> None:
        # Input that is refused in the end makes no ledger.
        if settings.is_private and Path(settings.privacy.ledger).exists():
            key = open_ledger(Path(settings.privacy.ledger)).key()
            own[key] = counted.digests(key)

    with check_of_parts(run, settings, recognise) as parts:
        check = parts or check_input_of(settings, run.confidential, recognise)
        _write_ingested(run, settings, check, own)


def _write_ingested(
    run: RunDirectory,
    settings: TopdownSettings,
    check: InputCheck[IngestedInput],
    own: Mapping[bytes, Digests],
) -> None:
    """Write what a check of the input has found; `own` are digests of its people by their key."""
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
    totals = result.exact(areas_alone=settings.blocks_only)
    write_state_totals(state_totals_file(run), totals)


def _write_histograms(run: RunDirectory, result: IngestedInput) -> None:
    for universe, histogram in result.histograms.items():
        path = run.histogram(universe)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_histogram(path, histogram, result.geography["block_geocode"])
