"""Microdata: the released rows tabulate to the estimates of all areas, in both file formats.

Codes are decoded here, not with the code that wrote them. Both files are read in batches and in the
order of their areas, together with the estimates of some ten thousand areas at a time.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ..outcome import Failures
from ..run_files import (
    ROWS_PER_BATCH,
    UnusableRunFile,
    check_stamp,
    head_of_text,
    is_stamped,
    number_texts,
    open_parquet,
    opened_text,
    pairs_of_rows,
    rows_between,
)
from .declaration import Cells
from .layout import SEPARATOR, Description, Layout, Rows
from .measurements import LevelEstimates, sum_counts
from .spine import BLOCKS_PER_PART, RunSpine, SpineLevel

MICRODATA = "microdata_tabulate_to_estimates"
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Microdata:
    """A universe's Parquet and text file, and the required content of their columns.

    stem : their path without ending. is_private : whether they must be without the stamp of a run
    that is not.
    """

    stem: Path
    layout: Layout
    cells: Cells
    is_private: bool


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """The rows of some areas, which follow each other in the order of their geocodes.

    areas : their positions.
    key : `position of the area among them * n_cells + cell`, ascending, and `count` how many
        records there are of each, `(n,)`; differently described records have several entries.
    described : `(n,)` the joined codes of the columns that describe them, where there are such.
    further : (n_areas,) further records.
    """

    areas: slice
    n_cells: int
    key: np.ndarray
    count: np.ndarray
    described: np.ndarray | None
    further: np.ndarray


IsBefore = Callable[[Sequence[str]], bool]
"""Whether the row with these codes is before a section."""


@dataclass(frozen=True)
class Sections:
    """The rows of some areas in a Parquet file, and the bytes of their lines in its text.

    Both are found by bisection, in files that have the areas in order. In others the sections of
    successive areas have every row and line once all the same, or are empty, so that a difference
    of the files shows.
    """

    rows: range
    text: tuple[int, int]

    @classmethod
    def of(cls, stem: Path, layout: Layout, level: SpineLevel, areas: tuple[int, int]) -> Sections:
        """The sections of the areas from one to another."""
        place = [i for i, column in enumerate(layout.columns) if column.is_of_area]
        columns = [layout.columns[i].name for i in place]
        text = stem.with_suffix(".csv")
        start = end_of_header(text)
        with open_parquet(stem.with_suffix(".parquet"), columns) as file, text_of(text) as lines:

            def first_of(area: int) -> tuple[int, int]:
                def is_before(codes: Sequence[str]) -> bool:
                    code = pa.array([SEPARATOR.join(codes)], pa.string())
                    return 0 <= level.positions(code)[0] < area

                def line_is_before(line: bytes) -> bool:
                    fields = line.decode(errors="replace").rstrip("\r\n").split("|")
                    return len(fields) > place[-1] and is_before([fields[i] for i in place])

                if area in (0, level.n):
                    return (file.metadata.num_rows, len(lines)) if area else (0, start)
                row = first_row(file, columns, is_before)
                return row, first_line(lines, start, line_is_before)

            (row, line), (end_of_rows, end_of_lines) = map(first_of, areas)
        return cls(range(row, end_of_rows), (line, end_of_lines))


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


EstimatesOf = Callable[[SpineLevel], LevelEstimates]
"""The estimates of a part of the last geolevel."""


def check_microdata(
    files: Microdata,
    spine: RunSpine,
    level: SpineLevel,
    estimates_of: EstimatesOf,
    failures: Failures,
    *,
    facilities: np.ndarray | None = None,
    areas_per_part: int = BLOCKS_PER_PART,
    share: tuple[int, int] = (0, 1),
) -> Iterator[ReleasedRows]:
    """Yield the rows of a universe, by groups of areas in order, which are those of the estimates;
    of the areas, the share i of n.

    The columns and codes are those of the layout, the rows of each area and cell are as many as its
    estimate, rows follow the order of the areas' geocodes (as far as visible from the parts in
    which they are checked), columns that follow from others agree with them, text and Parquet agree
    row by row, and the stamp is there exactly if due. `level` has the areas by their codes,
    `facilities` (n_areas,) says how many further records each must have where the layout has such.

    Raises UnusableRunFile for a missing file or other columns, and Arrow's exceptions for files
    that cannot be parsed.
    """
    for rows in _rows_in_parts(files, level, areas_per_part, share, failures):
        leaves = spine.leaves(rows.areas)
        _compare(rows, estimates_of(leaves), leaves, failures)
        if facilities is not None:
            failures.add_each(
                rows.further != facilities[rows.areas],
                "a block does not have its number of facility rows",
            )
        yield rows


def check_company(
    declared: Mapping[str, Any], rows: ReleasedRows, cells: Cells, failures: Failures
) -> None:
    """Check that no area has rows that an agreement of the kind `accompanied` is on without rows of
    those that accompany them, nor more for each of these than declared."""
    area, cell = np.divmod(rows.key, rows.n_cells)
    n_areas = rows.areas.stop - rows.areas.start
    own, companions = (
        np.bincount(area, rows.count * cells.where(declared[key])[cell], n_areas)
        for key in ("where", "of")
    )
    is_alone = own > declared["at_most"] * companions
    failures.add_each(is_alone, f"an area breaks {declared['name']} of {cells.universe}")


def check_description(
    description: Description,
    rows: ReleasedRows,
    cells: Cells,
    counts: sparse.csr_array,
    failures: Failures,
) -> None:
    """Compare rows with the records of the other universe, `(n_areas, n_cells)`: in every area and
    answer by which they are matched, rows have the codes of its records, as often as these; which
    row has which is free.
    """
    if rows.described is None:
        raise ValueError("the rows have no columns that describe them")
    area, cell = np.divmod(rows.key, rows.n_cells)
    answer = description.row[cell]
    otherwise = SEPARATOR.join(description.otherwise[name] for name in description.columns)
    is_alone = answer < 0
    failures.add_each(
        is_alone & (rows.described != otherwise),
        f"a row that no record of {description.universe} is matched with has its codes",
    )
    own = area, answer, rows.described, rows.count
    found = _numbers(*(values[~is_alone] for values in own))
    entries = sparse.coo_array(counts)
    distinct, place = np.unique(entries.col, return_inverse=True)
    codes = [
        np.array(codes, dtype=object)[cells.rows(query)[distinct]]
        for query, codes in description.columns.values()
    ]
    texts = np.array([SEPARATOR.join(own) for own in zip(*codes, strict=True)], dtype=object)
    matched = cells.rows(description.query)[entries.col]
    due = _numbers(entries.row, matched, texts[place.reshape(-1)], entries.data)
    differs = found.subtract(due, fill_value=0)
    failures.add_each(
        (differs != 0).to_numpy(),
        f"the rows of an area do not determine the records of {description.universe}",
    )


def _numbers(
    area: np.ndarray, answer: np.ndarray, text: np.ndarray, count: np.ndarray
) -> pd.Series:
    """Records by area, answer and codes."""
    frame = pd.DataFrame({"area": area, "answer": answer, "text": text, "count": count})
    return frame.groupby(["area", "answer", "text"])["count"].sum()


def _rows_in_parts(
    files: Microdata,
    level: SpineLevel,
    areas_per_part: int,
    share: tuple[int, int],
    failures: Failures,
) -> Iterator[ReleasedRows]:
    """The rows of a share of the areas, of so many at a time; rows out of their order are failures.
    A text that may have quotes is not cut, and the first share is all areas.
    """
    layout, cells, described = files.layout, files.cells, _DescribingCodes(files.layout)
    number, n_shares = share
    if layout.has_quotes:
        number, n_shares = min(number, 1), 1
    begin, end = (min(place, n_shares) * level.n // n_shares for place in (number, number + 1))
    if begin == end:
        return

    def part_at(number: int) -> _Part:
        first = begin + number * areas_per_part
        areas = slice(first, min(first + areas_per_part, end))
        return _Part(number, areas, cells.n, described)

    part = part_at(0)
    sections = Sections.of(files.stem, layout, level, (begin, end))
    n_rows = sections.rows.start
    for batch in agreeing_batches(
        files.stem,
        layout.names,
        failures,
        is_private=files.is_private,
        has_quotes=layout.has_quotes,
        sections=sections,
    ):
        read = Rows.decoded(batch, layout)
        for name, numbers in read.numbers.items():
            due = np.arange(n_rows, n_rows + numbers.size)
            failures.add_each(numbers != due, f"the {name} of a row is another number")
        n_rows += batch.num_rows
        cell, is_own = read.cells(layout, cells, failures)
        area, text = layout.areas(read, level), described.numbers(batch)
        own_part = (area - begin) // areas_per_part
        is_placed = (own_part >= part.number) & (area >= begin) & (area < end)
        failures.add_each(
            ~is_placed,
            f"a row of {cells.universe} is in an area outside the spine, or after rows of later "
            "areas",
        )
        last = int(own_part[is_placed].max(initial=part.number))
        for number in range(part.number, last + 1):
            if number > part.number:
                yield part.rows()
                part = part_at(number)
            here = is_placed & (own_part == number)
            within = area - part.areas.start
            own = here & is_own
            part.read.append((within[own] * cells.n + cell[own], text[own], read.count[own]))
            part.further.append(within[here & ~is_own])
    while part.areas.start < end:
        yield part.rows()
        part = part_at(part.number + 1)


class _DescribingCodes:
    """The codes of columns that describe rows, joined, numbered as they come."""

    def __init__(self, layout: Layout) -> None:
        self._columns = [] if layout.described is None else list(layout.described.columns)
        self._known: dict[str, int] = {} if self._columns else {"": 0}

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self._known)

    def numbers(self, batch: pa.RecordBatch) -> np.ndarray:
        """The number of each row's."""
        if not self._columns:
            return np.zeros(batch.num_rows, dtype=np.int64)
        parts = [batch.column(name).cast(pa.string()) for name in self._columns]
        distinct, number = number_texts(pc.binary_join_element_wise(*parts, SEPARATOR))
        found = [self._known.setdefault(text, len(self._known)) for text in distinct]
        return np.array(found, dtype=np.int64)[number]

    def texts(self, number: np.ndarray) -> np.ndarray | None:
        """The codes with these numbers; None where no columns describe rows."""
        return np.array(list(self._known), dtype=object)[number] if self._columns else None


