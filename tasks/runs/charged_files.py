"""The public files that decide what a run draws, and whether they are still as they were charged.

When a run is charged, the digests of its settings, its spine or tree, its plan and its parameters
are entered in the ledger, and kept in the run beside them (`charged.json`), so that every step can
compare what it reads without asking the ledger. Whatever draws, checks or reports also compares
with the ledger's own.

A run that goes on has all of these to hash again, and all noisy measurements, which of a nation are
17 GB: as many at a time as there are processors. What a process has hashed it does not hash again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from .directory import RunDirectory
from .errors import InputRefused
from .files import FileState, sha256_of_file, state_of_file, write_record
from .names import below

CHARGED = "spine/charged.json"
"""File of a run that has the digests that it was charged with."""

_known: dict[Path, tuple[FileState, str]] = {}
"""Digests of files, and the states that they had. Threads add to it: whoever goes through it takes
a copy, which is made in one piece. A list of its items is not: it allocates, the collector may then
run finalizers, and these let other threads run."""


def digests_by_name(run: RunDirectory, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files of a run by name, its settings among them."""
    return {
        path.relative_to(run.root).as_posix(): digest_of(path)
        for path in sorted({run.settings, *files})
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a public file; known while the file stands unchanged."""
    state = state_of_file(path)
    before, digest = _known.get(path, ((), ""))
    if before != state:
        digest = sha256_of_file(path)
        _known[path] = state, digest
    return digest


def digests_of(paths: Iterable[Path]) -> list[str]:
    """The `digest_of` many public files; raises FileNotFoundError for one that is not there."""
    paths = list(paths)
    digests_if_there(paths)
    return list(map(digest_of, paths))


def _is_known(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return _known.get(path, ((), ""))[0] == state_of_file(path)
    return False


def know_renamed(before: Path, after: Path) -> None:
    """Know the files in a folder that has been renamed: they stand as they were, but for where."""
    for path, known in _known.copy().items():
        if path.is_relative_to(before):
            _known[after / path.relative_to(before)] = known


def digests_if_there(paths: Sequence[Path]) -> list[str | None]:
    """SHA-256 of public files, as many at a time as there are processors; None of what there is
    not."""
    if sum(not _is_known(path) for path in paths) < 2:
        return list(map(_digest_if_there, paths))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(_digest_if_there, paths))


def _digest_if_there(path: Path) -> str | None:
    try:
        return digest_of(path)
    except FileNotFoundError:
        return None


def write_charged(run: RunDirectory, charged_files: Mapping[str, str]) -> None:
    """Keep in the run what its draws were charged with."""
    write_record(_charged_file(run), dict(charged_files))


def refuse_altered(run: RunDirectory, charged_files: Mapping[str, str] | None = None) -> None:
    """Raise InputRefused if a file that decides the draws is not the one that was charged.

    `charged_files` are those of the ledger, by default those kept in the run; a run that has not
    been charged has none.
    """
    charged = _charged(run) if charged_files is None else charged_files
    paths = [_path_of(run, name) for name in charged]
    found = digests_if_there(paths)
    for path, digest, wanted in zip(paths, found, charged.values(), strict=True):
        if digest is None:
            raise InputRefused(
                f"{path} is missing, and the run was charged with it; put it back, or start a "
                "new run."
            )
        if digest != wanted:
            raise InputRefused(
                f"{path} has been edited since the run was charged; put it back, or start a "
                "new run."
            )


def is_left_out(spines: Path, name: str) -> bool:
    """Whether a run was charged without a file `name` of the folder that has its spines.

    What was charged decides what is drawn; a file that came later decides nothing.
    """
    charged = _charged(RunDirectory(spines.parent))
    return bool(charged) and f"{spines.name}/{name}" not in charged


def _path_of(run: RunDirectory, name: str) -> Path:
    """The path of a file of a run, as `digests_by_name` names it; raises ValueError for another."""
    return below(run.root, *name.split("/"))


def _charged(run: RunDirectory) -> dict[str, str]:
    try:
        charged = json.loads(_charged_file(run).read_text(encoding="utf-8"))
        for name in charged:
            _path_of(run, name)
        return charged
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        raise InputRefused(
            f"{_charged_file(run)} cannot be read; remove it and resume the run, which makes it "
            "again from the ledger."
        ) from None


def _charged_file(run: RunDirectory) -> Path:
    return run.root / CHARGED
