"""Ingest of a topdown run: from the settings' tables to the run directory's artifacts."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ...census.declared_input import (
    DeclaredInput,
    check_declared_input,
    multiples_frame,
    multiples_of,
)
from ...census.histograms import write_histogram
from ...census.identity import input_digests
from ...census.inputs import IngestResult, read_addresses
from ...census.invariants import write_invariants, write_state_totals
from ...ledger.digests import InputDigest, input_digest
from ...ledger.identity import store_identity
from ...ledger.recognition import people_digests
from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ...runs.settings import refuse_large_delta
from ...runs.stamps import write_parquet
from ...tables.findings import InputCheck
from ...tables.outcomes import write_input_outcomes
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from ..workload.state_totals import declares_state_totals
from .earlier import HeldAnswers, held_answers, write_held
from .parts import check_of_parts
from .reading import IngestedInput, file_names, own_tables, reading_of


def check_input_of(
    settings: TopdownSettings, scratch: Path | None = None
) -> InputCheck[IngestedInput]:
    """Read and check the tables that the settings name; messages show their file names.

    `scratch` is the folder for temporary files of confidential rows.
    """
    return reading_of(settings).check(scratch)


def public_tables(settings: TopdownSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames of the geography and of what is declared to be public, as an ingest writes them.

    Of the universes of the run no record is read that is not public by declaration: of the census
    of 2020 only units, of a declared census the table of areas, and the records that bounds are
    per. Raises InputRefused as the checks of the input; messages show the tables' file names.
    """
    paths, with_counts = settings.input.paths(), not settings.input.confidential
    if not settings.is_declared:
        return read_addresses(
            units=paths["units"],
            geography=paths["geography"],
            names=file_names(paths),
            with_counts=with_counts,
        )
    census = settings.compiled_census
    bounds = {
        (name, number): bound
        for name in settings.run.universes
        for number, bound in enumerate(census.universes[name].bounds)
    }
    # What these records are held to themselves is a matter of their own run.
    alone = {
        name: replace(universe, bounds=(), relations=(), held=())
        for name, universe in census.universes.items()
    }
    per = {bound.per: census.universes[bound.per].schema for bound in bounds.values()}
    check = check_declared_input(replace(census, universes=alone), per, own_tables(settings))
    found = check.accepted(with_counts=with_counts)
    multiples = {
        (name, number): multiples_of(
            bound, settings.schema_of(name), per[bound.per], found.histograms[bound.per]
        )
        for (name, number), bound in bounds.items()
    }
    return found.areas.frame, multiples_frame(replace(found, multiples=multiples))


def public_geography(settings: TopdownSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What spines are built of: the frames of the geography and of the addresses of the census of
    2020, whose numbers are declared to be public; of a declared census the table of areas alone,
    and no invariants.

    Raises InputRefused as `public_tables` does.
    """
    if not settings.is_declared:
        return public_tables(settings)
    census, table = settings.compiled_census, settings.compiled_census.areas.table
    check = check_declared_input(census, {}, {table: settings.input.paths()[table]})
    found = check.accepted(with_counts=not settings.input.confidential)
    return found.areas.frame, pd.DataFrame()


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
    with check_of_parts(run, settings) as parts:
        check = parts or check_input_of(settings, run.confidential)
        _write_ingested(run, settings, check)


def _write_ingested(
    run: RunDirectory,
    settings: TopdownSettings,
    check: InputCheck[IngestedInput],
) -> None:
    """Write what a check of the input has found."""
    write_input_outcomes(run, check.outcomes, check.findings, stamp=settings.stamp)
    result = check.accepted(with_counts=not settings.input.confidential)
    refuse_large_deltas(settings, largest_universe(result))
    if isinstance(result, DeclaredInput):
        _write_declared(run, settings, result, held_answers(settings, result))
        return
    geography_file(run).parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as other:
        # Hashing and compressing take about as long, and neither holds the interpreter.
        written = other.submit(_write_histograms, run, result)
        store_identity(run, settings, lambda key: input_digests(result, key))
        written.result()
    write_parquet(geography_file(run), pa.Table.from_pandas(result.geography, preserve_index=False))
    write_invariants(invariants_file(run), result.invariants)
    totals = result.state_totals if declares_state_totals(settings) else {}
    write_state_totals(state_totals_file(run), totals)


def _write_histograms(run: RunDirectory, result: IngestResult) -> None:
    for universe, histogram in result.histograms.items():
        path = run.histogram(universe)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_histogram(path, histogram, result.geography["block_geocode"])


def largest_universe(result: IngestedInput) -> int:
    """The number of persons, or of the records of the largest universe of a declared census."""
    if isinstance(result, DeclaredInput):
        return max(int(histogram.sum()) for histogram in result.histograms.values())
    return sum(result.state_totals.values())


def _write_declared(
    run: RunDirectory, settings: TopdownSettings, result: DeclaredInput, held: HeldAnswers
) -> None:
    """Write what the ingest of a declared census found; the exact totals come last."""
    store_identity(run, settings, lambda key: declared_digests(result, key))
    geography_file(run).parent.mkdir(parents=True, exist_ok=True)
    paths = result.areas.frame["block_geocode"].to_numpy()
    for universe, histogram in result.histograms.items():
        run.histogram(universe).parent.mkdir(parents=True, exist_ok=True)
        write_histogram(run.histogram(universe), histogram, paths)
    for path, frame in (
        (geography_file(run), result.areas.frame),
        (invariants_file(run), multiples_frame(result)),
    ):
        write_parquet(path, pa.Table.from_pandas(frame, preserve_index=False))
    write_held(run, settings, held)
    totals = {
        universe: {
            name: {path: values.tolist() for path, values in answers.items()}
            for name, answers in found.items()
        }
        for universe, found in result.totals.items()
    }
    with replacing(state_totals_file(run)) as part:
        part.write_text(json.dumps(totals, indent=1) + "\n", encoding="utf-8")


def declared_digests(result: DeclaredInput, key: bytes) -> dict[str, InputDigest]:
    """Keyed digests by which the ledger recognises the records of a declared census again.

    The digest of a whole universe is that of its cells by path, which older ledgers know; the
    others are of its raw columns.
    """
    levels = [units.number for units in result.areas.units.values()]
    paths = result.areas.frame["block_geocode"].to_numpy(dtype=object).astype(str)
    digests = {}
    for universe, histogram in result.histograms.items():
        rows = np.repeat(np.arange(len(paths)), np.diff(histogram.indptr))
        columns = {"area": paths[rows], "cell": histogram.indices, "records": histogram.data}
        people = people_digests(result.raw[universe], levels, key)
        digests[universe] = input_digest(universe, columns, key).recognised_by(people)
    return digests
