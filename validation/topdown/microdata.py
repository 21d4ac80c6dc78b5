"""Microdata: the released rows tabulate to the block estimates, in both file formats.

The layout comes as plain facts, and codes are decoded here, not with the code that wrote them. Both
files are read in batches and in the order of their blocks, beside the
estimates of some ten thousand blocks at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..outcome import Failures
from ..run_files import (
    ROWS_PER_BATCH,
    UnusableRunFile,
    check_stamp,
    head_of_text,
    opened_text,
    positions,
)
from .cells import Cells
from .coded_rows import Rows
from .conservation import LevelEstimates
from .layout import Layout, LayoutColumn
from .run_files import RunSpine, SpineLevel
from .spine_parts import BLOCKS_PER_PART
from .table_rows import pairs_of_rows


@dataclass(frozen=True)
class Microdata:
    """A universe's Parquet and text file, and what their columns must hold.

    stem : their path without ending. is_private : whether they must be without the stamp of a run
    that is not.
    """

    stem: Path
    layout: Layout
    cells: Cells
    is_private: bool

    @cached_property
    def place(self) -> list[LayoutColumn]:
        """The columns with characters of the geocode, in their order there."""
        columns = [column for column in self.layout.columns if column.digits]
        return sorted(columns, key=lambda column: column.digits or (0, 0))


EstimatesOf = Callable[[SpineLevel], LevelEstimates]
"""The estimates of a part of the geolevel Block."""


def check_microdata(
    files: Microdata,
    spine: RunSpine,
    estimates_of: EstimatesOf,
    failures: Failures,
    *,
    facilities: pa.Table | None = None,
    blocks_per_part: int = BLOCKS_PER_PART,
) -> None:
    """The rows of a universe are those of the block estimates.

    The columns and codes are those of the layout, the rows of each block and cell are as many as
    its estimate, rows follow the order of the blocks' geocodes (as far as the parts in which they
    are checked tell), columns that follow from others agree with them, text and Parquet agree row
    by row, and the stamp is there exactly if due. Where the layout has further records, each block
    has as many of them as `facilities` (block_geocode, facilities) says.

    Raises UnusableRunFile for a missing file or other columns, and Arrow's exceptions for files
    that cannot be parsed.
    """
    layout, cells, n_facilities = files.layout, files.cells, None
    if layout.further:
        if facilities is None:
            raise UnusableRunFile("the number of facilities of each block is not known")
        n_facilities = _facilities_of_blocks(spine, facilities, failures)
    expected = _ExpectedRows(spine, estimates_of, failures, blocks_per_part, n_facilities)
    n_rows = 0
    names = layout.names
    for batch in agreeing_batches(files.stem, names, files.is_private, failures):
        read = Rows.decoded(batch, layout)
        for name, numbers in read.numbers.items():
            _check_row_numbers(name, numbers, n_rows, failures)
        cell, is_own = read.cells(layout, cells, failures)
        n_rows += batch.num_rows
        for rows, block in expected.placed(_geocodes(batch, files.place)):
            failures.add_each(block < 0, lambda _: f"a row of {cells.universe} is {_MISPLACED}")
            valid = is_own[rows] & (block >= 0)
            expected.subtract(block[valid] * cells.n + cell[rows[valid]])
            if layout.further:
                expected.subtract_facilities(block[~is_own[rows] & (block >= 0)])
    expected.finish()


_MISPLACED = "in a block outside the spine, or stands after rows of blocks that come later"


def _facilities_of_blocks(spine: RunSpine, facilities: pa.Table, failures: Failures) -> np.ndarray:
    """Facilities of each of the spine's blocks, in the order of its blocks."""
    count = facilities["facilities"].to_numpy().astype(np.int64)
    place = positions(facilities["block_geocode"], spine.block_geocode)
    failures.add_each((place < 0) & (count > 0), lambda _: "a block with facilities is not known")
    n_facilities = np.zeros(len(spine.block_geocode), dtype=np.int64)
    n_facilities[place[place >= 0]] = count[place >= 0]
    return n_facilities


