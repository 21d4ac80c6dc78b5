"""Input files as streams of bytes: plain paths and fsspec URLs, plain or gzipped, made UTF-8.

Every failure becomes an `UnreadableInput` that names the file and the remedy, except that a store
that does not answer may answer later (`StorageFailed`). The original error is dropped
(`from None`), because decoders quote the bytes that they could not decode.

The files of a table in a folder, or matching a glob.

Hidden files, files that begin with an underscore, and checkpoints are skipped, in folders with
such names too: editors and Spark write them next to a table. All others count or are refused.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..runs.stores import StoreFile, StoreRefused, is_url
from .findings import Finding, UnreadableInput, refuse_unreadable
from .formats import UTF_8, TextFormat
from .layouts import LAYOUTS, Kind, TableLayout

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ENDINGS = (".parquet", ".csv", ".txt", ".tsv", ".gz")
"""Endings, in any case, of the files of a table."""
HIVE_BLANK = "__HIVE_DEFAULT_PARTITION__"
"""A blank in the name of a folder such as `sex=1`."""

GZIP_MAGIC = b"\x1f\x8b"
ByteStream = BinaryIO | StoreFile
"""A file that is open for reading, on this machine or in a store."""

_WILD = re.compile(r"[*?[]")


def base_of(path: str) -> Path:
    """The folder that holds all files of a path: the path itself, or for a glob its part before
    the first pattern."""
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
    """Columns in the names of a file's folders, such as `sex=1`, and their values."""
    pairs = [part.split("=", 1) for part in file.parent.parts if "=" in part]
    return tuple((name, None if v == HIVE_BLANK else unquote(v)) for name, v in pairs if name)


