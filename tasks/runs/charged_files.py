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
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .directory import RunDirectory
from .errors import InputRefused
from .files import cache_unchanged, sha256_of_file, write_record
from .names import below

CHARGED = "spine/charged.json"
"""File of a run that has the digests that it was charged with."""


def digests_by_name(run: RunDirectory, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files of a run by name, its settings among them."""
    return {
        path.relative_to(run.root).as_posix(): digest_of(path)
        for path in sorted({run.settings, *files})
    }


@cache_unchanged(lambda path: path, at_most=1 << 17)
def digest_of(path: Path) -> str:
    """SHA-256 of a public file; cached while the file is unchanged."""
    return sha256_of_file(path)


def digests_of(paths: Iterable[Path]) -> list[str]:
    """The `digest_of` many public files; raises FileNotFoundError for a missing one."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(digest_of, paths))


def digests_if_there(paths: Iterable[Path]) -> list[str | None]:
    """As `digests_of`; None for missing ones."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(_digest_if_there, paths))


def _digest_if_there(path: Path) -> str | None:
    try:
        return digest_of(path)
    except FileNotFoundError:
        return None


def write_charged(run: RunDirectory, charged_files: Mapping[str, str]) -> None:
    """Keep in the run the digests that its draws were charged with."""
    write_record(run.root / CHARGED, dict(charged_files))


def refuse_altered(run: RunDirectory, charged_files: Mapping[str, str] | None = None) -> None:
    """Raise InputRefused if a file that decides the draws differs from the charged one.

    `charged_files` are the ledger's, by default the run's own copy; a run without a charge has
    none.
    """
    charged = _charged(run) if charged_files is None else charged_files
    paths = [below(run.root, *name.split("/")) for name in charged]
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


def _charged(run: RunDirectory) -> dict[str, str]:
    file = run.root / CHARGED
    try:
        charged: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        for name in charged:
            below(run.root, *name.split("/"))
        return charged
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        raise InputRefused(
            f"{file} cannot be read; remove it and resume the run, which makes it again from the "
            "ledger."
        ) from None
