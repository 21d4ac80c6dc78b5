"""Read and write files of a run: replace a file in one step, write a file once, TOML and JSON.

Readers never see half of a file. `replacing` replaces a file. `write_once` never does: it writes
under a name that readers ignore, flushes the file to disk, and gives it its final name by a hard
link, which fails if the name is taken. If two workers write the same file, the file of one is kept,
and both return its path. A worker locks the file that it writes until it ends, so that the next
worker can tell and remove the unfinished files of killed workers.

A file that must be recorded in the ledger before others can read it (`Recording`) is written in a
closed folder, with mode 0600. When it is recorded, it gets its public name and mode. If its worker
dies before that, the next worker gives it the name (`name_recorded`).
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..pages.document import Document, to_html
from .errors import InputRefused

NOT_PRIVATE = "NOT PRIVATE"
"""Stamp on the files of a run without protection."""

STAMP_KEY = "spineflow"
"""Key of the stamp in the metadata of a Parquet file."""

STAMP_FILE = f"{NOT_PRIVATE}.txt"
"""Name of the file in a run directory, or an export, with the reason why it is not private."""

TEMPORARY_SUFFIX = ".part"
"""Ending of the names under which files are written before they are published."""

FileState = tuple[int, ...]
"""State of a file, equal while the file is unchanged."""

Arguments = ParamSpec("Arguments")
Content = TypeVar("Content")


def state_of_file(path: Path) -> FileState:
    """A file's present inode number, size and times.

    Programs can set a file's modification time, but not the time of its inode's last change, so
    that every alteration shows.
    """
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def cache_unchanged(
    files: Callable[Arguments, Path | Iterable[Path]], *, at_most: int
) -> Callable[[Callable[Arguments, Content]], Callable[Arguments, Content]]:
    """Cache a reader's results for its last `at_most` different arguments, which must be hashable.

    `files` returns the files that the reader reads, given its arguments; a result is used as long
    as these are unchanged.

    >>> @cache_unchanged(lambda path: path, at_most=4)
    ... def read_text(path: Path) -> str:
    ...     return path.read_text(encoding="utf-8")
    """

    def decorator(read: Callable[Arguments, Content]) -> Callable[Arguments, Content]:
        @lru_cache(maxsize=at_most)
        def read_at(_states: object, *args: Any, **kwargs: Any) -> Content:
            return read(*args, **kwargs)

        @wraps(read)
        def reader(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Content:
            found = files(*args, **kwargs)
            paths = [found] if isinstance(found, Path) else found
            states = tuple((path, state_of_file(path)) for path in paths)
            return read_at(states, *args, **kwargs)  # type: ignore[arg-type]  # They are hashable.

        return reader

    return decorator


def read_record(path: Path, remedy: str = "put it back, or start a new run") -> Any:
    """Content of a run's JSON file; raises InputRefused with a remedy if it is damaged."""
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


@cache_unchanged(lambda path: path, at_most=1 << 17)
def digest_of(path: Path) -> str:
    """SHA-256 of a public file; cached while the file is unchanged."""
    return sha256_of_file(path)


def digests_of(paths: Iterable[Path]) -> list[str | None]:
    """The `digest_of` many public files, None for missing ones, in as many threads as there are
    processors: a continued run hashes all noisy measurements again, 17 GB for a nation.
    """

    def digest_if_there(path: Path) -> str | None:
        with suppress(FileNotFoundError):
            return digest_of(path)
        return None

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(digest_if_there, paths))


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Lock an open file or folder during the block, and close it afterwards."""
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
    """Write a dataclass as JSON that people can read too; fractions are written as text."""
    write_text(path, json.dumps(asdict(record), indent=2, default=str) + "\n")


def read_values(path: Path, kind: Callable[..., Content]) -> Content:
    """Read a dataclass, of type `kind`, that `write_values` wrote.

    Raises InputRefused if the file is damaged, or another version wrote it with other fields.
    """
    try:
        content: Content = _reader_of(kind).validate_python(read_record(path))
    except ValidationError:
        raise InputRefused(
            f"{path} does not have the form of this version; use the version that wrote it (0.3 or "
            "before), or start a new run."
        ) from None
    return content


_reader_of: Callable[..., TypeAdapter[Any]] = lru_cache(TypeAdapter)
"""Cached, since making a TypeAdapter takes longer than reading a file."""


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
    """How a file is recorded before others can read it.

    folder : closed folder in which the file is written; files of one name need different folders.
    record : called with the path of the complete file in that folder.
    """

    folder: Path
    record: Callable[[Path], object]


def write_once(
    path: Path,
    write: Callable[[BinaryIO], object],
    recording: Recording | None = None,
) -> Path:
    """Write a file through `write` and name it `path`, unless `path` exists already.

    `write` is not called if `path` exists. If another worker names its file first, this worker's
    file is deleted. If `write` raises, no file is left. If `recording.record` raises, the file
    stays in its folder, since it may have been recorded.

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
    may_be_recorded = False
    with _unfinished(path, folder, mode) as (hidden, file):
        try:
            write(file)
            _flush(file)
            if recording is not None:
                sync(folder)
                may_be_recorded = True
                recording.record(hidden)
                _open_to_readers(file, path)
            _publish(file, hidden, path)
        finally:
            if path.exists() or not may_be_recorded:
                hidden.unlink(missing_ok=True)
    return path


def name_recorded(path: Path, digest: str, folder: Path) -> bool:
    """Give the recorded file with this digest its name, if its worker died before it did.

    The file is in `folder`, the folder of its `Recording`, or next to `path`, where earlier
    versions wrote it. Waits for a running worker. Returns whether `path` exists afterwards.
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
    """Remove the unfinished files that ended workers have left for `path`."""
    folders = [path.parent] if recording is None else [path.parent, recording.folder]
    _discard(leftover for folder in folders for leftover in _leftovers(path, folder))


def discard_all_unfinished(folder: Path) -> None:
    """Remove all unfinished files below a folder that ended workers have left."""
    _discard(folder.rglob(f".*{UNFINISHED_SUFFIX}"))


def _leftovers(path: Path, folder: Path) -> list[Path]:
    """The unfinished files for `path` in a folder, found by their names."""
    return list(folder.glob(f".{glob.escape(path.name)}.*{UNFINISHED_SUFFIX}"))


def _discard(leftovers: Iterable[Path]) -> None:
    """Remove unfinished files, except those that a running worker has locked."""
    for leftover in leftovers:
        try:
            with leftover.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
        except (BlockingIOError, FileNotFoundError):
            continue


def _open_to_readers(file: BinaryIO, path: Path) -> None:
    """Give a file the read and write permissions of its final folder."""
    os.fchmod(file.fileno(), path.parent.stat().st_mode & 0o666)


def _publish(file: BinaryIO, hidden: Path, path: Path) -> None:
    """Give a file its final name, unless another file has it."""
    with suppress(FileExistsError):
        try:
            os.link(hidden, path)
        except FileExistsError:
            raise
        except OSError:
            # The two folders are on different file systems: copy the file.
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
    """Yield the path of a new file under a name that readers ignore, and the file, locked."""
    while True:  # Until the file is locked before another worker discards it as unfinished.
        hidden = folder / f".{path.name}.{secrets.token_hex(8)}{UNFINISHED_SUFFIX}"
        descriptor = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)
    with os.fdopen(descriptor, "w+b") as file:
        yield hidden, file


def _make_closed(folder: Path) -> None:
    """Make a folder and its missing parents, with mode 0700."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)
