"""The two files of one population: persons with the numbers of their units, and units.

`population_persons` has a row for every person: block, unit (null in group quarters), relationship
(null there, too), then the attributes of persons by label. `population_units` has one for every
housing unit and facility: block, unit, whether it is occupied (null for facilities), number of
members, tenure, what the unit is, then the attributes of households by label, null where there is
none. Numbers of units are unique within a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.schema import Schema
from ...runs.files import NOT_PRIVATE, STAMP_KEY, replacing

PERSONS_FILE, UNITS_FILE = "population_persons.parquet", "population_units.parquet"
STATE_DIGITS = 2
NOBODY = -1
"""Level of what has none, and number of the unit of who lives in no housing unit."""


def unit_numbers(block: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Numbers of units in the order of their blocks, from 1 in every state."""
    state = np.array([code[:STATE_DIGITS] for code in blocks], dtype=str)
    of_unit = state[block]
    first = np.searchsorted(of_unit, of_unit, side="left")
    return np.arange(1, len(block) + 1) - first


def attributes(schema: Schema, levels: np.ndarray) -> dict[str, pa.Array]:
    """The attributes of records by label, from their levels `(n_attributes, n)`."""
    return {
        name: labelled(own, schema.labels(name))
        for name, own in zip(schema.attributes, levels, strict=True)
    }


def labelled(level: np.ndarray, labels: Sequence[str]) -> pa.Array:
    """Labels of levels `(n,)`, null for `NOBODY`."""
    codes = pa.array(level.astype(np.int32), mask=level == NOBODY)
    return pa.array(list(labels), pa.string()).take(codes)


def write_rows(columns: Mapping[str, pa.Array], path: Path, *, is_private: bool) -> Path:
    """Write one of the files; returns its path."""
    table = pa.table(dict(columns))
    if not is_private:
        table = table.replace_schema_metadata({STAMP_KEY: NOT_PRIVATE})
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd")
    return path
