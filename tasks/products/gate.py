"""The gate that every product's release passes: its checks, and the step by which it appears."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq

from ...validation.outcome import CHECKS_FILE, Outcome, write_outcomes
from ..runs.directory import RunDirectory
from ..runs.errors import CheckFailed
from ..runs.files import NOT_PRIVATE, STAMP_KEY, replacing
from ..runs.handles import Made, found, made
from ..runs.settings import ProductSettings

Settings = TypeVar("Settings", bound=ProductSettings)


def accept(
    run: RunDirectory, settings: ProductSettings, outcomes: Sequence[Outcome]
) -> tuple[Outcome, ...]:
    """Write the public outcomes of a run's checks, and return them if all have passed.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    write_outcomes(outcomes, run.checks, stamp=None if settings.is_private else NOT_PRIVATE)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        first = failed[0]
        raise CheckFailed(
            f"The check '{first.name.replace('_', ' ')}' of {first.subject} failed "
            f"({len(failed)} of {len(outcomes)} did) and the release is withheld: {first.detail}; "
            f"see {run.checks.name}/{CHECKS_FILE} in the run directory."
        )
    return tuple(outcomes)


def checked(
    run: RunDirectory,
    settings: Settings,
    check_run: Callable[[RunDirectory, Settings], Sequence[Outcome]],
) -> Made:
    """The outcomes of a run's checks, made by `check_run` unless it is released already."""
    path = run.checks / CHECKS_FILE
    if run.release.exists():
        return found(path)
    return made(path, {"checks passed": len(check_run(run, settings))})


def release_checked(run: RunDirectory) -> None:
    """Give the checked release its name in one step."""
    os.rename(run.unchecked_release, run.release)


def released(run: RunDirectory, complete: Callable[[], None] = lambda: None) -> Made:
    """The release, unless there is one already; `complete` adds what only checked ones have."""
    if run.release.exists():
        return found(run.release)
    complete()
    release_checked(run)
    return made(run.release)


def reported(
    run: RunDirectory, settings: ProductSettings, write_report: Callable[[], Path]
) -> Made:
    """The report that `write_report` writes, the last file of a run: all are stamped if need be."""
    path = write_report()
    if not settings.is_private:
        stamp_files(run)
    return made(path)


def stamp_files(run: RunDirectory) -> None:
    """Put the stamp of a run that is not private on those of its Parquet files that lack it."""
    for path in run.root.rglob("*.parquet"):
        metadata = pq.read_schema(path).metadata or {}
        if metadata.get(STAMP_KEY.encode()) != NOT_PRIVATE.encode():
            stamped = {**metadata, STAMP_KEY.encode(): NOT_PRIVATE.encode()}
            with replacing(path) as part, pq.ParquetFile(path) as file:
                schema = file.schema_arrow.with_metadata(stamped)
                with pq.ParquetWriter(part, schema, compression="zstd") as writer:
                    for number in range(file.num_row_groups):
                        row_group = file.read_row_group(number)
                        writer.write_table(row_group.replace_schema_metadata(stamped))


CERTIFICATE = "certificate"
