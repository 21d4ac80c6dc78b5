"""Microdata: the released rows tabulate to the estimates of all areas.

Codes are decoded here, not with the code that wrote them. The Parquet file is read in batches and
in the order of its areas, together with the estimates of some ten thousand areas at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
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
from ..run_files import encode_texts, number_texts, open_parquet, rows_between
from .declaration import Cells
from .layout import SEPARATOR, Description, Layout, Rows
from .measurements import LevelEstimates, sum_counts
from .spine import BLOCKS_PER_PART, SpineLevel

MICRODATA = "microdata_tabulate_to_estimates"
_NONE = np.zeros(0, dtype=np.int64)


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
    keys, counts, further, texts = [_NONE], [_NONE], [_NONE], [encode_texts(pa.array([], "string"))]
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
        keys.append(within[own] * cells.n + cell[own])
        counts.append(read.count[own])
        further.append(within[is_placed & ~is_own])
        if described:
            parts = [batch.column(name).cast(pa.string()) for name in described]
            joined = pc.binary_join_element_wise(*parts, SEPARATOR)
            texts.append(encode_texts(joined.filter(pa.array(own))))
    key, count = np.concatenate(keys), np.concatenate(counts)
    codes, number = [""], np.zeros(key.size, dtype=np.int64)
    if described:
        codes, number = number_texts(pa.chunked_array(texts).unify_dictionaries().combine_chunks())
    key, count = sum_counts(key * len(codes) + number, count)
    return ReleasedRows(
        areas,
        cells.n,
        key // len(codes),
        count,
        np.array(codes, dtype=object)[key % len(codes)] if described else None,
        np.bincount(np.concatenate(further), minlength=areas.stop - areas.start),
    )


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


def check_counts(
    rows: ReleasedRows, estimates: LevelEstimates, level: SpineLevel, failures: Failures
) -> None:
    """Check that the rows of each area and cell are as many as its estimate."""
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
