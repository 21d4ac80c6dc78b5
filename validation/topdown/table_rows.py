"""Rows of released files: sections found by bisection, states in order, two files side by side."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..run_files import ROWS_PER_BATCH, UnusableRunFile, encode_texts, is_stamped, open_parquet

STATE = "STATE"
WIDE_ROWS_PER_BATCH = 1 << 13
IsBefore = Callable[[Sequence[str]], bool]
"""Whether the row with these codes is before a section."""


@contextmanager
def text_of(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a text that is not empty, mapped."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield mapped


def end_of_header(path: Path) -> int:
    """Offset of the first line of a text after its stamp, if there is one, and its header."""
    with path.open("rb") as text:
        for _ in range(1 + is_stamped(path)):
            text.readline()
        return text.tell()


def first_line(text: mmap.mmap, start: int, is_before: Callable[[bytes], bool]) -> int:
    """Offset of the first line from `start` on that is not before a section, in a text ordered
    so."""
    low, high = start, len(text)
    while low < high:
        middle = (low + high) // 2
        line = max(text.rfind(b"\n", low, middle) + 1, low)
        end = text.find(b"\n", middle) + 1 or len(text)
        if is_before(text[line:end]):
            low = end
        else:
            high = line
    return low


def first_row(file: pq.ParquetFile, columns: Sequence[str], is_before: IsBefore) -> int:
    """Number of the first row that is not before a section, in a file ordered so."""

    def is_not_before(group: pa.Table, row: int) -> bool:
        return not is_before([str(group[name][row].as_py()) for name in columns])

    def begins_not_before(number: int) -> bool:
        return is_not_before(file.read_row_group(number, columns), 0)

    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    number = bisect_left(range(len(sizes)), True, key=begins_not_before)
    if not number:
        return 0
    group = file.read_row_group(number - 1, columns)
    row = bisect_left(range(len(group)), True, key=lambda row: is_not_before(group, row))
    return sum(sizes[: number - 1]) + row


def rows_between(
    file: pq.ParquetFile,
    rows: range,
    columns: Sequence[str] | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    *,
    use_threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Some rows of a file in batches; reads only the row groups that have them."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = list(accumulate(sizes, initial=0))
    groups = [i for i in range(len(sizes)) if starts[i] < rows.stop and starts[i + 1] > rows.start]
    at = starts[groups[0]] if groups else 0
    for batch in file.iter_batches(rows_per_batch, groups, columns, use_threads=use_threads):
        first, stop = max(0, rows.start - at), min(batch.num_rows, rows.stop - at)
        at += batch.num_rows
        if first < stop:
            yield batch.slice(first, stop - first)


def wide_batches(
    file: pq.ParquetFile, columns: Sequence[str] | None = None, rows: range | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of a table of hundreds of columns, all or some, as many at a time of every file."""
    rows = range(file.metadata.num_rows) if rows is None else rows
    # Batches have few rows: threads would take longer to be handed the columns.
    return rows_between(file, rows, columns, WIDE_ROWS_PER_BATCH, use_threads=False)


class TableRows:
    """Columns of a table, read state by state.

    ranges : rows of each state, in the table's order. Raises UnusableRunFile for a table without
        states or one of the columns, or if the rows of a state are not consecutive.
    """

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        self._file = open_parquet(path, [STATE, *columns], [STATE])
        fields = self._file.schema_arrow.remove_metadata()
        self.schema = pa.schema([fields.field(name) for name in columns])
        self.ranges: dict[str, range] = {}
        self._ahead: dict[tuple[str, ...], tuple[int, Iterator[pa.RecordBatch]]] = {}
        n_rows = 0
        for batch in wide_batches(self._file, [STATE]):
            column = encode_texts(batch.column(STATE)).to_pandas()
            starts = column.ne(column.shift()).to_numpy().nonzero()[0].tolist()
            for start, stop in zip(starts, [*starts[1:], len(column)], strict=True):
                state, first = column.iloc[start], n_rows + start
                before = self.ranges.get(state, range(first, first))
                if before.stop != first:
                    raise UnusableRunFile(f"the rows of a state in {path.name} are not consecutive")
                self.ranges[state] = range(before.start, n_rows + stop)
            n_rows += len(column)

    def __enter__(self) -> TableRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def of_state(
        self, state: str, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a state, some thousand at a time, with some of the columns or all; none if
        the table does not have it. States are read in order: several share a row group."""
        if state not in self.ranges:
            return
        rows, names = self.ranges[state], tuple(columns or self.schema.names)
        at, batches = self._ahead.pop(names, (rows.stop, iter(())))
        if at > rows.start:
            further = range(rows.start, self._file.metadata.num_rows)
            at, batches = rows.start, wide_batches(self._file, list(names), further)
        for batch in batches:
            first, stop = max(0, rows.start - at), min(batch.num_rows, rows.stop - at)
            if first < stop:
                yield batch.slice(first, stop - first).select(names)
            if at + batch.num_rows >= rows.stop:
                self._ahead[names] = at, chain([batch], batches)
                return
            at += batch.num_rows


def gather_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of some thousand or more, combined from smaller ones."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= WIDE_ROWS_PER_BATCH:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def have_same_rows(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> bool:
    """Whether batches hold the same rows, wherever each side cuts them."""
    for one, other in pairs_of_rows(left, right):
        if one is None or other is None or not one.equals(other):
            return False
    return True


def pairs_of_rows(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
    """Batches of as many rows from both sides, None for the side that has ended before: for every
    batch of the left, or once for the right.
    """
    waiting: pa.RecordBatch | None = None
    right = (batch for batch in right if batch.num_rows)
    for batch in left:
        while batch.num_rows:
            if waiting is None:
                waiting = next(right, None)
            if waiting is None:
                yield batch, None
                break
            n = min(batch.num_rows, waiting.num_rows)
            yield batch.slice(0, n), waiting.slice(0, n)
            batch = batch.slice(n)
            waiting = waiting.slice(n) if n < waiting.num_rows else None
    if waiting is None:
        waiting = next(right, None)
    if waiting is not None:
        yield None, waiting
