"""Population groups between the postprocessing steps: one row per measured group, in columns.

`region_type`, `region_id` and `iteration_code` name the group. `table` is the statistics level
that the group received: 0 a total, 1 to 3 sex by age in 4, 9 and 23 bins. `value` holds its counts,
row-major sex by age (men first), a single one for a total. `variance` is the noise variance of each
count and `measured_at` the region type whose measurement the counts are. A group that is not to be
released keeps its row, with `is_suppressed` set, so that a later step can still give it the counts
of a coterminous region.

The marginals step adds `total`, and for groups with cells `male` and `female`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...runs.stamps import INTEGER_LIST, write_parquet
from ..workload.tabulations import KEY

CODE = pa.dictionary(pa.int32(), pa.string())

MEASURED = pa.schema(
    [
        *(pa.field(name, CODE) for name in KEY),
        ("table", pa.int8()),
        ("total_only", pa.bool_()),
        ("value", INTEGER_LIST),
        ("variance", pa.float64()),
    ]
)
"""Columns that the steps read from a file of noisy measurements."""

SCREENED = MEASURED.append(pa.field("is_suppressed", pa.bool_())).append(
    pa.field("measured_at", CODE)
)
"""Columns of groups after suppression."""

COUNTED = SCREENED
for _name in ("total", "male", "female"):
    COUNTED = COUNTED.append(pa.field(_name, pa.int64()))
"""Columns after marginals, and of every later step."""

GROUPS_PER_ROW_GROUP = 1 << 18


def read_groups(paths: Iterable[Path], schema: pa.Schema) -> pa.Table:
    """The groups of some files, one chunk a column, in the order of the files."""
    codes = [field.name for field in schema if field.type == CODE]
    tables = []
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=codes) as file:
            tables.append(file.read(columns=schema.names).select(schema.names))
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables).unify_dictionaries().cast(schema).combine_chunks()


def write_groups(path: Path, table: pa.Table) -> Path:
    """Write groups, whole or not at all."""
    write_parquet(
        path, table, compression="zstd", compression_level=1, row_group_size=GROUPS_PER_ROW_GROUP
    )
    return path


def codes_of(table: pa.Table, name: str) -> tuple[np.ndarray, list[str]]:
    """A dictionary-encoded column as positions, shape (n,) int32, in a list of distinct texts."""
    column = table[name].combine_chunks()
    return column.indices.to_numpy(zero_copy_only=False), column.dictionary.to_pylist()


def counts_of(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """All counts one after the other, and offsets of each group's, shape (n + 1,)."""
    column = table["value"].combine_chunks()
    offsets = column.offsets.to_numpy().astype(np.int64)
    flat = column.values.to_numpy()[offsets[0] : offsets[-1]]
    return flat, offsets - offsets[0]


def with_counts(table: pa.Table, flat: np.ndarray) -> pa.Table:
    """The groups with other counts of the same number each."""
    _, offsets = counts_of(table)
    counts = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(flat), type=INTEGER_LIST
    )
    return table.set_column(table.schema.get_field_index("value"), "value", counts)


def with_mask(table: pa.Table, name: str, mask: np.ndarray) -> pa.Table:
    """The groups with a truth value in place of, or after, their columns."""
    position = table.schema.get_field_index(name)
    array = pa.array(np.asarray(mask, dtype=bool))
    if position < 0:
        return table.append_column(name, array)
    return table.set_column(position, name, array)


def mask_of(table: pa.Table, name: str) -> np.ndarray:
    """A column of truth values, shape (n,)."""
    return table[name].to_numpy()


def code_positions(table: pa.Table, name: str, order: Sequence[str]) -> np.ndarray:
    """Position of each row's text in `order`, -1 if absent; shape (n,), int64."""
    codes, texts = codes_of(table, name)
    return pd.Index(order, dtype=object).get_indexer(pd.Index(texts, dtype=object))[codes]


def select_released(table: pa.Table) -> pa.Table:
    """The groups that are not suppressed."""
    return table.filter(pc.invert(table["is_suppressed"]))
