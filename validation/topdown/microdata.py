"""Microdata: the released rows tabulate to the estimates of all areas.

The layout of a universe's columns is declared. Codes are decoded here, not with the code that wrote
them. The Parquet file is read in batches and in the order of its areas, together with the estimates
of some ten thousand areas at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ..outcome import Failures
from ..run_files import UnusableRunFile, number_texts, open_parquet, rows_between
from .declaration import TOTAL, Cells, Declaration, PublicAreas
from .spine import BLOCKS_PER_PART, RunSpine, SpineLevel

MICRODATA = "microdata_tabulate_to_estimates"


SEPARATOR = "\x1f"
"""Between codes that are joined to one text."""


@dataclass(frozen=True, eq=False)
class Description:
    """Columns that another universe, which is matched with the records, says more of them by.

    row : (n_cells,) the answer of `query`, of the other universe, that each cell's records are
    matched in, -1 for none. columns : by name, a query of the other universe, and the code of each
    of its answers. otherwise : the codes of records that are matched with none.
    """

    universe: str
    query: str
    row: np.ndarray
    columns: Mapping[str, tuple[str, Sequence[str]]]
    otherwise: Mapping[str, str]


@dataclass(frozen=True)
class LayoutColumn:
    """A column of microdata, and its required content; one of the five is given.

    constant : the same text in every row.
    digits : characters of the block's geocode, end exclusive.
    geolevel : the code of the area's geounit of a declared geolevel.
    is_number : the number of the row, from 0.
    attribute : the code of its level, with one in `codes` for each; where two levels share a code,
        further columns distinguish them.
    """

    name: str
    constant: str | None = None
    digits: tuple[int, int] | None = None
    geolevel: str | None = None
    is_number: bool = False
    attribute: str | None = None
    codes: tuple[str, ...] = ()

    @property
    def is_of_area(self) -> bool:
        """Whether it says where a row is."""
        return self.digits is not None or self.geolevel is not None


@dataclass(frozen=True)
class Layout:
    """The columns of a universe's microdata in their order.

    further : the values that the rows of further records, such as facilities, have in some columns.
    described : the columns after the others that another universe fills.
    count : the last column, the number of records of a row; None for one.
    has_quotes : whether texts may be quoted.
    """

    columns: tuple[LayoutColumn, ...]
    further: Mapping[str, str] = field(default_factory=dict)
    described: Description | None = None
    count: str | None = None
    has_quotes: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        described = () if self.described is None else self.described.columns
        counted = () if self.count is None else (self.count,)
        return [*(column.name for column in self.columns), *described, *counted]

    def area_level(self, areas: PublicAreas, spine: RunSpine) -> SpineLevel:
        """The areas of a spine, each by the codes that its rows have of it, joined.

        Raises UnusableRunFile for areas of which two have the same codes.
        """
        codes = []
        for column in self.columns:
            if column.geolevel is not None:
                codes.append(areas.codes(column.geolevel).cast(pa.string()))
            elif column.digits is not None:
                codes.append(pc.utf8_slice_codeunits(spine.area_geocode, *column.digits))
        joined = pc.binary_join_element_wise(*codes, SEPARATOR)
        if pc.count_distinct(joined).as_py() < len(joined):
            raise UnusableRunFile("the columns of the microdata do not identify all areas")
        none = np.zeros(len(joined), dtype=np.int64)
        return SpineLevel("area", joined, none, (), none, none > 0, none)

    def areas(self, rows: Rows, level: SpineLevel) -> np.ndarray:
        """Number of each row's area, `(n_rows,)`, -1 for unknown codes; rows of one area are mostly
        consecutive, and are looked up once."""
        columns = [rows.texts[column.name] for column in self.columns if column.is_of_area]
        is_first = np.arange(rows.n) == 0
        for _, number in columns:
            is_first[1:] |= number[1:] != number[:-1]
        first = np.flatnonzero(is_first)
        codes = [
            pa.array(distinct, pa.string()).take(pa.array(n[first])) for distinct, n in columns
        ]
        area = level.positions(pc.binary_join_element_wise(*codes, SEPARATOR))
        return np.repeat(area, np.diff(first, append=rows.n))


def layout_of(declaration: Declaration, universe: str, areas: PublicAreas) -> Layout:
    """The layout of a universe's microdata: the declared one, or labels of areas and levels."""
    own, cells = declaration.universe(universe), declaration.cells(universe)
    geolevels = iter(() if declaration.has_digits else areas.code_columns)
    declared = own.get("microdata")
    if declared is None:
        places = tuple(LayoutColumn(name, geolevel=name) for name in geolevels)
        labels = tuple(
            LayoutColumn(name, attribute=name, codes=tuple(of)) for name, of in cells.labels.items()
        )
        return Layout((*places, *labels), count=own.get("count"), has_quotes=True)
    columns = []
    for column in _present(declared["columns"], cells, own["attributes"]):
        digits = column.get("digits")
        geolevel = None if digits is None else next(geolevels, None)
        attribute: str | None = None
        codes: tuple[str, ...] = ()
        if "attribute" in column:
            grouping = cells.grouping(column["attribute"])
            of_group = _codes(column, len(grouping.labels))
            attribute, codes = grouping.attribute, tuple(of_group[g] for g in grouping.groups)
        columns.append(
            LayoutColumn(
                column["name"],
                column.get("constant"),
                None if digits is None or geolevel is not None else tuple(digits),
                geolevel,
                column.get("number", False),
                attribute,
                codes,
            )
        )
    described = declared.get("described_by")
    return Layout(
        tuple(columns),
        declared.get("further", {}).get("values", {}),
        None if described is None else _description(declaration, universe, described),
    )


