"""Writing files so that a reader never sees half of one, replaced or written once; TOML and JSON.

*Written once*, a file appears whole, and never replaces another. It is written under a name that
readers ignore, flushed to disk, and given its final name by a hard link, which fails if the name is
taken. If two workers write the same file, one names its own and both return the existing file. A
writer keeps a lock on its file for as long as it runs, and the next worker on that file removes
leftovers of killed workers.

A file that has to be recorded elsewhere before it may be seen (`Recording`) is written in a folder
that is closed to others, with mode 0600. It gets its public name and mode when it is recorded; if
its worker dies in between, from the next worker (`name_recorded`).
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..pages.document import Document, to_html
from .errors import InputRefused

NOT_PRIVATE = "NOT PRIVATE"
"""Stamp on the files of a run whose noise does not protect."""

STAMP_KEY = "spineflow"
"""Key of the stamp in the metadata of a Parquet file."""

STAMP_FILE = f"{NOT_PRIVATE}.txt"
"""File of a run directory, or of an export, that says why the run is not private."""

TEMPORARY_SUFFIX = ".part"
"""Ending of the names under which files are written before they are published."""

FileState = tuple[int, ...]
"""State of a file, equal while the file is unchanged."""

Arguments = ParamSpec("Arguments")
Content = TypeVar("Content")


def state_of_file(path: Path) -> FileState:
    """A file's present inode number, size and times.

    No program can set the time at which an inode last changed, so no file can be altered unseen.
    """
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def cache_unchanged(
    files: Callable[Arguments, Path | Iterable[Path]], *, at_most: int
) -> Callable[[Callable[Arguments, Content]], Callable[Arguments, Content]]:
    """Cache a reader's results for its last `at_most` different arguments, as long as the `files`
    of the arguments are unchanged. The arguments must be hashable.

    >>> @cache_unchanged(lambda path: path, at_most=4)
    ... def read_text(path: Path) -> str:
    ...     return path.read_text(encoding="utf-8")
    """

    def decorated(read: Callable[Arguments, Content]) -> Callable[Arguments, Content]:
        @lru_cache(maxsize=at_most)
        def read_at(_states: object, *args: Any, **kwargs: Any) -> Content:
            return read(*args, **kwargs)

        @wraps(read)
        def reader(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Content:
            found = files(*args, **kwargs)
            paths = [found] if isinstance(found, Path) else found
            states = tuple((path, state_of_file(path)) for path in paths)
            return read_at(states, *args, **kwargs)  # type: ignore[arg-type]  # Hashable, as asked.

        return reader

    return decorated


def read_record(path: Path, remedy: str = "put it back, or start a new run") -> Any:
    """Content of a run's JSON file; raises InputRefused, with a remedy, for a damaged one."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputRefused(f"{path} cannot be read, since it is damaged; {remedy}.") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary name next to `path`, then move it there in one step.

    >>> with replacing(Path("x.json")) as part:  # doctest: +SKIP
    ...     part.write_text("{}")
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        yield part
        sync(part)
        os.replace(part, path)
        sync(path.parent)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def remove_temporaries(folder: Path) -> None:
    """Remove temporary files of killed writers below `folder`."""
    for part in folder.rglob(f"*{TEMPORARY_SUFFIX}"):
        part.unlink(missing_ok=True)


