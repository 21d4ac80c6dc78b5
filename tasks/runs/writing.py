"""Writing a file once: it appears whole, and never replaces another.

A file is written beside its destination under a name that no reader looks for, flushed to disk,
and given its final name by a hard link, which fails if the name is taken. Of two workers that
write the same file, one names its own and both return the file that stands.

What a killed worker leaves unfinished is removed by the next worker on that file, unseen by
anything else: a writer holds a lock on its file for as long as it lives. A file that was recorded
elsewhere before it got its name is named by the next worker instead (`name_recorded`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .files import sha256_of_file, sync

UNFINISHED_SUFFIX = ".unpublished"


def write_once(
    path: Path,
    write: Callable[[BinaryIO], object],
    record: Callable[[Path], None] | None = None,
) -> Path:
    """Write a file through `write` and name it `path`, unless one stands there already.

    `write` is not called if the file exists. If another worker is first, what this one wrote
    is dropped. `record`, if given, is called with the file when it is whole and on disk,
    and before it gets its name. Returns `path`; whatever `write` and `record` raise is passed on
    and nothing is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    discard_unfinished(path)
    if path.exists():
        return path
    with _unfinished_file(path) as (file, unfinished):
        write(file)
        file.flush()
        os.fsync(file.fileno())
        if record is not None:
            sync(path.parent)
            # From here on the file may be known, and only its name may be wanting.
            unfinished.is_kept = True
            record(unfinished.path)
        try:
            os.link(unfinished.path, path)
        except FileExistsError:
            return path
        finally:
            unfinished.is_kept = unfinished.is_kept and not path.exists()
    sync(path.parent)
    return path


def name_recorded(path: Path, digest: str) -> bool:
    """Name the file of this digest if a worker wrote it and died before it got its name.

    Waits for a worker that lives. Returns whether a file stands at `path` afterwards.
    """
    for leftover in path.parent.glob(f".{path.name}.*{UNFINISHED_SUFFIX}"):
        with suppress(FileNotFoundError), leftover.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not path.exists() and sha256_of_file(leftover) == digest:
                with suppress(FileExistsError):
                    os.link(leftover, path)
                sync(path.parent)
    if path.exists():
        discard_unfinished(path)
        return True
    return False


def discard_unfinished(path: Path) -> None:
    """Remove what workers that no longer run left unfinished of this file."""
    _discard(path.parent.glob(f".{path.name}.*{UNFINISHED_SUFFIX}"))


def discard_all_unfinished(folder: Path) -> None:
    """Remove what workers that no longer run left unfinished anywhere below a folder."""
    _discard(folder.rglob(f".*{UNFINISHED_SUFFIX}"))


def _discard(leftovers: Iterable[Path]) -> None:
    for leftover in leftovers:
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
        except (BlockingIOError, FileNotFoundError):
            continue


@dataclass
class _Unfinished:
    """A file without its name; `is_kept` leaves it where it is for the next worker."""

    path: Path
    is_kept: bool = False


@contextmanager
def _unfinished_file(path: Path) -> Iterator[tuple[BinaryIO, _Unfinished]]:
    """A new locked file beside `path`, removed at the end unless it is to be kept."""
    while True:
        unfinished = _Unfinished(
            path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED_SUFFIX}")
        )
        with unfinished.path.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink == 0:
                continue
            try:
                yield file, unfinished
            finally:
                if not unfinished.is_kept:
                    unfinished.path.unlink(missing_ok=True)
            return
