"""The steps that read the input of a topdown run: one, or several for a large input, which read
shares of its records and compute shares of the digests of its people.

Several tasks exchange files in `confidential/ingest/`, in a folder named after the state of the
input files and of the code: a run that was killed goes on with them, and ignores those of an
earlier state. The last task removes them. Where any are missing, it reads the input as a whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.census_input import CensusInput, read_share
from ...ledger.identity import (
    Digests,
    keys_of,
    local_files,
    refuse_changed_input,
    store_identity,
    whole_digests,
)
from ...ledger.recognition import (
    ColumnDigests,
    InputDigest,
    RecordColumn,
    column_digests,
    numbers_of_levels,
)
from ...runs.directory import RunDirectory, code_version
from ...runs.errors import InputRefused
from ...runs.handles import Made, created, reused
from ...runs.objects import files_of, read_object, write_object
from ...runs.steps import step
from ...tables.columns import temporary_files_in
from ...tables.findings import UnreadableInput
from ..paths import geography_file, state_totals_file
from ..settings import TopdownSettings
from .ingest import (
    completed,
    completed_before,
    ingest_input,
    reading_of,
    write_accepted,
    write_totals,
)

REFERRED, ACCEPTED = "referred", "accepted"
"""Files of the tables that records refer to, and of an accepted input."""

AREAS_PER_SHARE, MOST_SHARES = 1 << 14, 64
BYTES_OF_AREA = 1 << 8
"""Typical bytes of an area in a text."""


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


@step("read referred tables", TopdownSettings, run_name="ingest-referred")
def read_referred(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Read the tables that records refer to, for the tasks that count records; those that are
    refused are left to the ingest."""
    folder = _shares_folder(run, settings)
    if _is_written(folder / REFERRED):
        return reused(run.confidential)
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    with suppress(UnreadableInput), temporary_files_in(folder):
        tables, findings = completed(reading_of(settings), folder)
        if not findings:
            write_object(folder / REFERRED, tables.read_referred())
    return Made(run.confidential, reused=not _is_written(folder / REFERRED))


@step("count records", TopdownSettings, run_name="ingest-records-{number}")
def count_records(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Count a share of the records, unless a table is refused."""
    folder = _shares_folder(run, settings)
    stem = folder / f"{number}"
    if _is_written(stem) or not _is_written(folder / REFERRED):
        return reused(run.confidential)
    tables = completed_before(reading_of(settings), folder)
    with suppress(UnreadableInput), temporary_files_in(folder):
        write_object(stem, tables.count_share(read_share(folder / REFERRED), (number, of)))
    return Made(run.confidential, reused=not _is_written(stem))


def _is_written(stem: Path) -> bool:
    return files_of(stem)[0].exists()


@dataclass(frozen=True, eq=False)
class Accepted:
    """What is left to write of an accepted input; confidential.

    columns : by universe the raw columns by which its records are recognised.
    numbers : the geounits of areas, as `numbers_of_levels` gives them.
    whole : by fingerprint of a key and universe, the digest of the universe's cells.
    totals : answers that are released exactly.
    """

    columns: Mapping[str, Sequence[RecordColumn]]
    numbers: Sequence[np.ndarray]
    whole: Mapping[str, Mapping[str, InputDigest]]
    totals: Mapping[str, Any]

    @classmethod
    def read(cls, stem: Path) -> Accepted:
        """Read the file of an accepted input."""
        types = {kind.__name__: kind for kind in (Accepted, InputDigest, RecordColumn)}
        found: Accepted = read_object(stem, types)
        return found

    @property
    def places(self) -> list[tuple[str, int]]:
        """Universe and position of every column."""
        return [(name, at) for name, own in self.columns.items() for at in range(len(own))]


@step("check records", TopdownSettings, run_name="ingest-check")
def check_records(run: RunDirectory, settings: TopdownSettings, of: int) -> Made:
    """Check the input from its shares and write the result, except for digests of its people and
    its totals, unless a table is refused. Raises InputRefused."""
    folder = _shares_folder(run, settings)
    stems = [folder / f"{number}" for number in range(of)]
    if _is_written(folder / ACCEPTED) or not all(map(_is_written, stems)):
        return reused(run.confidential)
    tables, whole = completed_before(reading_of(settings), folder), dict[str, Digests]()

    def recognise(found: CensusInput) -> None:
        for fingerprint, key in _keys(settings).items():
            whole[fingerprint] = {name: digest(key) for name, digest in found.whole.items()}

    with temporary_files_in(run.confidential):
        referred, *counted = map(read_share, (folder / REFERRED, *stems))
        check = tables.check_shares(referred, counted)
    try:
        result = write_accepted(run, settings, check, recognise)
    except InputRefused:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    columns = result.recognised_columns() if settings.is_private else {}
    numbers = numbers_of_levels(result.levels(), len(result.areas))
    write_object(folder / ACCEPTED, Accepted(columns, numbers, whole, result.totals))
    return created(run.confidential)


@step("recognise people", TopdownSettings, run_name="ingest-digests-{number}")
def recognise_people(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Compute digests of a share of the columns of people, if the input was accepted."""
    folder = _shares_folder(run, settings)
    stem = folder / f"digests-{number}"
    if _is_written(stem) or not _is_written(folder / ACCEPTED):
        return reused(run.confidential)
    accepted = Accepted.read(folder / ACCEPTED)
    places, keys = accepted.places[number::of], _keys(settings)
    found = {
        (fingerprint, *place): _digests_at(accepted, place, keys[fingerprint])
        for fingerprint in accepted.whole.keys() & keys.keys()
        for place in places
    }
    write_object(stem, found)
    return created(run.confidential)


def _keys(settings: TopdownSettings) -> dict[str, bytes]:
    return keys_of(settings) if settings.is_private else {}


def _digests_at(accepted: Accepted, place: tuple[str, int], key: bytes) -> ColumnDigests:
    name, at = place
    return column_digests(accepted.columns[name][at], accepted.numbers, key)


@step("ingest", TopdownSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check the tables, and write geography, invariants and confidential block histograms, or what
    other tasks have left to write."""
    is_there = state_totals_file(run).exists()
    if is_there:
        refuse_changed_input(run, settings)
    elif not _write_identity(run, settings):
        ingest_input(run, settings)
    return Made(geography_file(run), is_there, whole_digests(run))


def _write_identity(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Write the digests of the people of an accepted input, and its totals; False if there is none,
    or if another ledger has been made since."""
    folder = _shares_folder(run, settings)
    try:
        if not _is_written(folder / ACCEPTED):
            return False
        accepted, keys = Accepted.read(folder / ACCEPTED), _keys(settings)
        if keys.keys() - accepted.whole.keys():
            return False
        found: dict[tuple[str, str, int], ColumnDigests] = {}
        for file in folder.glob("digests-*.json"):
            found |= read_object(file.with_suffix(""), {})

        def digests(key: bytes) -> Digests:
            (fingerprint,) = (name for name, own in keys.items() if own == key)
            of_universe: dict[str, list[ColumnDigests]] = {name: [] for name in accepted.columns}
            for name, at in accepted.places:
                own = found.get((fingerprint, name, at))
                of_universe[name].append(own or _digests_at(accepted, (name, at), key))
            return {
                name: digest.recognised_by(of_universe[name], key)
                for name, digest in accepted.whole[fingerprint].items()
            }

        store_identity(run, settings, digests)
        write_totals(run, settings, accepted.totals)
        return True
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
