"""The records of a declared universe, streamed: counted by area and cell, and held to rules.

Files pass through in batches; what stays are sums, and of tables that others refer to their keys,
areas and referred columns. Every condition on a record is worked out once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import sparse
from spineflow.tasks.census.areas import AreaIndex, Areas, text_layout
from spineflow.tasks.census.census import Universe
from spineflow.tasks.census.declarations import Step
from spineflow.tasks.census.evidence import EvidenceTally
from spineflow.tasks.census.histograms import HistogramSum
from spineflow.tasks.census.recodes import UNKNOWN, whole_number
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.tables.columns import CodedColumn, KeyIndex, is_blank_key
from spineflow.tasks.tables.readers import Batch, Selection, read_batches
from spineflow.tasks.tables.sources import InputFile

Files = Mapping[str, Sequence[InputFile]]
"""Files of every input table."""


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """A table on the way to the area: keys, the area of each row (-1 if unknown), and the columns
    that recodes read of it and of those behind it, by `table.column`.
    """

    index: KeyIndex
    area: np.ndarray
    columns: Mapping[str, CodedColumn]


def count_universe(
    files: Files,
    universe: Universe,
    schema: Schema,
    areas: Areas,
    evidence: EvidenceTally,
) -> sparse.csr_array:
    """Records by area and cell `(n_areas, n_cells)`, in the order of the areas.

    Records whose area, count or level cannot be told are left out; the evidence then holds the
    rule that they break.
    """
    declared, name = universe.declared, universe.name
    steps = universe.steps
    joined = load_joined(files, universe, areas, evidence) if steps else None
    area_columns = () if joined else _area_columns(universe)
    index = AreaIndex(areas, len(area_columns)) if area_columns else None
    recodes = [universe.recodes[attribute] for attribute in schema.attributes]
    asked = [column for recode in recodes for column in recode.columns] + list(universe.rows)
    own = tuple(dict.fromkeys(column for column in asked if not _is_joined(column, steps)))
    counted = (declared.count,) if declared.count else ()
    texts = tuple(dict.fromkeys((*own, *area_columns, *counted)))
    keys = (steps[0].column,) if steps else ()
    zeros = [(zero.name, schema.cells_where(zero.where)) for zero in universe.zeros]
    sums = HistogramSum(len(areas), schema.n_cells)
    for batch in _batches(files[declared.table], declared.table, texts, keys):
        columns = _coded(batch, texts)
        n_rows = len(next(iter(batch.values())))
        if joined:
            found = joined.index.positions(batch[keys[0]])
            for column, values in joined.columns.items():
                columns[column] = _taken(values, found)
            area = np.where(found >= 0, joined.area[found], -1)
            unknown = (found < 0) & ~is_blank_key(batch[keys[0]])
            evidence.add_mask(name, f"blank_{keys[0]}", is_blank_key(batch[keys[0]]))
            evidence.add_mask(name, "unknown_" + keys[0], unknown)
        else:
            area = index.positions([columns[column] for column in area_columns])
        is_member = np.ones(n_rows, dtype=bool)
        for column, codes in universe.rows.items():
            is_member &= columns[column].lookup(codes.holds, bool)
        if not joined:
            evidence.add_mask(name, "unknown_area", (area < 0)[is_member])
        count = np.ones(n_rows, dtype=np.int64)
        if declared.count:
            count = columns[declared.count].lookup(_count, np.int64)
            evidence.add_mask(name, "unknown_count", (count < 0)[is_member])
        is_known = is_member & (area >= 0) & (count >= 0)
        levels = {}
        for recode in recodes:
            level = recode.evaluate(columns, n_rows)
            is_unknown = level == UNKNOWN
            if joined and any(_is_joined(column, steps) for column in recode.columns):
                is_unknown &= found >= 0
            evidence.add_mask(name, f"unknown_{recode.attribute}", is_unknown[is_member])
            is_known &= level != UNKNOWN
            levels[recode.attribute] = level
        cell = schema.cells({n: level[is_known] for n, level in levels.items()})
        is_counted = count[is_known] > 0
        for zero, mask in zeros:
            evidence.add_mask(name, f"in_{zero}", mask[cell] & is_counted)
        sums.add(area[is_known][is_counted], cell[is_counted], count[is_known][is_counted])
    return sums.total()


def load_joined(
    files: Files, universe: Universe, areas: Areas, evidence: EvidenceTally
) -> JoinedTable:
    """The first table on a universe's way to the area, with what it takes from those behind it."""
    steps = universe.steps
    behind: JoinedTable | None = None
    for number in range(len(steps) - 1, -1, -1):
        table, key = steps[number].table, steps[number].key
        onward = steps[number + 1] if number + 1 < len(steps) else None
        area_columns = () if onward else _area_columns(universe)
        wanted = _columns_of(universe, table)
        texts = tuple(dict.fromkeys((*wanted, *area_columns)))
        keys = tuple(dict.fromkeys((key, *((onward.column,) if onward else ()))))
        parts: dict[str, list] = {name: [] for name in (*texts, *keys)}
        for batch in _batches(files[table], table, texts, keys):
            for name in (*texts, *keys):
                parts[name].append(batch[name])
        arrays = {name: _whole(part) for name, part in parts.items()}
        columns = _coded(arrays, texts)
        index = KeyIndex(arrays[key])
        suite = universe.name
        evidence.add_mask(suite, f"blank_key_of_{table}", index.is_blank)
        evidence.add_mask(suite, f"repeated_key_of_{table}", index.is_repeated)
        carried = {f"{table}.{column}": columns[column] for column in wanted}
        if behind is None:
            found = AreaIndex(areas, len(area_columns)).positions(
                [columns[column] for column in area_columns]
            )
            evidence.add_mask(suite, "unknown_area", found < 0)
            area = found
        else:
            row = behind.index.positions(arrays[onward.column])
            evidence.add_mask(suite, f"unknown_{onward.column}_of_{table}", row < 0)
            area = np.where(row >= 0, behind.area[row], -1)
            carried |= {name: _taken(column, row) for name, column in behind.columns.items()}
        behind = JoinedTable(index, area, carried)
    return behind


