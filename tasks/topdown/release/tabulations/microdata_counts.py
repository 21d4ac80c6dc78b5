"""Counting microdata: from rows in a declared layout back to block histograms.

Files are read in batches; memory is that of the histograms and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.census import Census
from spineflow.tasks.census.declarations import MicrodataColumn
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.topdown.release.microdata import layout_of

ROWS_PER_BATCH = 1 << 18


def count_microdata(
    path: Path, block_geocode: np.ndarray, universe: str, census: Census = CENSUS
) -> tuple[sparse.csr_array, Schema]:
    """Histograms of a universe's microdata, shape `(n_blocks, n_cells)`, and their schema.

    `block_geocode` are the 16-digit codes of the blocks, ascending. The schema has those of the
    universe's own attributes that the file tells. Rows of further records are left out. Raises
    ValueError for a record in another block or of an unknown code.
    """
    layout = layout_of(universe, census)
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
    telling = {
        column.attribute: column
        for column in layout.columns
        if column.attribute is not None and column.name in names
    }
    own = census.universes[universe].declared.attributes
    schema = census.schema(universe, tuple(name for name in own if name in telling))
    told = [telling[name] for name in schema.attributes]
    level_of = [_levels(column, schema) for column in told]
    further = {} if layout.further is None else dict(layout.further.values)
    marks = [(name, value) for name, value in further.items() if name in names]
    read = tuple(dict.fromkeys([*(column.name for column in told), *(name for name, _ in marks)]))

    def cells(batch: pa.RecordBatch) -> np.ndarray:
        is_own = np.full(batch.num_rows, not marks)
        for name, value in marks:
            is_own |= _integers(batch, name) != int(value)
        levels = []
        for column, known in zip(told, level_of, strict=True):
            code = _integers(batch, column.name)[is_own]
            if code.size and (code.min() < 0 or code.max() >= known.size):
                raise ValueError(f"{path.name} has a code that {column.name} does not have")
            level = known[code]
            if (level < 0).any():
                raise ValueError(f"{path.name} has a code that {column.name} does not have")
            levels.append(level)
        cell = np.full(batch.num_rows, -1, dtype=np.int64)
        cell[is_own] = np.ravel_multi_index(levels, schema.shape)
        return cell

    digits = {c.name: c.digits for c in layout.columns if c.digits is not None}
    return _count(path, block_geocode, digits, read, cells, schema), schema


def _levels(column: MicrodataColumn, schema: Schema) -> np.ndarray:
    """Level of every code from 0 on, -1 for codes that no level has."""
    n = len(schema.labels(column.attribute or ""))
    first = column.first or 0
    codes = [int(c) for c in column.codes] if column.codes else list(range(first, first + n))
    levels = np.full(max(codes) + 1, -1, dtype=np.int64)
    levels[codes] = np.arange(n)
    return levels


def _count(
    path: Path,
    block_geocode: np.ndarray,
    digits: Mapping[str, tuple[int, int]],
    columns: Sequence[str],
    cells: Callable[[pa.RecordBatch], np.ndarray],
    schema: Schema,
) -> sparse.csr_array:
    """Count rows by block and by what `cells` says of a batch; -1 leaves a row out."""
    blocks = block_geocode.astype(np.int64)
    keys, counts = [], []
    names = [*digits, *columns]
    with pq.ParquetFile(path, read_dictionary=names) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=names):
            geocode = np.zeros(batch.num_rows, dtype=np.int64)
            for name, (start, stop) in digits.items():
                geocode = geocode * 10 ** (stop - start) + _integers(batch, name)
            block = np.searchsorted(blocks, geocode)
            if (blocks[np.minimum(block, len(blocks) - 1)] != geocode).any():
                raise ValueError(f"{path.name} has a row in a block outside the geography")
            cell = cells(batch)
            key = (block * schema.n_cells + cell)[cell >= 0]
            distinct, count = np.unique(key, return_counts=True)
            keys.append(distinct)
            counts.append(count)
    key = np.concatenate(keys) if keys else np.zeros(0, dtype=np.int64)
    count = np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)
    where = np.divmod(key, schema.n_cells)
    histogram = sparse.csr_array(
        sparse.coo_array((count, where), shape=(len(blocks), schema.n_cells))
    )
    histogram.sum_duplicates()
    return histogram


def _integers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """The codes of a dictionary column as integers."""
    column = batch.column(name)
    values = np.array(column.dictionary.to_pylist(), dtype=np.int64)
    return values[column.indices.to_numpy()]
