"""Publishing a file once: it appears whole, and never replaces another.

A file is written beside its destination under a name that no reader looks for, flushed to disk,
and given its final name by a hard link, which fails if the name is taken. Of two workers that
write the same file, one publishes and both return the file that stands.

What a killed worker leaves unpublished is removed by the next worker on that file, unseen by
anything else: a writer holds a lock on its file for as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spineflow.tasks.runs.files import sync

UNPUBLISHED_SUFFIX = ".unpublished"


def publish_once(path: Path, write: Callable[[BinaryIO], None]) -> Path:
    """Write a file through `write` and publish it at `path`, unless one stands there already.

    `write` is not called if the file exists. If another worker publishes first, what this one
    wrote is dropped. Returns `path`; whatever `write` raises is passed on and nothing is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    discard_unpublished(path)
    if path.exists():
        return path
    with _unpublished_file(path) as (file, unpublished):
        write(file)
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(unpublished, path)
        except FileExistsError:
            return path
    sync(path.parent)
    return path


def discard_unpublished(path: Path) -> None:
    """Remove what workers that no longer run left unpublished of this file."""
    _discard(path.parent.glob(f".{path.name}.*{UNPUBLISHED_SUFFIX}"))


def discard_all_unpublished(folder: Path) -> None:
    """Remove what workers that no longer run left unpublished anywhere below a folder."""
    _discard(folder.rglob(f".*{UNPUBLISHED_SUFFIX}"))


def _discard(leftovers: Iterable[Path]) -> None:
    for leftover in leftovers:
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
        except (BlockingIOError, FileNotFoundError):
            continue


@contextmanager
def _unpublished_file(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new locked file beside `path`, removed at the end."""
    while True:
        unpublished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNPUBLISHED_SUFFIX}")
        with unpublished.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink == 0:
                continue
            try:
                yield file, unpublished
            finally:
                unpublished.unlink(missing_ok=True)
            return