def sha256_of_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes; for public files only."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Lock an open file or folder, which is closed at the end."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_record(path: Path, content: object) -> None:
    """Write JSON that `read_record` and people can read."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_values(path: Path, record: Any) -> None:
    """Write a dataclass as JSON that people can read too, fractions as texts."""
    write_text(path, json.dumps(asdict(record), indent=2, default=str) + "\n")


def read_values(path: Path, kind: Callable[..., Content]) -> Content:
    """The dataclass that `write_values` wrote, of a kind; raises InputRefused as `read_record`, and
    for the form of another version."""
    try:
        content: Content = _reader_of(kind).validate_python(read_record(path))
    except ValidationError:
        raise InputRefused(
            f"{path} does not have the form of this version; use the version that wrote it (0.3 or "
            "before), or start a new run."
        ) from None
    return content


_reader_of: Callable[..., TypeAdapter[Any]] = lru_cache(TypeAdapter)
"""Cached, since making one takes longer than a read."""


def write_page(path: Path, document: Document) -> Path:
    """Write a document as HTML, whole or not at all; returns the path."""
    write_text(path, to_html(document))
    return path


def read_declared(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


UNFINISHED_SUFFIX = ".unpublished"


@dataclass(frozen=True)
class Recording:
    """Recording of a file before others can read it.

    `record` is called with the file when it is whole and on disk. `folder`, which is closed to
    others, holds it until it has its name; no two files share one.
    """

    folder: Path
    record: Callable[[Path], object]


def write_once(
    path: Path,
    write: Callable[[BinaryIO], object],
    recording: Recording | None = None,
) -> Path:
    """Write a file through `write` and name it `path`, unless `path` exists already.

    `write` is not called if the file exists. If another worker is first, this one's file is
    dropped. Errors of `write` are passed on and nothing is left. Errors while the file is recorded
    are passed on too; it then stays in its folder, since it may be recorded.
    Returns `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    discard_unfinished(path, recording)
    if path.exists():
        return path
    folder, mode = path.parent, 0o666
    if recording is not None:
        folder, mode = recording.folder, 0o600
        _make_closed(folder)
    is_kept = False
    with _unfinished(path, folder, mode) as (hidden, file):
        try:
            write(file)
            _flush(file)
            if recording is not None:
                sync(folder)
                is_kept = True
                recording.record(hidden)
                _open_to_readers(file, path)
            _publish(file, hidden, path)
        finally:
            if path.exists() or not is_kept:
                hidden.unlink(missing_ok=True)
    return path


def name_recorded(path: Path, digest: str, folder: Path) -> bool:
    """Name the file of this digest if a worker wrote it and died before it got its name.

    `folder` is the folder of its `Recording`; workers of earlier versions left it next to `path`.
    Waits for a running worker. Returns whether `path` exists afterwards.
    """
    leftovers = [*_leftovers(path, folder), *_leftovers(path, path.parent)]
    for leftover in leftovers:
        with suppress(FileNotFoundError), leftover.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not path.exists() and sha256_of_file(leftover) == digest:
                _open_to_readers(file, path)
                _publish(file, leftover, path)
    if path.exists():
        _discard(leftovers)
        return True
    return False


def discard_unfinished(path: Path, recording: Recording | None = None) -> None:
    """Remove unfinished copies of this file left by workers that no longer run."""
    folders = [path.parent] if recording is None else [path.parent, recording.folder]
    _discard(leftover for folder in folders for leftover in _leftovers(path, folder))


def discard_all_unfinished(folder: Path) -> None:
    """Remove unfinished files anywhere below a folder left by workers that no longer run."""
    _discard(folder.rglob(f".*{UNFINISHED_SUFFIX}"))


def _leftovers(path: Path, folder: Path) -> list[Path]:
    """Unfinished files of `path` in a folder, by their names."""
    return list(folder.glob(f".{glob.escape(path.name)}.*{UNFINISHED_SUFFIX}"))


def _discard(leftovers: Iterable[Path]) -> None:
    for leftover in leftovers:
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
        except (BlockingIOError, FileNotFoundError):
            continue


def _open_to_readers(file: BinaryIO, path: Path) -> None:
    """Give a file the read permissions of its final folder."""
    os.fchmod(file.fileno(), path.parent.stat().st_mode & 0o666)


def _publish(file: BinaryIO, hidden: Path, path: Path) -> None:
    """Give a file its final name, unless that is taken."""
    with suppress(FileExistsError):
        try:
            os.link(hidden, path)
        except FileExistsError:
            raise
        except OSError:
            # The folders are on different file systems.
            with _unfinished(path, path.parent, 0o666) as (beside, copy):
                file.seek(0)
                shutil.copyfileobj(file, copy, 1 << 24)
                _flush(copy)
                try:
                    os.link(beside, path)
                finally:
                    beside.unlink(missing_ok=True)
        sync(path.parent)


def _flush(file: BinaryIO) -> None:
    """Flush an open file to disk."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _unfinished(path: Path, folder: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """A new locked file under a name that no reader looks for."""
    while True:
        hidden = folder / f".{path.name}.{secrets.token_hex(8)}{UNFINISHED_SUFFIX}"
        descriptor = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)
    with os.fdopen(descriptor, "w+b") as file:
        yield hidden, file


def _make_closed(folder: Path) -> None:
    """Make a folder, and missing ones above it, for this user alone."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir(mode=0o700)