@dataclass
class _Part:
    """Rows read so far of a part of the areas: keys, describing codes and counts; and the areas of
    further records."""

    number: int
    areas: slice
    n_cells: int
    described: _DescribingCodes
    read: list[tuple[np.ndarray, ...]] = field(default_factory=lambda: [(_NONE, _NONE, _NONE)])
    further: list[np.ndarray] = field(default_factory=lambda: [_NONE])

    def rows(self) -> ReleasedRows:
        """All that have been read."""
        areas, described = self.areas, self.described
        key, text, count = map(np.concatenate, zip(*self.read, strict=True))
        key, count = sum_counts(key * described.n + text, count)
        return ReleasedRows(
            areas,
            self.n_cells,
            key // described.n,
            count,
            described.texts(key % described.n),
            np.bincount(np.concatenate(self.further), minlength=areas.stop - areas.start),
        )


def _compare(
    rows: ReleasedRows, estimates: LevelEstimates, level: SpineLevel, failures: Failures
) -> None:
    """The rows of each area and cell are as many as its estimate."""
    key, difference = sum_counts(
        np.concatenate([rows.key, estimates.key]), np.concatenate([rows.count, -estimates.count])
    )
    key, difference = key[difference != 0], difference[difference != 0]
    is_estimated = np.isin(key, estimates.key)
    if not is_estimated.all():
        n_outside = int(np.abs(difference[~is_estimated]).sum())
        failures.add("rows are in a cell whose estimate is zero", count=n_outside)
    failures.add_each(
        is_estimated,
        lambda i: (
            f"{level.describe(key[i] // rows.n_cells)} has another number of rows than its "
            f"estimate in cell {key[i] % rows.n_cells}"
        ),
    )