def _area_columns(universe: Universe) -> tuple[str, ...]:
    area = universe.declared.area
    return (area,) if isinstance(area, str) else tuple(area)


def _is_joined(column: str, steps: Sequence[Step]) -> bool:
    """Whether a column is of a table on the way to the area."""
    return any(column.startswith(f"{step.table}.") for step in steps)


def _columns_of(universe: Universe, table: str) -> tuple[str, ...]:
    """Columns of a table that the universe's recodes read."""
    names = [column for recode in universe.recodes.values() for column in recode.columns]
    prefix = f"{table}."
    return tuple(
        dict.fromkeys(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    )


def _batches(
    files: Sequence[InputFile], table: str, texts: Sequence[str], keys: Sequence[str]
) -> Iterator[Batch]:
    layout = text_layout(table, texts, keys)
    for file in files:
        shaped = InputFile(file.table, file.path, file.name, layout)
        yield from read_batches(shaped, Selection((*texts, *keys)))


def _coded(batch: Batch, names: Sequence[str]) -> dict[str, CodedColumn]:
    layout = text_layout("", names)
    return {name: CodedColumn.from_arrow(batch[name], layout.field(name)) for name in names}


def _taken(column: CodedColumn, rows: np.ndarray) -> CodedColumn:
    """The column at some rows; blank where there is no row."""
    values = column.values if None in column.values else (*column.values, None)
    blank = values.index(None)
    return CodedColumn(np.where(rows >= 0, column.codes[rows], blank), values)


def _whole(parts: Sequence[pa.Array]) -> pa.Array:
    """All batches of a column as one array."""
    column = pa.chunked_array(list(parts)).unify_dictionaries()
    if pa.types.is_string(column.type):
        # The texts of one array of this type end at 2 GiB.
        column = column.cast(pa.large_string())
    return column.combine_chunks()


def _count(value: str | None) -> int:
    """The count that a text spells; -1 for what is no whole number."""
    number = whole_number(value)
    return -1 if number is None else number
