"""The public files that decide a run's draws, and their comparison with the charged ones.

When a run is charged, the digests of its settings, its spine or tree, its plan and its parameters
are entered in the ledger, and kept in the run as well (`charged.json`), so that every step can
compare its input without asking the ledger. Steps that draw, check or report also compare
with the ledger's own digests.

A continued run hashes all of these again, and all noisy measurements, 17 GB for a nation,
in as many threads as there are processors. A process hashes no file twice.
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
"""Digests of files, and their states then. Threads add to it, so iterate over a
copy, which is made atomically. A list of its items is not: it allocates, the collector may then
run finalizers, and these let other threads run."""


def digests_by_name(run: RunDirectory, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files of a run by name, its settings among them."""
    return {
        path.relative_to(run.root).as_posix(): digest_of(path)
        for path in sorted({run.settings, *files})
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a public file; cached while the file is unchanged."""
    state = state_of_file(path)
    before, digest = _known.get(path, ((), ""))
    if before != state:
        digest = sha256_of_file(path)
        _known[path] = state, digest
    return digest


def digests_of(paths: Iterable[Path]) -> list[str]:
    """The `digest_of` many public files; raises FileNotFoundError for a missing one."""
    paths = list(paths)
    digests_if_there(paths)
    return list(map(digest_of, paths))


def _is_known(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return _known.get(path, ((), ""))[0] == state_of_file(path)
    return False


def know_renamed(before: Path, after: Path) -> None:
    """Keep the cached digests of files in a folder that has been renamed."""
    for path, known in _known.copy().items():
        if path.is_relative_to(before):
            _known[after / path.relative_to(before)] = known


def digests_if_there(paths: Sequence[Path]) -> list[str | None]:
    """SHA-256 of public files, as many at a time as there are processors; None for missing
    ones."""
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
    """Keep in the run the digests that its draws were charged with."""
    write_record(_charged_file(run), dict(charged_files))


def refuse_altered(run: RunDirectory, charged_files: Mapping[str, str] | None = None) -> None:
    """Raise InputRefused if a file that decides the draws differs from the charged one.

    `charged_files` are the ledger's, by default the run's own copy; a run without a charge has
    none.
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

    Charged files decide the draws; later files have no effect on them.
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