def agreeing_batches(
    stem: Path,
    names: Sequence[str],
    failures: Failures,
    *,
    is_private: bool,
    has_quotes: bool,
    sections: Sections | None = None,
    delimiter: str = "|",
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a Parquet file of these columns, compared with those of its text file, all or
    those of sections of both; texts are dictionaries."""
    parquet, text = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    for path in (parquet, text):
        if not path.is_file():
            raise UnusableRunFile(f"the file {path.name} of the release is missing")
    types = pq.read_schema(parquet).remove_metadata()
    if types.names != list(names):
        raise UnusableRunFile(f"{parquet.name} has other columns than {', '.join(names)}")
    head_of_text(text, types.names, delimiter)
    if sections is None or not sections.rows.start:
        for path in (parquet, text):
            check_stamp(path, is_private=is_private, failures=failures)
    section = None if sections is None else sections.text
    # Texts as the file has them, each distinct one once, take half of the time.
    with (
        pq.ParquetFile(parquet, read_dictionary=types.names) as file,
        opened_text(
            text, types, has_quotes=has_quotes, section=section, delimiter=delimiter
        ) as lines,
    ):
        batches = file.iter_batches(batch_size=rows_per_batch)
        if sections is not None:
            batches = rows_between(file, sections.rows)
        yield from _compare_batches(batches, lines, stem.name, failures)


def _compare_batches(
    left: Iterator[pa.RecordBatch],
    right: Iterator[pa.RecordBatch],
    name: str,
    failures: Failures,
) -> Iterator[pa.RecordBatch]:
    """All rows of `left`, after comparing them with `right`."""
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
                    failures.add_each(pc.not_equal(values, of_text), differ)
        yield one
