"""The files of a table that a folder or a glob holds, and the copies among them.

Hidden files, those that begin with an underscore, and checkpoints are passed over, in folders with
such names too: editors and Spark write them beside a table. All others count or are refused.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ..runs.stores import StoreFile

ENDINGS = (".parquet", ".csv", ".txt", ".tsv", ".gz")
"""Endings, in any case, of the files of a table."""
HIVE_BLANK = "__HIVE_DEFAULT_PARTITION__"
"""A blank in the name of a folder such as `sex=1`."""

GZIP_MAGIC = b"\x1f\x8b"
ByteStream = BinaryIO | StoreFile
"""A file that is open for reading, on this machine or in a store."""

_WILD = re.compile(r"[*?[]")
_HEAD_BYTES, _BLOCK_BYTES = 1 << 16, 1 << 24


def base_of(path: str) -> Path:
    """The folder that holds all files of a path: itself, or of a glob what stands before its first
    part that is a pattern."""
    if os.path.isdir(path):
        return Path(path)
    parts = Path(path).parts
    wild = next(at for at, part in enumerate(parts) if _WILD.search(part))
    return Path(*parts[:wild])


def files_of(path: str) -> list[Path]:
    """The files of a folder, or of the files and folders that a glob matches, in their order."""
    matches = [path] if os.path.isdir(path) else glob.glob(path, recursive=True)
    base, named = base_of(path), Path(path).parts
    found: set[Path] = set()
    for match in map(Path, matches):
        found |= {p for p in ([match] if match.is_file() else match.rglob("*")) if p.is_file()}
    return sorted(
        p for p in found if not any(_is_skipped(part, named) for part in p.relative_to(base).parts)
    )


def _is_skipped(part: str, named: Sequence[str]) -> bool:
    """Whether a part of a path is passed over; a pattern that begins alike asks for it."""
    if part[0] in "._":
        return not any(each[0] == part[0] for each in named if _WILD.search(each))
    return Path(part.lower()).stem.endswith("-checkpoint")


def folder_columns(file: Path) -> tuple[tuple[str, str | None], ...]:
    """Columns that the names of a file's folders hold, such as `sex=1`, and their values."""
    pairs = [part.split("=", 1) for part in file.parent.parts if "=" in part]
    return tuple((name, None if v == HIVE_BLANK else unquote(v)) for name, v in pairs if name)


def refusals(files: Sequence[Path], base: Path, *, of_folder: bool) -> dict[Path, tuple[str, str]]:
    """The rule and the remedy of every file that is refused: its ending, or a copy of another."""
    refused: dict[Path, tuple[str, str]] = {}
    stems: dict[Path, Path] = {}
    for file in files:
        if of_folder and file.suffix.lower() not in ENDINGS:
            rule = f"a file of a table must end in {', '.join(ENDINGS)}"
            refused[file] = rule, "move it out of the folder, or give it such an ending"
            continue
        first = stems.setdefault(_without_endings(file), file)
        if first != file:
            rule = f"the file has the name of {first.relative_to(base)} but for its ending"
            refused[file] = rule, "remove one of them, or name them apart if their rows differ"
    for file, first in _copies([file for file in files if file not in refused]):
        rule = f"the file holds the rows of {first.relative_to(base)}"
        refused[file] = rule, "remove one of them, since a row counts once for each"
    return refused


def _without_endings(file: Path) -> Path:
    name = file.name
    while (stem := Path(name)).suffix.lower() in ENDINGS:
        name = stem.stem
    return file.with_name(name)


def _copies(files: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Files that hold what another holds, unpacked, and the first of these.

    Files are compared by their sizes, then by their beginnings, then whole, so that tables without
    copies are not read for it. Rows in folders of other values, such as `sex=1`, are not the same.
    """
    alike: dict[tuple[object, ...], list[Path]] = {}
    for file in files:
        try:
            if size := _unpacked_size(file):
                alike.setdefault((folder_columns(file), size), []).append(file)
        except OSError:  # Which reading it says.
            continue
    groups = list(alike.values())
    for n_bytes in (_HEAD_BYTES, None):
        groups = [part for group in groups for part in _apart(group, n_bytes)]
    for group in groups:
        if _has_rows(group[0]):
            yield from ((file, group[0]) for file in group[1:])


def _has_rows(file: Path) -> bool:
    """Whether a file holds more than the names of its columns."""
    with open(file, "rb") as stream:
        start = unpacked(stream).read(_HEAD_BYTES)
    if start.startswith(b"PAR1"):
        with open(file, "rb") as stream, suppress(pa.ArrowException, OSError):
            return bool(pq.read_metadata(unpacked(stream)).num_rows)
    return len(start.strip().splitlines()) > 1


def _apart(group: list[Path], n_bytes: int | None) -> list[list[Path]]:
    """A group apart by the digests of the files' first bytes, or all."""
    if len(group) < 2:
        return []
    found: dict[bytes, list[Path]] = {}
    for file in group:
        try:
            found.setdefault(_digest(file, n_bytes), []).append(file)
        except (OSError, EOFError, ValueError):
            continue
    return list(found.values())


def _unpacked_size(file: Path) -> int:
    """Bytes of a file, modulo 2 ** 32 as gzip files end with theirs."""
    with open(file, "rb") as stream:
        if stream.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return file.stat().st_size % (1 << 32)
        stream.seek(-4, os.SEEK_END)
        return int.from_bytes(stream.read(4), "little")


def _digest(file: Path, n_bytes: int | None) -> bytes:
    with open(file, "rb") as stream:
        content = unpacked(stream)
        if n_bytes is not None:
            return blake2b(content.read(n_bytes)).digest()
        digest = blake2b()
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
        return digest.digest()


def unpacked(stream: ByteStream) -> ByteStream | gzip.GzipFile:
    """A stream from its first byte, unpacked if it is gzipped."""
    stream.seek(0)
    is_packed = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    stream.seek(0)
    return gzip.GzipFile(fileobj=stream) if is_packed else stream
