"""Counting microdata: from rows of persons and units back to block histograms.

Files are read in batches; memory is that of the histograms and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.tasks.census.cef_2020 import UNITS, cef_schema
from spineflow.tasks.census.schema import Schema

ROWS_PER_BATCH = 1 << 18
HOUSING_UNIT = "2"

_BLOCK_COLUMNS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
_ATTRIBUTE_COLUMNS = {
    "hhgq": ("GQTYPE_PL", 0),
    "votingage": ("VOTING_AGE", 1),
    "hispanic": ("CENHISP", 1),
    "cenrace": ("CENRACE", 1),
}
"""Column that tells each attribute, and the code of its level 0."""


def count_persons(path: Path, block_geocode: np.ndarray) -> tuple[sparse.csr_array, Schema]:
    """Histograms of `mdf_persons.parquet`, shape `(n_blocks, n_cells)`, and their schema.

    `block_geocode` are the 16-digit codes of the blocks, ascending. The schema has those of the
    attributes hhgq, votingage, hispanic and cenrace that the file has. Raises ValueError for a
    person in another block or of an unknown code.
    """
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
    schema = cef_schema(
        "persons",
        tuple(name for name, (column, _) in _ATTRIBUTE_COLUMNS.items() if column in names),
    )
    columns = [_ATTRIBUTE_COLUMNS[name] for name in schema.attributes]

    def cells(batch: pa.RecordBatch) -> np.ndarray:
        levels = [_integers(batch, column) - first for column, first in columns]
        return np.ravel_multi_index(levels, schema.shape)

    return _count(path, block_geocode, [column for column, _ in columns], cells, schema), schema


def count_units(path: Path, block_geocode: np.ndarray) -> tuple[sparse.csr_array, Schema]:
    """Histograms of the housing units of `mdf_units.parquet` by occupancy; see `count_persons`."""

    def cells(batch: pa.RecordBatch) -> np.ndarray:
        status = _integers(batch, "HH_STATUS")
        is_unit = _integers(batch, "RTYPE") == int(HOUSING_UNIT)
        return np.where(is_unit, (status == 1).astype(np.int64), -1)

    return _count(path, block_geocode, ["RTYPE", "HH_STATUS"], cells, UNITS), UNITS


def _count(
    path: Path,
    block_geocode: np.ndarray,
    columns: Sequence[str],
    cells: Callable[[pa.RecordBatch], np.ndarray],
    schema: Schema,
) -> sparse.csr_array:
    """Count rows by block and by what `cells` says of a batch; -1 leaves a row out."""
    blocks = block_geocode.astype(np.int64)
    keys, counts = [], []
    names = [*_BLOCK_COLUMNS, *columns]
    with pq.ParquetFile(path, read_dictionary=names) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=names):
            geocode = np.zeros(batch.num_rows, dtype=np.int64)
            for name, digits in zip(_BLOCK_COLUMNS, (2, 3, 6, 1, 4), strict=True):
                geocode = geocode * 10**digits + _integers(batch, name)
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
