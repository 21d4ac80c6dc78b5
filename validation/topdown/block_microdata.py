"""Microdata of some blocks: seen to be right in every respect, or to be looked at row by row.

The rows of some blocks are read from the Parquet file, counted against the estimates, and
spelled out byte by byte as the text file must have them: where the codes of every column have one
width, the place of a row in the text follows from its number. What is found is only whether all is
right. Where it is not, or codes have several widths, `validation.topdown.microdata` goes through
both files from the beginning and says what is wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..outcome import Failures
from ..run_files import ROWS_PER_BATCH, STAMP_LINE, UnusableRunFile, encoded, is_stamped, opened
from .cells import Cells
from .conservation import LevelEstimates
from .layout import Layout, LayoutColumn


class NotSeenRight(Exception):
    """Rows that must be looked at one by one; they may be right all the same."""


@dataclass(frozen=True)
class Microdata:
    """A universe's Parquet and text file, and what their columns must hold.

    is_private : whether the files must be without the stamp of a run that is not.
    """

    parquet: Path
    text: Path
    layout: Layout
    cells: Cells
    is_private: bool

    @classmethod
    def of(cls, directory: Path, layout: Layout, cells: Cells, is_private: bool) -> Microdata:
        """The files of a universe in a release directory."""
        stem = directory / f"mdf_{cells.universe}"
        parquet, text = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
        return cls(parquet, text, layout, cells, is_private)

    @cached_property
    def place(self) -> list[LayoutColumn]:
        """The columns with characters of the geocode, in their order there."""
        columns = [column for column in self.layout.columns if column.digits]
        return sorted(columns, key=lambda column: column.digits or (0, 0))

    @cached_property
    def header(self) -> bytes:
        """What the text must begin with."""
        stamp = b"" if self.is_private else STAMP_LINE
        return stamp + f"{'|'.join(self.layout.names)}\n".encode()

    @cached_property
    def widths(self) -> dict[str, int]:
        """Characters of every column's codes, but for numbers of rows; raises NotSeenRight."""
        widths = {}
        for column in self.layout.columns:
            lengths = {len(code) for code in self._texts(column)}
            if not column.is_number:
                if len(lengths) != 1 or any(not code.isascii() for code in self._texts(column)):
                    raise NotSeenRight(f"{column.name} has codes of several widths")
                widths[column.name] = lengths.pop()
        return widths

    def _texts(self, column: LayoutColumn) -> list[str]:
        further = self.layout.further.get(column.name)
        texts = [*column.codes, *([] if further is None else [further])]
        if column.constant is not None:
            texts.append(column.constant)
        if column.digits is not None:
            texts.append("0" * (column.digits[1] - column.digits[0]))
        return texts

    def bytes_before(self, row: int) -> int:
        """Where a row begins in the text."""
        n_numbers = sum(column.is_number for column in self.layout.columns)
        digits = row + sum(max(0, row - 10**power) for power in range(1, 19))
        width = sum(self.widths.values()) + len(self.layout.columns)
        return len(self.header) + row * width + n_numbers * digits


@dataclass(frozen=True)
class ExpectedBlocks:
    """Blocks whose rows stand together.

    geocode : (n_blocks,) ascending, as numbers. estimates : those of the blocks, which are numbered
    as in `geocode`. facilities : (n_blocks,) further records that each has.
    """

    geocode: np.ndarray
    estimates: LevelEstimates
    facilities: np.ndarray


def see_ends(files: Microdata) -> None:
    """The columns and stamps of both files, and the length of the text, are right, or NotSeenRight.

    Where every row from the first to the last is seen to be right as well, so are the files.
    """
    with opened(files.parquet, files.layout.names) as file:
        is_right = file.schema_arrow.names == files.layout.names
        is_right &= is_stamped(files.parquet) != files.is_private
        n_bytes = files.bytes_before(file.metadata.num_rows)
    with files.text.open("rb") as text:
        is_right &= text.read(len(files.header)) == files.header
    if not is_right or files.text.stat().st_size != n_bytes:
        raise NotSeenRight("the ends of the files")


