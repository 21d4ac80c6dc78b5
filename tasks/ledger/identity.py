"""Recognising an input again: keyed digests for the ledger, sizes and times for a continued run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import read_record, write_text
from ..runs.handles import Made, found, made
from ..runs.settings import ProductSettings
from ..tables.sources import input_files
from .digests import INPUT_DIGESTS, InputDigest, digest_of_table
from .elsewhere import store_elsewhere
from .store import open_ledger

INPUT_FILES = "input_files.json"
"""Sizes and times of the input files, in the run's confidential folder."""


def store_identity(
    run: RunDirectory,
    settings: ProductSettings,
    digests_under: Callable[[bytes], Mapping[str, InputDigest]],
) -> None:
    """Remember an input that was read: its files, and, if the run is private, its people.

    `digests_under` computes the digests by kind under a key: the ledger's, and those under which
    other ledgers know people (`elsewhere`). All are kept in the run's confidential folder.
    """
    if settings.is_private:
        ledger = open_ledger(Path(settings.privacy.ledger))
        digests = digests_under(ledger.key())
        store_elsewhere(run, settings, ledger, digests_under)
        stored = {kind: asdict(digest) for kind, digest in digests.items()}
        write_text(run.confidential / INPUT_DIGESTS, json.dumps(stored))
    write_text(run.confidential / INPUT_FILES, json.dumps(local_files(settings)))


def stored_digests(run: RunDirectory) -> dict[str, InputDigest]:
    """The keyed digests that the ingest of this run stored; empty if there are none."""
    try:
        stored = read_record(run.confidential / INPUT_DIGESTS)
    except FileNotFoundError:
        return {}
    return {kind: digest_of_table(digest) for kind, digest in stored.items()}


def digests_to_charge(run: RunDirectory, settings: ProductSettings) -> dict[str, InputDigest]:
    """The keyed digests of the people that a run is charged for.

    Raises InputRefused for a private run whose ingest has stored none, or others than those that
    the manifest tells: without them the ledger would not know whom it charges for.
    """
    stored = stored_digests(run)
    told = run.read_manifest()["input_digests"]
    differs = any(told.get(kind, digest.whole) != digest.whole for kind, digest in stored.items())
    if settings.is_private and (differs or not stored):
        raise InputRefused(
            f"{run.confidential / INPUT_DIGESTS} is {'altered' if stored else 'missing'}, and "
            "without it the ledger cannot know whose data these are; put it back, or start a new "
            "run."
        )
    return stored


def whole_digests(run: RunDirectory) -> dict[str, str]:
    """Of those digests, the one of each whole table: what the manifest keeps of the input."""
    return {kind: digest.whole for kind, digest in stored_digests(run).items()}


def refuse_changed_input(run: RunDirectory, settings: ProductSettings) -> None:
    """Raise InputRefused if an input is no longer the files that the run has read.

    Files are compared by size and time of modification; inputs that are gone, and those on object
    stores, cannot be compared and count as unchanged. A file that was not there is a change.
    """
    file = run.confidential / INPUT_FILES
    if not file.exists():
        return
    known = read_record(file, "remove it and resume the run, if its input is the one that it read")
    now = local_files(settings)
    record = file.relative_to(run.root)
    for path, seen in known.items():
        if now.get(path, seen) != seen:
            raise InputRefused(
                f"{Path(path).name} has changed since this run read it, by {record}; put the old "
                "file back, or start a new run with another --run-dir."
            )
    for path in now.keys() - known.keys() if known else ():
        raise InputRefused(
            f"{Path(path).name} is new among the files of the input since this run read them, "
            f"by {record}; take it out, or start a new run with another --run-dir."
        )


def ingested_once(
    run: RunDirectory,
    settings: ProductSettings,
    path: Path,
    ingest: Callable[[RunDirectory, Any], object],
) -> Made:
    """What an ingest makes, `path` being what it writes last, unless that is there; raises as
    `ingest`, and as `refuse_changed_input` where it is."""
    if path.exists():
        refuse_changed_input(run, settings)
        return found(path, whole_digests(run))
    ingest(run, settings)
    return made(path, whole_digests(run))


def local_files(settings: ProductSettings) -> dict[str, list[int]]:
    """Size and time of modification of the input's local files, those in its folders included."""
    found = {}
    for name in settings.input.files():
        path = Path(name)
        files = [Path(file.path) for file in input_files("input", name)]
        for file in sorted(path.rglob("*")) if path.is_dir() else files:
            if file.is_file():
                status = file.stat()
                found[str(file)] = [status.st_size, status.st_mtime_ns]
    return found
