"""The two files of one population: persons with the numbers of their units, and units.

`population_persons` has a row for every person: block, unit (null in group quarters), relationship
(null there, too), then the attributes of persons by label. `population_units` has one for every
housing unit and facility: block, unit, whether it is occupied (null for facilities), number of
members, tenure, what the unit is, then the attributes of households by label, null where there is
none. Numbers of units are unique within a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Persons `(n,)`: block, unit or `NOBODY`, relationship as a position in `relationships` or
    `NOBODY`, and levels of all attributes `(n_attributes, n)`.
    """

    block: np.ndarray
    unit: np.ndarray
    relationship: np.ndarray
    relationships: Sequence[str]
    levels: np.ndarray
    schema: Schema


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Units `(n,)`: block, number, size, what they are as a level of `kinds`; which of the levels
    are occupied and which vacant; levels of households `(n_attributes, n)`, `NOBODY` of others.
    """

    block: np.ndarray
    unit: np.ndarray
    size: np.ndarray
    kind: np.ndarray
    kinds: Schema
    n_occupied: int
    n_housing: int
    levels: np.ndarray
    schema: Schema


def unit_numbers(block: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Numbers of units in the order of their blocks, from 1 in every state."""
    state = np.array([code[:STATE_DIGITS] for code in blocks], dtype=str)
    of_unit = state[block]
    first = np.searchsorted(of_unit, of_unit, side="left")
    return np.arange(1, len(block) + 1) - first


def write_persons(rows: PersonRows, blocks: np.ndarray, folder: Path, *, is_private: bool) -> Path:
    """Write `population_persons.parquet`."""
    columns = {
        "geocode": _labelled(rows.block, blocks.tolist()),
        "unit": pa.array(rows.unit, pa.int64(), mask=rows.unit == NOBODY),
        "relationship": _labelled(rows.relationship, rows.relationships),
    }
    columns |= _attributes(rows.schema, rows.levels)
    return _write(columns, folder / PERSONS_FILE, is_private)


def write_units(rows: UnitRows, blocks: np.ndarray, folder: Path, *, is_private: bool) -> Path:
    """Write `population_units.parquet`."""
    is_facility = rows.kind >= rows.n_housing
    is_occupied = rows.kind < rows.n_occupied
    (attribute,) = rows.kinds.attributes
    labels = rows.kinds.labels(attribute)
    columns = {
        "geocode": _labelled(rows.block, blocks.tolist()),
        "unit": pa.array(rows.unit, pa.int64()),
        "occupied": pa.array(is_occupied, pa.bool_(), mask=is_facility),
        "size": pa.array(rows.size, pa.int64(), mask=is_facility),
        "tenure": _labelled(np.where(is_occupied, rows.kind, NOBODY), labels),
        attribute: _labelled(rows.kind, labels),
    }
    columns |= _attributes(rows.schema, rows.levels)
    return _write(columns, folder / UNITS_FILE, is_private)


def _attributes(schema: Schema, levels: np.ndarray) -> dict[str, pa.Array]:
    return {
        name: _labelled(own, schema.labels(name))
        for name, own in zip(schema.attributes, levels, strict=True)
    }


def _labelled(level: np.ndarray, labels: Sequence[str]) -> pa.Array:
    """Labels of levels, null for `NOBODY`."""
    codes = pa.array(level.astype(np.int32), mask=level == NOBODY)
    return pa.DictionaryArray.from_arrays(codes, pa.array(list(labels), pa.string()))


def _write(columns: Mapping[str, pa.Array], path: Path, is_private: bool) -> Path:
    table = pa.table({name: _plain(column) for name, column in columns.items()})
    if not is_private:
        table = table.replace_schema_metadata({STAMP_KEY: NOT_PRIVATE})
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd")
    return path


def _plain(column: pa.Array) -> pa.Array:
    """Labels as texts, so that files can be read without dictionaries."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