def see_blocks(files: Microdata, blocks: ExpectedBlocks) -> tuple[int, int]:
    """The rows of the blocks in the Parquet file and in the text are right, or NotSeenRight.

    Rows from the first that is not before the first block to the first that is after the last are
    those of the blocks, as many in each cell as its estimate and as many further records as there
    are facilities, numbered as they stand, with constants as due and columns that follow from
    others in agreement; and the text has the same bytes in their place.

    Returns the number of the first row and that of the row after the last.
    """
    count, facilities = blocks.estimates.count.copy(), blocks.facilities.copy()
    texts = [column.name for column in files.layout.columns if not column.is_number]
    begun: int | None = None
    with opened(files.parquet, files.layout.names, texts) as file, files.text.open("rb") as text:
        ended = file.metadata.num_rows
        for first, batch in _batches_from(file, files, int(blocks.geocode[0])):
            rows = Rows.decoded(batch, files.layout)
            geocode = rows.geocodes(files.place, files.widths)
            is_reached = geocode >= blocks.geocode[0]
            if begun is None and not is_reached.any():
                continue
            start = 0 if begun is not None else int(np.argmax(is_reached))
            is_later = geocode[start:] > blocks.geocode[-1]
            stop = start + int(np.argmax(is_later)) if is_later.any() else batch.num_rows
            begun = first + start if begun is None else begun
            rows, geocode = rows.between(start, stop), geocode[start:stop]
            block = np.searchsorted(blocks.geocode, geocode)
            block[block == blocks.geocode.size] = 0
            _require(blocks.geocode[block] == geocode)
            cell, is_own = rows.cells(files.layout, files.cells, _NoFailure())
            keys = block[is_own] * files.cells.n + cell[is_own]
            _subtract(keys, blocks.estimates.key, count)
            np.subtract.at(facilities, block[~is_own], 1)
            _compare(text, files, rows, first + start)
            if stop < batch.num_rows:
                ended = first + stop
                break
    _require(count == 0)
    _require(facilities == 0)
    return (ended if begun is None else begun), ended


class _NoFailure(Failures):
    """Raises NotSeenRight for the first failure."""

    def add(self, text: str, count: int = 1) -> None:
        raise NotSeenRight(text)


def _require(is_right: np.ndarray) -> None:
    if not is_right.all():
        raise NotSeenRight("rows")