def refusals(files: Sequence[Path], base: Path, *, of_folder: bool) -> dict[Path, tuple[str, str]]:
    """The rule and the remedy of every refused file: for its ending, or as a second form of
    a neighbouring file. Copies under other names are found during reading; see
    `tasks.tables.value_tallies`.
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


def unpack_stream(stream: ByteStream) -> ByteStream | gzip.GzipFile:
    """A stream from its first byte, unpacked if it is gzipped."""
    stream.seek(0)
    is_packed = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    stream.seek(0)
    return gzip.GzipFile(fileobj=stream) if is_packed else stream


PARQUET_MAGIC = b"PAR1"
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BUFFER_BYTES = 1 << 16


Share = tuple[int, int]
"""The number of a share of a table, from 0, and how many there are."""


@dataclass(frozen=True)
class InputFile:
    """One input table: its kind, the path or URL to open, and the name that messages show.

    `layout` belongs to a table outside `LAYOUTS`, whose columns the settings name; `format` is the
    format of its files, where settings can declare it. `folders` are columns in the names of its
    folders, such as `sex=1`; `refused` are the rule and the remedy of a refused file. Of a Parquet
    file with `row_groups` these alone are read.
    """

    table: str
    path: str
    name: str
    layout: TableLayout | None = None
    format: TextFormat | None = None
    folders: tuple[tuple[str, str | None], ...] = ()
    refused: tuple[str, str] | None = None
    row_groups: tuple[int, ...] | None = None

    @property
    def columns(self) -> TableLayout:
        """The layout of the table."""
        return self.layout or LAYOUTS[self.table]

    def with_columns(self, kinds: Mapping[str, Kind]) -> InputFile:
        """The file with the layout of a table whose columns the settings name, by their kinds."""
        return replace(self, layout=TableLayout.expected(self.table, kinds))

    def unreadable(
        self,
        rule: str,
        remedy: str,
        *,
        column: str = "",
        count: int | None = None,
        line: int | None = None,
    ) -> UnreadableInput:
        """An error that refuses this file."""
        finding = Finding(self.name, column, rule, remedy, count, line)
        return UnreadableInput(self.table, finding)


def names_several_files(path: str) -> bool:
    """Whether a path names files together: a folder, or a glob; neither does one of a store."""
    if is_url(path):
        return False
    is_glob = not os.path.exists(path) and any(character in path for character in "*?[")
    return is_glob or os.path.isdir(path)


def single_files(paths: Mapping[str, str]) -> dict[str, tuple[InputFile, ...]]:
    """The file of each path by table; readers refuse folders and globs among them."""
    return {table: (_single_file(table, path),) for table, path in paths.items()}


def _single_file(table: str, path: str) -> InputFile:
    return InputFile(table, path, path.rpartition("/")[2])


def input_files(table: str, path: str) -> tuple[InputFile, ...]:
    """The files of a path: itself, the files of a folder, or the matches of a glob.

    Files are in the order of their paths. Messages name a path that is one file by its last part,
    and a file among several by its path below their common folder.
    """
    found = files_of(path) if names_several_files(path) else []
    if not found:
        return (_single_file(table, path),)
    above, base = os.path.commonpath([file.parent for file in found]), base_of(path)
    refused = refusals(found, base, of_folder=os.path.isdir(path))
    return tuple(
        InputFile(
            table,
            str(file),
            os.path.relpath(file, above),
            folders=folder_columns(file.relative_to(base)),
            refused=refused.get(file),
        )
        for file in found
    )


def files_of_share(files: Sequence[InputFile], share: Share) -> Iterator[tuple[int, InputFile]]:
    """The files of a share of a table, with their positions: Parquet files cut between row groups,
    others as a whole, so that shares have about as many bytes each."""
    pieces = [(at, *piece) for at, file in enumerate(files) for piece in _row_groups(file)]
    sizes = 1 + np.array([size for *_, size in pieces])
    shares = (2 * np.cumsum(sizes) - sizes) * share[1] // (2 * sizes.sum())
    chosen: dict[int, list[int]] = {}
    for own, (at, groups, _) in zip(shares.tolist(), pieces, strict=True):
        if own == share[0]:
            chosen.setdefault(at, []).extend(groups)
    for at, own_groups in chosen.items():
        yield at, replace(files[at], row_groups=tuple(own_groups) or None)


def _row_groups(file: InputFile) -> list[tuple[tuple[int, ...], int]]:
    """Each row group of a local Parquet file, and its bytes; any other file as a whole."""
    if is_url(file.path) or not os.path.isfile(file.path):
        return [((), 0)]
    try:
        metadata = pq.read_metadata(file.path)
    except (pa.ArrowException, OSError):
        return [((), os.path.getsize(file.path))]
    numbers = range(metadata.num_row_groups)
    return [((n,), metadata.row_group(n).total_byte_size) for n in numbers] or [((), 0)]


def refuse_shared(files: Mapping[str, Sequence[InputFile]]) -> dict[str, tuple[InputFile, ...]]:
    """The files by table, those refused that a table before has too: people of two tables are
    taken for different people, each charged for the changes of one.
    """
    first: dict[str, str] = {}

    def of_table(table: str, file: InputFile) -> InputFile:
        place = file.path if is_url(file.path) else os.path.realpath(file.path)
        other = first.setdefault(place, table)
        if other == table:
            return file
        rule = f"the file is also the file of input.{other}"
        remedy = f"declare {other!r} as the table of everything that reads it"
        return replace(file, refused=(rule, remedy))

    return {table: tuple(of_table(table, file) for file in own) for table, own in files.items()}


def open_binary(file: InputFile) -> ByteStream:
    """Open a file for reading at its first byte; the result can seek."""
    if file.refused is not None:
        raise file.unreadable(*file.refused)
    remedy = f"correct the path input.{file.table} in the settings"
    if not is_url(file.path) and os.path.isdir(file.path):
        raise file.unreadable("the path is a directory, not a file", remedy)
    if not is_url(file.path) and os.path.exists(file.path) and not os.path.isfile(file.path):
        raise file.unreadable("the path is a pipe, a socket or a device, not a file", remedy)
    try:
        return StoreFile(file.path, file.name) if is_url(file.path) else open(file.path, "rb")
    except StoreRefused as error:
        raise file.unreadable(error.rule, f"{remedy}, or {error.remedy}") from None
    except (FileNotFoundError, NotADirectoryError):
        what = f"there is no object {file.path}" if is_url(file.path) else "the file does not exist"
        raise file.unreadable(what, remedy) from None
    except IsADirectoryError:
        raise file.unreadable("the path is a directory, not a file", remedy) from None
    except PermissionError:
        raise file.unreadable(
            "the file may not be read by this user", "change its permissions"
        ) from None
    except (ValueError, OSError):
        raise file.unreadable("the path cannot be opened", remedy) from None


def gunzip(file: InputFile, stream: ByteStream, size: int = -1) -> bytes:
    """The first `size` bytes of a gzipped file, unpacked (all if negative); empty if not gzipped.

    The stream is left at its first byte.
    """
    unpacked = unpack_stream(stream)
    content = b"" if unpacked is stream else _read(file, unpacked, size)
    stream.seek(0)
    return content


def read_public_text(file: InputFile) -> str:
    """A public file's text, decompressed and decoded; raises InputRefused if it cannot be read."""
    with refuse_unreadable(with_counts=True), open_binary(file) as stream:
        return open_text(file, stream).read().decode("utf-8")


