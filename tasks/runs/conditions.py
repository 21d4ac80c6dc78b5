"""The public files that decide what a run draws, and whether they are still as they were charged.

When a run is charged, the digests of its settings, its spine or tree, its plan and its parameters
are entered in the ledger, and kept in the run beside them (`charged.json`), so that every step can
compare what it reads without asking the ledger. Whatever draws, checks or reports also compares
with the ledger's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import replacing, sha256_of_file


def conditions_of(run: RunDirectory, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files of a run by name, its settings among them."""
    return {
        path.relative_to(run.root).as_posix(): digest_of(path)
        for path in sorted({run.settings, *files})
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a public file; kept in memory while the file stands unchanged."""
    status = path.stat()
    changed = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _digest_of(path, changed)


def _digest_if_there(path: Path) -> str | None:
    try:
        return digest_of(path)
    except FileNotFoundError:
        return None


def write_charged(run: RunDirectory, conditions: Mapping[str, str]) -> None:
    """Keep in the run what its draws were charged with."""
    with replacing(_charged_file(run)) as part:
        part.write_text(json.dumps(dict(conditions), indent=2) + "\n", encoding="utf-8")


def refuse_altered(run: RunDirectory, conditions: Mapping[str, str] | None = None) -> None:
    """Raise InputRefused if a file that decides the draws is not the one that was charged.

    `conditions` are those of the ledger, by default those kept in the run; a run that has not
    been charged has none.
    """
    charged = _charged(run) if conditions is None else conditions
    paths = [run.root / name for name in charged]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(_digest_if_there, paths)
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


def _charged(run: RunDirectory) -> dict[str, str]:
    try:
        return json.loads(_charged_file(run).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        raise InputRefused(
            f"{_charged_file(run)} cannot be read; remove it and resume the run, which makes it "
            "again from the ledger."
        ) from None


def _charged_file(run: RunDirectory) -> Path:
    return run.root / "spine" / "charged.json"


@lru_cache(maxsize=64)
def _digest_of(path: Path, _changed: tuple[int, ...]) -> str:
    return sha256_of_file(path)
