"""Ingest in parts: tables of records in a folder or a glob are counted by several tasks.

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

from ...census.partitions import check_parts, count_part, is_kept, keep_before, parts_of
from ...ledger.identity import local_files
from ...runs.directory import RunDirectory, code_version
from ...tables.findings import InputCheck, refusal, write_findings
from ...tables.sources import names_several_files
from ..paths import state_totals_file
from ..settings import TopdownSettings
from .reading import Ahead, IngestedInput, as_completed, completed, reading_of, record_tables

COUNTING_TASKS = 16
"""Tasks that count the records of a folder or of a glob, whatever is in it."""


def n_counting_tasks(run: RunDirectory, settings: TopdownSettings) -> int:
    """How many tasks count records; 0 where one task reads the input as a whole.

    That is what the settings name as one file or in a store, and what has been read. The server
    sees the number: neither how many files there are nor their sizes decide it.
    """
    if state_totals_file(run).exists():
        return 0
    paths = settings.input.paths()
    in_several = any(names_several_files(paths[table]) for table in record_tables(settings))
    return COUNTING_TASKS if in_several else 0


def read_before_once(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Read the tables that records refer to, for the parts; False if that was done before."""
    folder = _folder(run, settings)
    if is_kept(folder):
        return False
    for other in folder.parent.glob("*"):
        shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True)
    reading, findings = completed(reading_of(settings), folder)
    if findings:
        write_findings(run.confidential / "findings.json", findings)
        shutil.rmtree(folder, ignore_errors=True)
        raise refusal(findings, with_counts=not settings.input.confidential)
    keep_before(folder, reading)
    return True


def count_parts_once(run: RunDirectory, settings: TopdownSettings, task: int) -> bool:
    """Count the records of every part that falls to a task, one after the other; False if all of
    that was done before.
    """
    folder = _folder(run, settings)
    reading = as_completed(reading_of(settings), folder)
    own = range(task, len(parts_of(reading)), COUNTING_TASKS)
    new = [part for part in own if not is_kept(folder, part)]
    for part in new:
        count_part(folder, reading, part)
    return bool(new)


@contextmanager
def check_of_parts(
    run: RunDirectory, settings: TopdownSettings, ahead: Ahead | None = None
) -> Iterator[InputCheck[IngestedInput] | None]:
    """The check of the input from its parts, None where they are not all there; then they go."""
    parts = run.confidential / "ingest"
    if not parts.exists():
        yield None
        return
    try:
        folder = _folder(run, settings)
        reading = as_completed(reading_of(settings, ahead), folder)
        yield check_parts(folder, reading, run.confidential)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _folder(run: RunDirectory, settings: TopdownSettings) -> Path:
    seen = json.dumps([local_files(settings), code_version()], sort_keys=True)
    return run.confidential / "ingest" / hashlib.sha256(seen.encode()).hexdigest()[:16]
