"""The files of a table that a folder or a glob holds.

Hidden files, those that begin with an underscore, and checkpoints are passed over, in folders with
such names too: editors and Spark write them beside a table. All others count or are refused.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from ..runs.stores import StoreFile

ENDINGS = (".parquet", ".csv", ".txt", ".tsv", ".gz")
"""Endings, in any case, of the files of a table."""
HIVE_BLANK = "__HIVE_DEFAULT_PARTITION__"
"""A blank in the name of a folder such as `sex=1`."""

GZIP_MAGIC = b"\x1f\x8b"
ByteStream = BinaryIO | StoreFile
"""A file that is open for reading, on this machine or in a store."""

_WILD = re.compile(r"[*?[]")


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
    """The rule and the remedy of every file that is refused: for its ending, or as another form of
    one beside it. Copies under other names are found as they are read; see `tasks.tables.copies`.
    """
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
    return refused


def _without_endings(file: Path) -> Path:
    name = file.name
    while (stem := Path(name)).suffix.lower() in ENDINGS:
        name = stem.stem
    return file.with_name(name)


def unpacked(stream: ByteStream) -> ByteStream | gzip.GzipFile:
    """A stream from its first byte, unpacked if it is gzipped."""
    stream.seek(0)
    is_packed = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    stream.seek(0)
    return gzip.GzipFile(fileobj=stream) if is_packed else stream
