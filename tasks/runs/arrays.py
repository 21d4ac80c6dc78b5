"""Numbers, texts and arrays that tasks exchange: two files, whose arrays are mapped.

`<stem>.json` has everything but the arrays, and their types, shapes and offsets; `<stem>.bin` has
the arrays one after the other, each from a multiple of 64 bytes on, so that they are used as they
are mapped. The first is written last. Pickles are avoided, since reading one executes
code of its writer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .files import replacing, write_text

_ALIGNED = 64
_PLACE = {"kind", "shape", "at"}
"""Keys of an array's type, shape and offset in the file."""


def write_arrays(stem: Path, facts: object) -> Path:
    """Write JSON values, with arrays and functions without arguments that return further values.

    Functions are called in turn, and their results are not kept in memory. Returns the file that
    is written last.
    """
    description, content = files_of(stem)
    with replacing(content) as part, part.open("wb") as file:

        def placed(value: Any) -> Any:
            if isinstance(value, np.generic):
                return value.item()
            if callable(value):
                return value()
            at = -(-file.tell() // _ALIGNED) * _ALIGNED
            file.seek(at)
            file.write(np.ascontiguousarray(value).data if value.size else b"")
            return {"kind": value.dtype.str, "shape": value.shape, "at": at}

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
