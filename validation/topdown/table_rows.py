"""Rows of the tables of a release, state by state in their order, and of two files side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..run_files import UnusableRunFile, encode_texts, open_parquet
from .sections import rows_between

STATE = "STATE"
ROWS_PER_BATCH = 1 << 13


def wide_batches(
    file: pq.ParquetFile, columns: Sequence[str] | None = None, rows: range | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of a table of hundreds of columns, all or some, as many at a time of every file."""
    rows = range(file.metadata.num_rows) if rows is None else rows
    # Batches have few rows: threads would take longer to be handed the columns.
    return rows_between(file, rows, columns, ROWS_PER_BATCH, use_threads=False)


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
        the table does not have it."""
        names = self.schema.names if columns is None else list(columns)
        for batch in wide_batches(self._file, names, self.ranges.get(state, range(0))):
            yield batch.select(names)


def gather_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of some thousand or more, combined from smaller ones."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= ROWS_PER_BATCH:
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
