"""What lies below geounits, as Parquet: one row a geounit, one file for the shard of children.

`geocode`; `can_have` list<bool>, by type; `mean` list<double>, row-major (n, m); `variance` and
`diffuse` list<double>, row-major (S, n, n), the second empty where it is zero; all three are where
a geounit can have nothing. The shapes are those of `tasks.topdown.estimation.query_algebra`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...runs.stamps import stamp, stamped, write_parquet
from .linear_estimates import LinearEstimates
from .query_algebra import QueryAlgebra
from .spine_estimates import Group, GroupedEstimates, patterns

_COLUMNS = ("geocode", "can_have", "mean", "variance", "diffuse")


def write_combined(
    path: Path, geocode: np.ndarray, sums: GroupedEstimates, *, is_private: bool = True
) -> None:
    """Write the estimates of geounits from their children, `geocode` (n_geounits,)."""
    is_empty = np.ones(len(geocode), dtype=bool)
    for group in sums.groups:
        is_empty[group.rows] = False
    groups, rows = [*sums.groups], np.flatnonzero(is_empty)
    if rows.size:
        groups.append(Group(rows, rows[:0], LinearEstimates.zero(rows.size, 0, 1, 1)))
    parts = []
    for group in groups:
        diffuse = _lists(group.estimates.diffuse)
        is_zero = ~group.estimates.diffuse.any(axis=(1, 2, 3))
        columns = (
            pa.array(geocode[group.rows], pa.string()),
            _lists(sums.type_is_possible[group.rows]),
            _lists(group.estimates.mean),
            _lists(group.estimates.variance),
            pc.if_else(pa.array(is_zero), pa.scalar([], diffuse.type), diffuse),
        )
        parts.append(pa.table(columns, names=_COLUMNS))
    table = pa.concat_tables(parts)
    schema = stamped(table.schema, stamp(is_private=is_private))
    table = table.replace_schema_metadata(schema.metadata)
    write_parquet(path, table, compression="zstd", use_dictionary=["geocode"])


def read_combined(
    paths: Iterable[Path], geocode: np.ndarray, algebra: QueryAlgebra
) -> GroupedEstimates:
    """Estimates of the given geounits from their children, wherever they stand.

    Raises ValueError if one of them is missing.
    """
    wanted = pa.array(geocode, pa.string())
    tables = []
    for path in paths:
        table = pq.read_table(path)
        row = pc.index_in(table["geocode"], value_set=wanted)
        tables.append(table.append_column("row", row).filter(pc.is_valid(row)))
    table = pa.concat_tables(tables).sort_by("row").combine_chunks()
    if table.num_rows != len(geocode):
        raise ValueError("the combined measurements of a geounit are missing, or stand twice")
    type_is_possible = _rows(table["can_have"])
    groups = []
    for rows, cells in patterns(algebra, type_is_possible):
        part = table.take(pa.array(rows))
        shape = (rows.size, len(algebra.components), cells.size, cells.size)
        diffuse = np.zeros(shape)
        has_diffuse = np.flatnonzero(pc.list_value_length(part["diffuse"]).to_numpy())
        if has_diffuse.size:
            found = _rows(part["diffuse"].take(pa.array(has_diffuse)))
            diffuse[has_diffuse] = found.reshape(-1, *shape[1:])
        estimates = LinearEstimates(
            _rows(part["mean"]).reshape(rows.size, cells.size, algebra.n_coordinates),
            _rows(part["variance"]).reshape(shape),
            diffuse,
        )
        groups.append(Group(rows, cells, estimates))
    return GroupedEstimates(algebra, type_is_possible, tuple(groups))


def _lists(values: np.ndarray) -> pa.ListArray:
    """One list a geounit of the numbers in its row."""
    flat = values.reshape(len(values), -1)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))


def _rows(column: pa.ChunkedArray) -> np.ndarray:
    """Lists of one length as the rows of an array."""
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), -1)