def _present(columns: Sequence[Mapping], cells: Cells, attributes: Sequence[str]) -> list[Mapping]:
    """The declared columns that a schema fills, followed by those of additional attributes in the
    settings and of those without a column."""
    of_attribute = {own.get("attribute"): own for own in columns}
    chosen = [name for name in cells.labels if name not in attributes]
    first = [
        own
        for own in columns
        if "attribute" not in own
        or (own["attribute"] not in chosen and cells.tells(own["attribute"]))
    ]
    last = [
        of_attribute.get(name, {"name": name.upper(), "attribute": name, "first": 0})
        for name in cells.labels
        if name in chosen or name not in of_attribute
    ]
    return first + last


def _codes(column: Mapping, n: int) -> list[str]:
    """The code of each level that a declared column has."""
    if "codes" in column:
        return list(column["codes"])
    return [str(column["first"] + i).zfill(column.get("width", 1)) for i in range(n)]


def _description(declaration: Declaration, universe: str, declared: Mapping) -> Description:
    """The columns filled by another universe, which is constrained to this one."""
    other = declared["universe"]
    later, cells = declaration.cells(other), declaration.cells(universe)
    held = next(
        own
        for own in declaration.universe(other)["held_to"]
        if "release" not in own and own["universe"] == universe
    )
    query, where = held.get("query", TOTAL), held.get("where", {})
    row = later.counted_of(cells, query, held.get("of", where), {})
    columns = {
        own["name"]: (own["attribute"], _codes(own, later.n_rows(own["attribute"])))
        for own in declared["columns"]
    }
    return Description(other, query, row, columns, declared["otherwise"])


