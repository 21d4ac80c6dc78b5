"""Files of an input that were read: formats, rows, and copies among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from .columns import CodedColumn, key_hashes
from .findings import FileRead, Finding
from .readers import Batch, format_of
from .sources import InputFile

_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass
class FilesRead:
    """Files that were read, by path."""

    files: dict[str, FileRead] = field(default_factory=dict)

    def add_formats(self, files: Iterable[InputFile]) -> None:
        """Add how files are written, where it is not known yet."""
        for file in files:
            if file.path not in self.files or not self.files[file.path].written:
                self._add(file.path, FileRead(file.name, format_of(file)))

    def add_rows(self, files: Sequence[InputFile], n_rows: np.ndarray) -> None:
        """Add the rows of files."""
        for file, n in zip(files, n_rows, strict=True):
            self._add(file.path, FileRead(file.name, "", int(n)))

    def add_records(self, sums: RecordSums) -> None:
        """Add the records of files; a table that is read more than once has copies only among files
        that are alike each time."""
        for file, n, total in zip(sums.files, sums.n_rows, sums.hashes, strict=True):
            self._add(file.path, FileRead(file.name, "", int(n), int(total)))

    def add_shares(self, shares: Sequence[FilesRead]) -> None:
        """Add files of which each of some readers has read a share of the rows."""
        for path in dict.fromkeys(path for share in shares for path in share.files):
            own = [share.files[path] for share in shares if path in share.files]
            rows = [one.n_rows for one in own if one.n_rows is not None]
            hashes = sum(one.hashes for one in own) % (1 << 64)
            n_rows = sum(rows) if rows else None
            self._add(path, FileRead(own[0].name, own[0].written, n_rows, hashes))

    @property
    def listed(self) -> tuple[FileRead, ...]:
        """The files, in the order in which they were read."""
        return tuple(self.files.values())

    @property
    def formats(self) -> tuple[FileRead, ...]:
        """The files whose form is known, without their rows."""
        return tuple(FileRead(own.name, own.written) for own in self.listed if own.written)

    def copies(self, files: Sequence[InputFile]) -> Iterator[Finding]:
        """Findings on files of a table with exactly the records of an earlier one, in
        any order and format.

        Records in folders of other values, such as `sex=1`, are others.
        """
        first: dict[object, InputFile] = {}
        for file in files:
            own = self.files.get(file.path)
            if own is None or not own.hashes:
                continue
            same = first.setdefault((file.folders, own.n_rows, own.hashes), file)
            if same is not file:
                rule = f"the file holds the rows of {same.name}"
                remedy = "remove one of them, or put both into one file if people differ"
                yield Finding(file.name, "", rule, remedy)

    def _add(self, path: str, own: FileRead) -> None:
        known = self.files.get(path, FileRead(own.name))
        self.files[path] = FileRead(
            known.name,
            known.written or own.written,
            own.n_rows if known.n_rows is None else known.n_rows,
            (known.hashes + own.hashes) % (1 << 64),
        )


class RecordSums:
    """Rows of files of records, `(n_files,)`, and sums of their hashes modulo 2 ** 64, which no
    order changes; hashes are 0 where the files are no part of a table in several files.
    """

    def __init__(self, files: Sequence[InputFile]) -> None:
        self.files = files
        self.n_rows = np.zeros(len(files), dtype=np.int64)
        self.hashes = np.zeros(len(files), dtype=np.uint64)

    def add(
        self,
        number: int,
        batch: Batch,
        columns: Mapping[str, CodedColumn],
        keys: Sequence[str],
    ) -> None:
        """Add records of the file of a number, by their coded columns and their identifiers."""
        self.n_rows[number] += len(next(iter(batch.values())))
        if len(self.files) > 1:
            hashes = row_hashes(batch, columns, keys)
            self.hashes[number] += hashes.sum(dtype=np.uint64)


def row_hashes(batch: Batch, columns: Mapping[str, CodedColumn], keys: Sequence[str]) -> np.ndarray:
    """A 64-bit hash of every row by its coded columns and its identifiers, shape `(n_rows,)`.

    Values that are one code or one identifier in all formats have one hash.
    """
    hashes = np.zeros(len(next(iter(batch.values()))), dtype=np.uint64)
    for name in sorted({*columns, *keys}):
        if name in keys:
            values = key_hashes(batch[name])
        else:
            own = columns[name]
            texts = np.array(["" if text is None else f"={text}" for text in own.values], object)
            values = pd.util.hash_array(texts, categorize=False)[own.codes]
        # The factor makes the order of columns count; the shift brings high bits down again.
        hashes = (hashes ^ values) * _FACTOR
        hashes ^= hashes >> _SHIFT
    return hashes
