"""Ingest in parts: a large table of persons in several files is counted by several tasks.

What the tasks leave for each other lies in `confidential/ingest/`, in a folder named after the
files as they are now and the version of the code: a run that was killed goes on with what is there,
and with nothing of files that have changed since. The ingest removes it when it has ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...census.inputs import IngestResult
from ...census.partitions import (
    ReadTables,
    check_parts,
    count_part,
    is_kept,
    keep_addresses,
)
from ...ledger.identity import local_files
from ...runs.directory import RunDirectory, code_version
from ...runs.stores import is_url
from ...tables.findings import InputCheck
from ...tables.sources import input_files
from ..paths import state_totals_file
from ..settings import TopdownSettings

PARTED_BYTES = 1 << 26
"""Bytes of the files of persons from which they are counted in parts: some 20 million persons in
Parquet, and less than a minute of work before."""


def n_parts(run: RunDirectory, settings: TopdownSettings) -> int:
    """How many tasks count persons; 0 where one task reads the input as a whole.

    That is a single file, little data, what lies in a store, a declared census, and what has been
    read.
    """
    if settings.is_declared or state_totals_file(run).exists():
        return 0
    path = settings.input.paths()["persons"]
    if is_url(path):
        return 0
    files = [file.path for file in input_files("persons", path) if os.path.isfile(file.path)]
    if len(files) < 2 or sum(map(os.path.getsize, files)) < PARTED_BYTES:
        return 0
    return len(_tables(settings).parts())


def read_addresses_once(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Read geography and units for the parts; False if that was done before."""
    folder = _folder(run, settings)
    if is_kept(folder):
        return False
    for other in folder.parent.glob("*"):
        shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True)
    keep_addresses(folder, _tables(settings))
    return True


def count_part_once(run: RunDirectory, settings: TopdownSettings, part: int) -> bool:
    """Count the persons of a part; False if that was done before."""
    folder = _folder(run, settings)
    if is_kept(folder, part):
        return False
    count_part(folder, _tables(settings), part)
    return True


@contextmanager
def check_of_parts(
    run: RunDirectory, settings: TopdownSettings
) -> Iterator[InputCheck[IngestResult] | None]:
    """The check of the input from its parts, None where they are not all there; then they go."""
    parts = run.confidential / "ingest"
    if not parts.exists():
        yield None
        return
    try:
        yield check_parts(_folder(run, settings), _tables(settings), run.confidential)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _tables(settings: TopdownSettings) -> ReadTables:
    paths, universes = settings.input.paths(), settings.run.universes
    names = {name: path.rpartition("/")[2] for name, path in paths.items()}
    schemas = [
        settings.schema_of(universe) if universe in universes else None
        for universe in ("persons", "units")
    ]
    return ReadTables.of(paths, names, *schemas)


def _folder(run: RunDirectory, settings: TopdownSettings) -> Path:
    seen = json.dumps([local_files(settings), code_version()], sort_keys=True)
    return run.confidential / "ingest" / hashlib.sha256(seen.encode()).hexdigest()[:16]