@dataclass(frozen=True)
class Rows:
    """Rows of a batch: for each column of texts the distinct ones and the number of every row's.

    numbers : by column, numbers of rows.
    count : how many records each row represents.
    """

    n: int
    texts: Mapping[str, tuple[Sequence[str], np.ndarray]]
    numbers: Mapping[str, np.ndarray]
    count: np.ndarray

    @classmethod
    def decoded(cls, batch: pa.RecordBatch, layout: Layout) -> Rows:
        """The rows of a batch; raises UnusableRunFile for a missing code or count."""
        texts, numbers = {}, {}
        for name in [column.name for column in layout.columns] + [layout.count or ""]:
            if name and batch.column(name).null_count:
                raise UnusableRunFile(f"a {name} is missing")
        for column in layout.columns:
            values = batch.column(column.name)
            if column.is_number:
                numbers[column.name] = pc.cast(values, pa.int64()).to_numpy()
            else:
                texts[column.name] = number_texts(values)
        count = np.ones(batch.num_rows, dtype=np.int64)
        if layout.count is not None:
            count = pc.cast(batch.column(layout.count), pa.int64()).to_numpy()
        return cls(batch.num_rows, texts, numbers, count)

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
        """Cell of each row, and mask of the valid rows of the universe itself.

        Rows that are neither of the universe nor further records are failures, and count as
        further; so are other constants than those of the layout. Raises UnusableRunFile for a
        layout without a column for an attribute.
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
        for attribute, size in zip(cells.labels, cells.shape, strict=True):
            columns = [column for column in layout.columns if column.attribute == attribute]
            if len(set(zip(*(column.codes for column in columns), strict=True))) != size:
                raise UnusableRunFile(
                    f"{cells.universe} has no column for {attribute} of its schema"
                )
            level = self.levels(columns)
            is_right &= level >= 0
            cell = cell * size + level
        failures.add_each(
            ~is_right & ~is_further,
            f"a row of {cells.universe} has a combination of codes that its columns cannot have",
        )
        return cell, is_right & ~is_further


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """The rows of some areas, which follow each other in the order of their geocodes.

    areas : their positions.
    area, cell, count : `(n,)` of each row the area's position among them, the cell, and how many
        records it represents.
    described : `(n,)` the joined codes of the columns that describe them, where there are such.
    further : (n_areas,) further records.
    """

    areas: slice
    n_cells: int
    area: np.ndarray
    cell: np.ndarray
    count: np.ndarray
    described: np.ndarray | None
    further: np.ndarray

    @cached_property
    def counts(self) -> sparse.csr_array:
        """Number of records of each area and cell, `(n_areas, n_cells)`."""
        shape = self.areas.stop - self.areas.start, self.n_cells
        return sparse.csr_array(sparse.coo_array((self.count, (self.area, self.cell)), shape))


def rows_by_areas(
    path: Path,
    layout: Layout,
    cells: Cells,
    level: SpineLevel,
    failures: Failures,
    *,
    areas_per_part: int = BLOCKS_PER_PART,
    share: tuple[int, int] = (0, 1),
) -> Iterator[ReleasedRows]:
    """The rows of a universe's Parquet file, by groups of areas in their order; of the areas, the
    share i of n.

    Their codes are those of the layout, columns that follow from others agree with them, numbers of
    rows run through the file, and rows are in the order of their areas. The rows of a group are
    found by bisection. In a file of another order groups still have every row, so that all that are
    out of place are failures. `level` has the areas by their codes.

    Raises UnusableRunFile for a missing file or other columns, and Arrow's exceptions for files
    that cannot be parsed.
    """
    begin, end = (level.n * number // share[1] for number in (share[0], share[0] + 1))
    with open_parquet(path, layout.names, as_dictionary=layout.names) as file:
        first_row = _bisection(file, layout, level)
        first = first_row(begin)
        for start in range(begin, end, areas_per_part):
            areas = slice(start, min(start + areas_per_part, end))
            stop = first_row(areas.stop)
            batches = rows_between(file, range(first, stop))
            yield _read_rows(batches, first, areas, layout, cells, level, failures)
            first = stop


def _bisection(file: pq.ParquetFile, layout: Layout, level: SpineLevel) -> Callable[[int], int]:
    """The number of the first row that is not of an area before a given one, in a file ordered so.

    Row groups are bisected by their first rows, which successive areas share, then the rows of one.
    """
    columns = [column.name for column in layout.columns if column.is_of_area]
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    groups = [number for number, size in enumerate(sizes) if size]
    starts = list(accumulate((sizes[number] for number in groups), initial=0))
    read_group = lru_cache(maxsize=1)(partial(file.read_row_group, columns=columns))

    @cache
    def area_of(row: int) -> int:
        number = bisect_right(starts, row) - 1
        codes = [str(own[row - starts[number]].as_py()) for own in read_group(groups[number])]
        place = int(level.positions(pa.array([SEPARATOR.join(codes)], pa.string()))[0])
        return level.n if place < 0 else place

    def first_row(area: int) -> int:
        if area in (0, level.n):
            return starts[-1] if area else 0
        group = bisect_left(starts[:-1], area, key=area_of)
        rows = range(starts[max(group - 1, 0)], starts[group])
        return rows.start + bisect_left(rows, area, key=area_of)

    return first_row


def _read_rows(
    batches: Iterator[pa.RecordBatch],
    n_before: int,
    areas: slice,
    layout: Layout,
    cells: Cells,
    level: SpineLevel,
    failures: Failures,
) -> ReleasedRows:
    """The rows of some areas; rows of others are failures. `n_before` rows of the file are before
    them."""
    described = () if layout.described is None else tuple(layout.described.columns)
    found, further = [np.zeros((3, 0), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    texts = [pa.array([], pa.string())]
    for batch in batches:
        read = Rows.decoded(batch, layout)
        for name, numbers in read.numbers.items():
            due = np.arange(n_before, n_before + numbers.size)
            failures.add_each(numbers != due, f"the {name} of a row is another number")
        n_before += batch.num_rows
        cell, is_own = read.cells(layout, cells, failures)
        area = layout.areas(read, level)
        is_placed = (area >= areas.start) & (area < areas.stop)
        failures.add_each(
            ~is_placed,
            f"a row of {cells.universe} is in an area outside the spine, or after rows of later "
            "areas",
        )
        within, own = area - areas.start, is_placed & is_own
        found.append(np.array([within, cell, read.count])[:, own])
        further.append(within[is_placed & ~is_own])
        if described:
            parts = [batch.column(name).cast(pa.string()) for name in described]
            joined = pc.binary_join_element_wise(*parts, SEPARATOR)
            texts.append(joined.filter(pa.array(own)))
    codes, number = number_texts(pa.concat_arrays(texts))
    placed, cell, count = np.concatenate(found, axis=1)
    return ReleasedRows(
        *(areas, cells.n, placed, cell, count),
        np.array(codes, dtype=object)[number] if described else None,
        np.bincount(np.concatenate(further), minlength=areas.stop - areas.start),
    )


def check_company(
    declared: Mapping[str, Any], rows: ReleasedRows, cells: Cells, failures: Failures
) -> None:
    """Check that no area has rows that an agreement of the kind `accompanied` is on without rows of
    those that accompany them, nor more for each of these than declared."""
    own, companions = (rows.counts @ (cells.where(declared[key]) * 1) for key in ("where", "of"))
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
    answer = description.row[rows.cell]
    otherwise = SEPARATOR.join(description.otherwise[name] for name in description.columns)
    is_alone = answer < 0
    failures.add_each(
        is_alone & (rows.described != otherwise),
        f"a row that no record of {description.universe} is matched with has its codes",
    )
    own = rows.area, answer, rows.described, rows.count
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


def check_counts(
    rows: ReleasedRows, estimates: sparse.csr_array, level: SpineLevel, failures: Failures
) -> None:
    """Check that the rows of each area and cell are as many as its estimate says."""
    inside = rows.counts.multiply(estimates > 0)
    outside = np.abs((rows.counts - inside).data).sum()
    if outside:
        failures.add("rows are in a cell whose estimate is zero", count=int(outside))
    off = sparse.coo_array(inside - estimates)
    failures.add_each(
        off.data != 0,
        lambda i: (
            f"{level.describe(off.row[i])} has another number of rows than its estimate in cell "
            f"{off.col[i]}"
        ),
    )