class _ExpectedRows:
    """The rows that blocks must have and that have not been seen, for some blocks at a time.

    Blocks are taken in the order of their geocodes, as rows come.
    """

    def __init__(
        self,
        spine: RunSpine,
        estimates_of: EstimatesOf,
        failures: Failures,
        blocks_per_part: int,
        n_facilities: np.ndarray | None = None,
    ) -> None:
        self._spine, self._estimates_of, self._failures = spine, estimates_of, failures
        order = pc.sort_indices(spine.block_geocode).to_numpy()
        self._parts = [
            order[i : i + blocks_per_part] for i in range(0, order.size, blocks_per_part)
        ]
        no_facilities = np.zeros(order.size, dtype=np.int64)
        self._n_facilities = no_facilities if n_facilities is None else n_facilities
        self._open()

    def _open(self) -> None:
        blocks = self._parts.pop(0)
        self.geocode = self._spine.block_geocode.take(pa.array(blocks))
        geounits = self._spine.ancestors[-1][blocks]
        self.level = self._spine.levels[-1].part(geounits, np.full(geounits.size, -1))
        self.estimates = self._estimates_of(self.level)
        self.count = self.estimates.count.copy()
        self.facilities = self._n_facilities[blocks]
        self.n_outside = 0

    def placed(self, geocode: pa.StringArray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of the rows with these block geocodes, and each one's position in the blocks
        whose rows are expected now, -1 where it is none of them; blocks of another part follow.
        """
        rows = np.arange(len(geocode))
        while True:
            here = np.ones(rows.size, dtype=bool)
            if self._parts:
                is_later = pc.greater(geocode, self.geocode[-1])
                here = ~is_later.to_numpy(zero_copy_only=False)
            yield rows[here], positions(geocode.filter(pa.array(here)), self.geocode)
            if here.all():
                return
            rows, geocode = rows[~here], geocode.filter(pa.array(~here))
            self._close()
            self._open()

    def subtract_facilities(self, blocks: np.ndarray) -> None:
        """Take facility rows of these blocks off."""
        np.subtract.at(self.facilities, blocks, 1)

    def finish(self) -> None:
        """Record what is still missing, in all blocks that are left."""
        self._close()
        while self._parts:
            self._open()
            self._close()

    def subtract(self, keys: np.ndarray) -> None:
        """Take rows off; those of a cell without estimate are counted apart."""
        distinct, times = np.unique(keys, return_counts=True)
        where = np.searchsorted(self.estimates.key, distinct)
        found = np.zeros(distinct.size, dtype=bool)
        inside = where < self.estimates.key.size
        found[inside] = self.estimates.key[where[inside]] == distinct[inside]
        self.count[where[found]] -= times[found]
        self.n_outside += int(times[~found].sum())

    def _close(self) -> None:
        """Record the cells and blocks whose rows are not as many as they should be."""
        if self.n_outside:
            self._failures.add("rows stand in a cell whose estimate is zero", count=self.n_outside)
        self._failures.add_each(
            self.count != 0,
            lambda i: (
                f"{self.level.describe(self.estimates.geounit[i])} has another number of "
                f"rows than its estimate in cell {self.estimates.cell[i]}"
            ),
        )
        self._failures.add_each(
            self.facilities != 0,
            lambda i: f"block {self.geocode[i]} does not have its number of facility rows",
        )


def _check_row_numbers(name: str, numbers: np.ndarray, first: int, failures: Failures) -> None:
    failures.add_each(
        numbers != np.arange(first, first + numbers.size),
        lambda i: f"the {name} of row {first + i} is another number",
    )


def _geocodes(batch: pa.RecordBatch, place: Sequence[LayoutColumn]) -> pa.Array:
    parts = [batch.column(column.name).cast(pa.string()) for column in place]
    return pc.binary_join_element_wise(*parts, "")


def agreeing_batches(
    stem: Path,
    columns: Sequence[str],
    is_private: bool,
    failures: Failures,
    *,
    has_quotes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows of a Parquet file of these columns, compared on the way with those of the text beside
    it; texts are dictionaries."""
    parquet, text = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    for path in (parquet, text):
        if not path.is_file():
            raise UnusableRunFile(f"the file {path.name} of the release is missing")
    types = pq.read_schema(parquet).remove_metadata()
    if types.names != columns:
        raise UnusableRunFile(f"{parquet.name} has other columns than {', '.join(columns)}")
    head_of_text(text, types.names)
    for path in (parquet, text):
        check_stamp(path, is_private=is_private, failures=failures)
    # Texts as the file has them, each distinct one once, take half of the time.
    with (
        pq.ParquetFile(parquet, read_dictionary=types.names) as file,
        opened_text(text, types, has_quotes=has_quotes) as lines,
    ):
        batches = file.iter_batches(batch_size=ROWS_PER_BATCH)
        yield from _compared(batches, lines, stem.name, failures)


def _compared(
    left: Iterator[pa.RecordBatch],
    right: Iterator[pa.RecordBatch],
    name: str,
    failures: Failures,
) -> Iterator[pa.RecordBatch]:
    """All rows of `left`, after comparing them with those of `right`."""
    n_compared = 0
    for one, other in pairs_of_rows(left, right):
        if one is None:
            failures.add(f"{name}.csv has too many rows")
            return
        if other is None:
            failures.add(f"{name}.csv has too few rows", count=one.num_rows)
        else:
            for column in one.schema.names:
                of_text = other.column(column)
                values = one.column(column).cast(of_text.type)
                if not values.equals(of_text):
                    differ = f"{name}.parquet and {name}.csv differ in {column}"
                    _refuse_rows(pc.not_equal(values, of_text), differ, n_compared, failures)
            n_compared += one.num_rows
        yield one


def _refuse_rows(wrong: pa.Array, differ: str, first: int, failures: Failures) -> None:
    failures.add_each(wrong, lambda i: f"{differ} of row {first + i}")
