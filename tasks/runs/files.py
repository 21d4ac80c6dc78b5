"""Writing files so that a reader never sees half of one.

Declaration files of the package, next to the code that reads them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import TypeAdapter

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
    """The dataclass that `write_values` wrote, of a kind; raises InputRefused as `read_record`."""
    content: Content = _reader_of(kind).validate_python(read_record(path))
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