@dataclass(frozen=True)
class Rows:
    """Rows of a batch: of each column of texts the distinct ones and the number of every row's.

    numbers : by column, numbers of rows.
    """

    n: int
    texts: Mapping[str, tuple[Sequence[str], np.ndarray]]
    numbers: Mapping[str, np.ndarray]

    @classmethod
    def decoded(cls, batch: pa.RecordBatch, layout: Layout) -> Rows:
        """The rows of a batch; raises UnusableRunFile for a missing code."""
        texts, numbers = {}, {}
        for column in layout.columns:
            values = batch.column(column.name)
            if values.null_count:
                raise UnusableRunFile(f"a {column.name} is missing")
            if column.is_number:
                numbers[column.name] = pc.cast(values, pa.int64()).to_numpy()
            else:
                coded = encoded(values)
                texts[column.name] = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        return cls(batch.num_rows, texts, numbers)

    def geocodes(self, place: Sequence[LayoutColumn], widths: Mapping[str, int]) -> np.ndarray:
        """Each row's block as a number, `(n,)`; raises NotSeenRight for what is none."""
        geocode = np.zeros(self.n, dtype=np.int64)
        for column in place:
            width = widths[column.name]
            distinct, index = self.texts[column.name]
            if not all(len(t) == width and t.isascii() and t.isdigit() for t in distinct):
                raise NotSeenRight("geocodes")
            parts = np.array([int(text) for text in distinct], dtype=np.int64)
            geocode = geocode * 10**width + parts[index]
        return geocode

    def between(self, start: int, stop: int) -> Rows:
        """Those from one position to another."""
        here = slice(start, stop)
        texts = {name: (distinct, index[here]) for name, (distinct, index) in self.texts.items()}
        numbers = {name: values[here] for name, values in self.numbers.items()}
        return Rows(stop - start, texts, numbers)

    def has(self, name: str, text: str) -> np.ndarray:
        """Which rows have this text in a column."""
        distinct, index = self.texts[name]
        return np.array([value == text for value in distinct], dtype=bool)[index]

    def levels(self, columns: Sequence[LayoutColumn]) -> np.ndarray:
        """Level whose codes the columns of an attribute have together in each row, -1 for none."""
        found = [self.texts[column.name] for column in columns]
        level_of = np.full([len(distinct) for distinct, _ in found], -1)
        for level, codes in enumerate(zip(*(column.codes for column in columns), strict=True)):
            pairs = list(zip(codes, found, strict=True))
            if all(code in distinct for code, (distinct, _) in pairs):
                level_of[tuple(distinct.index(code) for code, (distinct, _) in pairs)] = level
        return level_of[tuple(index for _, index in found)]

    def cells(
        self, layout: Layout, cells: Cells, failures: Failures
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cell of each row, and which rows are of the universe itself and right.

        Rows that are neither of the universe nor further records are failures, and count as
        further; so are other constants than those of the layout. Raises UnusableRunFile for a
        layout that does not tell an attribute.
        """
        is_further = np.full(self.n, bool(layout.further))
        for name, text in layout.further.items():
            is_further &= self.has(name, text)
        is_right = np.ones(self.n, dtype=bool)
        for column in layout.columns:
            if column.constant is None:
                continue
            is_same = self.has(column.name, column.constant)
            if column.name in layout.further:
                is_right &= is_same
            else:
                failures.add_each(~is_same, f"a {column.name} is not {column.constant}")
        cell = np.zeros(self.n, dtype=np.int64)
        for attribute, size in cells.sizes.items():
            columns = [column for column in layout.columns if column.attribute == attribute]
            if len(set(zip(*(column.codes for column in columns), strict=True))) != size:
                raise UnusableRunFile(
                    f"no column of {cells.universe} tells {attribute} of its schema"
                )
            level = self.levels(columns)
            is_right &= level >= 0
            cell = cell * size + level
        failures.add_each(
            ~is_right & ~is_further,
            f"the codes of a row of {cells.universe} are none that its columns have together",
        )
        return cell, is_right & ~is_further


def _batches_from(
    file: pq.ParquetFile, files: Microdata, geocode: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches, with the number of their first rows, from one that may have a block's first row."""
    metadata = file.metadata
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    starts = list(accumulate(sizes, initial=0))
    filled = [i for i, size in enumerate(sizes) if size]
    place = [column.name for column in files.place]

    def first_geocode(group: int) -> int:
        row = next(file.iter_batches(batch_size=1, row_groups=[group], columns=place))
        return int("".join(str(row.column(name)[0].as_py()) for name in place))

    before = max(0, bisect_left(filled, geocode, key=first_geocode) - 1)
    at = starts[filled[before]] if filled else 0
    groups = filled[before:]
    for batch in file.iter_batches(
        batch_size=ROWS_PER_BATCH, row_groups=groups, columns=files.layout.names
    ):
        yield at, batch
        at += batch.num_rows


def _subtract(keys: np.ndarray, known: np.ndarray, count: np.ndarray) -> None:
    """Take rows with these keys off the counts of the known keys, which ascend."""
    if not keys.size:
        return
    if (keys[1:] < keys[:-1]).any():
        keys = np.sort(keys)
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    distinct = keys[starts]
    where = np.searchsorted(known, distinct)
    _require(where < known.size)
    _require(known[where] == distinct)
    count[where] -= np.diff(starts, append=keys.size)


def _compare(text: BinaryIO, files: Microdata, rows: Rows, first: int) -> None:
    """The text has the rows from number `first` on, byte by byte."""
    n = rows.n
    # Numbers of as many digits are in lines of one length.
    cuts = [10**power for power in range(1, 19) if first < 10**power < first + n]
    for start, stop in zip([first, *cuts], [*cuts, first + n], strict=True):
        here = rows.between(start - first, stop - first)
        lines = _lines(files, here, start)
        text.seek(files.bytes_before(start))
        if text.read(lines.nbytes) != lines.tobytes():
            raise NotSeenRight("text")


def _lines(files: Microdata, rows: Rows, first: int) -> np.ndarray:
    """The lines of rows whose numbers, from `first` on, have one number of digits."""
    n, names = rows.n, files.layout.names
    numbers = np.arange(first, first + n)
    widths = {name: len(str(first)) for name in rows.numbers} | files.widths
    lines = np.empty(n, dtype=[(name, f"S{widths[name] + 1}") for name in names])
    for name in names:
        end = b"\n" if name == names[-1] else b"|"
        if name in rows.numbers:
            _require(rows.numbers[name] == numbers)
            lines[name] = _spelled(numbers, widths[name], end)
        else:
            distinct, index = rows.texts[name]
            coded = np.array([text.encode() + end for text in distinct], lines.dtype[name])
            lines[name] = coded[index]
    return lines


def _spelled(numbers: np.ndarray, width: int, end: bytes) -> np.ndarray:
    """Numbers of `width` digits as texts, with an end."""
    digits = np.empty((numbers.size, width + 1), dtype=np.uint8)
    digits[:, width] = end[0]
    rest: np.ndarray = numbers.astype(np.uint32 if width < 10 else np.uint64)
    for place in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        digits[:, place] = digit + ord("0")
    return digits.view(f"S{width + 1}").ravel()
