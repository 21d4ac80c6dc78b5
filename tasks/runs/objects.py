"""Objects of arrays and tables that tasks of a run exchange, in files that name no code.

An object is written as its state. A reader names the types that a file may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from .arrays import read_arrays, write_arrays

_COLLECTIONS: Mapping[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "frozenset": frozenset,
    "dict": dict,
    "Path": lambda own: Path(*own),
    "dtype": lambda own: np.dtype(*own),
    "objects": lambda own: np.array(own, dtype=object),
    "csr_array": lambda own: sparse.csr_array(tuple(own[:3]), shape=tuple(own[3])),
    "Array": lambda own: _table_of(own[0])[0].combine_chunks(),
    "DataFrame": lambda own: _table_of(own[0]).to_pandas(),
}


def write_object(stem: Path, value: object) -> None:
    """Write an object in the two files of `write_arrays`."""
    write_arrays(stem, _facts(value))


def read_object(stem: Path, types: Mapping[str, type[Any]]) -> Any:
    """Read an object, with arrays that cannot be written.

    `types` are those of all objects within it, by name; KeyError for any other.
    """

    def value_of(facts: Any) -> Any:
        if not isinstance(facts, list):
            return facts
        kind, *own = facts
        if kind in _COLLECTIONS:
            return _COLLECTIONS[kind]([value_of(one) for one in own])
        found = object.__new__(types[kind])
        state = value_of(own[0])
        if isinstance(state, dict):
            vars(found).update(state)
        else:
            found.__setstate__(state)
        return found

    return value_of(read_arrays(stem))


def _facts(value: Any) -> Any:
    """A value as JSON and arrays: a list has the name of a type, and what it is made of."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case np.ndarray():
            return value if value.dtype != object else ["objects", *value.tolist()]
        case list() | tuple() | frozenset():
            return [type(value).__name__, *map(_facts, value)]
        case Mapping():
            return ["dict", *(_facts(entry) for entry in value.items())]
        case Path():
            return ["Path", str(value)]
        case np.dtype():
            return ["dtype", value.str]
        case sparse.csr_array():
            return ["csr_array", value.data, value.indices, value.indptr, ["list", *value.shape]]
        case pa.Array():
            return ["Array", _bytes_of(pa.table([value], ["values"]))]
        case pd.DataFrame():
            return ["DataFrame", _bytes_of(pa.Table.from_pandas(value))]
    return [type(value).__name__, _facts(value.__getstate__())]


def _bytes_of(table: pa.Table) -> np.ndarray:
    """A table as the bytes of a file of Arrow's."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def _table_of(content: np.ndarray) -> pa.Table:
    with pa.ipc.open_file(pa.py_buffer(content)) as file:
        return file.read_all()
