"""Sections of released files, found by bisection: rows of Parquet, and lines of a text."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..run_files import ROWS_PER_BATCH, is_stamped

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
