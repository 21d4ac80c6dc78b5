"""Ingest in parts: a table of persons in a folder or a glob is counted by several tasks.

What the tasks leave for each other lies in `confidential/ingest/`, in a folder named after the
files as they are now and the version of the code: a run that was killed goes on with what is there,
and with nothing of files that have changed since. The ingest removes it when it has ended.
"""

from __future__ import annotations

import hashlib
import json
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
from ...tables.findings import InputCheck
from ...tables.sources import names_several_files
from ..paths import state_totals_file
from ..settings import TopdownSettings

COUNTING_TASKS = 16
"""Tasks that count the persons of a folder or of a glob, whatever is in it."""


def n_counting_tasks(run: RunDirectory, settings: TopdownSettings) -> int:
    """How many tasks count persons; 0 where one task reads the input as a whole.

    That is what the settings name as one file or in a store, a declared census, and what has been
    read. The server sees the number: neither how many files there are nor their sizes decide it.
    """
    if settings.is_declared or state_totals_file(run).exists():
        return 0
    return COUNTING_TASKS if names_several_files(settings.input.paths()["persons"]) else 0


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


def count_parts_once(run: RunDirectory, settings: TopdownSettings, task: int) -> bool:
    """Count the persons of every part that falls to a task, one after the other; False if all of
    that was done before.
    """
    folder, tables = _folder(run, settings), _tables(settings)
    own = range(task, len(tables.parts()), COUNTING_TASKS)
    new = [part for part in own if not is_kept(folder, part)]
    for part in new:
        count_part(folder, tables, part)
    return bool(new)


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