def _read(file: InputFile, stream: ByteStream | gzip.GzipFile, size: int) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise file.unreadable(
            "the gzip file is truncated or damaged", "copy or compress the file again"
        ) from None


def encoding_of(start: bytes, declared: str | None) -> str:
    """The encoding of a text from its first bytes and the declared one, if any; a byte order
    mark takes precedence.
    """
    name = codecs.lookup(declared or UTF_8).name
    if start == _UTF8_BOM:
        return UTF_8
    # The mark of UTF-32 begins like one of UTF-16.
    is_marked = start[:2] in _UTF16_BOMS and not name.startswith("utf-32")
    return "utf-16" if is_marked else name


class TextStream(io.RawIOBase):
    """The bytes of a text file: decompressed, in UTF-8, without a byte order mark, a line feed at
    the end of every line.

    A file is in UTF-8 or UTF-16 if a byte order mark says so, or in the encoding of its format, or
    else in UTF-8, which is checked. `lines` counts the lines read so far that are not empty, a last
    line without line end included.
    """

    def __init__(self, file: InputFile, stream: ByteStream) -> None:
        self._file, self._packed = file, unpack_stream(stream)
        start = _read(file, self._packed, len(_UTF8_BOM))
        self.encoding = encoding_of(start, file.format.encoding if file.format else None)
        decoder = codecs.getincrementaldecoder(self.encoding)()
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._line_ends = self.lines = 0
        self._after_line_end = True
        self._ahead = memoryview(self._decoded(_BUFFER_BYTES, start).removeprefix(_UTF8_BOM))
        self._count_lines(self._ahead)

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer with further bytes; their number, 0 at the end of the file."""
        given = memoryview(buffer)
        if not self._ahead:
            self._ahead = memoryview(self._decoded(len(given)))
            self._count_lines(self._ahead)
        n = min(len(given), len(self._ahead))
        given[:n], self._ahead = self._ahead[:n], self._ahead[n:]
        return n

    def _decoded(self, size: int, start: bytes = b"") -> bytes:
        """About `size` further bytes in UTF-8, after `start` of the file; empty at its end."""
        text = ""
        try:
            while not text and (chunk := start + _read(self._file, self._packed, size)):
                text, start = self._decoder.decode(chunk), b""
            text = text or self._decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            before = bytes(error.object[: error.start]).decode(self.encoding, "ignore")
            lines = io.IncrementalNewlineDecoder(None, translate=True).decode(before, final=True)
            raise self._not_in_encoding(self._line_ends + lines.count("\n") + 1) from None
        except UnicodeError:
            # Of a file that should begin with a byte order mark.
            raise self._not_in_encoding(1) from None
        self._line_ends += text.count("\n")
        return text.encode("utf-8", "surrogatepass")

    def _not_in_encoding(self, line: int) -> UnreadableInput:
        """The refusal of bytes that the encoding does not have."""
        name = self.encoding.upper()
        text_format = self._file.format
        remedy = "save it as UTF-8"
        if text_format is not None:
            remedy = (
                "save it as UTF-8, or name its encoding, such as 'latin-1' or 'windows-1250', in "
                f"{text_format.key}.encoding"
            )
        return self._file.unreadable(
            f"the file holds bytes that are not {name} text", remedy, line=line
        )

    def _count_lines(self, text: memoryview) -> None:
        if not text:
            return
        is_end = np.frombuffer(text, dtype=np.uint8) == ord("\n")
        starts = is_end[:-1] & ~is_end[1:]
        self.lines += int(starts.sum()) + int(self._after_line_end and not is_end[0])
        self._after_line_end = bool(is_end[-1])


def open_text(file: InputFile, stream: ByteStream) -> io.BufferedReader[TextStream]:
    """The text of a file that is open, as `TextStream` gives it."""
    return io.BufferedReader(TextStream(file, stream), _BUFFER_BYTES)
