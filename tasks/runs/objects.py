"""Numbers, texts, arrays and objects that tasks exchange: two files, whose arrays are mapped.

`<stem>.json` has everything but the arrays, and their types, shapes and offsets; `<stem>.bin` has
the arrays one after the other, each from a multiple of 64 bytes on, so that they are used as they
are mapped. The first is written last. Pickles are avoided, since reading one executes code of its
writer: an object is written as its state, and a reader names the types that a file may have.

A result that follows from files of a run is stored with their state, and used while it is the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from .directory import RunDirectory, code_version
from .files import replacing, state_of_file, write_text

_ALIGNED = 64
_PLACE = {"kind", "shape", "at"}
"""Keys of an array's type, shape and offset in the file."""


def write_arrays(stem: Path, facts: object) -> Path:
    """Write JSON values with arrays, each array once; returns the file that is written last."""
    description, content = files_of(stem)
    places: dict[int, dict[str, object]] = {}
    with replacing(content) as part, part.open("wb") as file:

        def placed(value: Any) -> Any:
            if isinstance(value, np.generic):
                return value.item()
            if id(value) not in places:
                at = -(-file.tell() // _ALIGNED) * _ALIGNED
                file.seek(at)
                file.write(np.ascontiguousarray(value).data if value.size else b"")
                places[id(value)] = {"kind": value.dtype.str, "shape": value.shape, "at": at}
            return places[id(value)]

        text = json.dumps(facts, default=placed)
    write_text(description, text)
    return description


def read_arrays(stem: Path) -> Any:
    """Read the content that `keep` wrote, with mapped arrays."""
    description, content = files_of(stem)
    mapped = np.memmap(content, dtype=np.uint8, mode="r") if content.stat().st_size else None

    def found(of: dict[str, Any]) -> Any:
        return _array(mapped, of) if of.keys() == _PLACE else of

    return json.loads(description.read_bytes(), object_hook=found)


def files_of(stem: Path) -> tuple[Path, Path]:
    """The two files, the one that is written last first."""
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.bin")


def _array(content: np.ndarray | None, place: Mapping[str, Any]) -> np.ndarray:
    """An array of the file; mapped as bytes, so never of objects, and refused unless complete."""
    kind, shape, at = np.dtype(place["kind"]), tuple(place["shape"]), place["at"]
    if content is None or 0 in shape:
        return np.zeros(shape, kind)
    size = kind.itemsize * math.prod(shape)
    return np.asarray(content[at : at + size]).view(kind).reshape(shape)


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


def state_of(run: RunDirectory, files: Iterable[Path]) -> str:
    """Digest that changes with the files of a run; see `state_of_file`."""
    digest = hashlib.sha256(code_version().encode())
    for path in sorted(files):
        digest.update(f"{path.relative_to(run.root)} {state_of_file(path)}\n".encode())
    return digest.hexdigest()


def store_result(path: Path, state: str, found: Any) -> None:
    """Write the result for files in this state, in values that JSON has; arrays become lists."""
    facts = {"state": state, "found": found}
    write_text(path, json.dumps(facts, default=np.ndarray.tolist) + "\n")


def cached_result(path: Path, state: str) -> Any | None:
    """The result for files in this state; None if it is missing or unusable."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return facts["found"] if facts["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
