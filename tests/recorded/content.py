"""Canonical content of what a run writes, by which releases of two versions are compared.

Neither the bytes of a file count nor how rows are spread over files that are named by number, nor
the order of rows, but the columns with their types, and every value. Doubles have nine significant
digits.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDERS = ("measurements", "estimates", "release", "published")
OF_A_RUN = ("certificate.json", "certificate.md", "certificate.html", "products.json")
"""Files of a release that bear words, names of runs and places rather than data."""

DIGITS = 9
DECIMAL = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")

LEDGER = {
    "draws": (
        "name, dataset, product, mechanism, definition, parameter, neighbors, delta, "
        "bounded_factor, bounded_rho, n_values, after_results"
    ),
    "noise": "draw, part, mechanism, parameter",
    "conditions": "name",
    "curves": "draw, curve",
}
"""Columns of a ledger's tables that depend neither on time nor on a key, a run or its place."""


def digests_of_run(root: Path) -> dict[str, str]:
    """Digests of what lies in a run's public folders, by folder of a universe or file of a release.

    A run that consists of others has theirs under their folders.
    """
    described: dict[str, set[str]] = defaultdict(set)
    rows: dict[str, list[str]] = defaultdict(list)
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        parts = file.relative_to(root).parts
        start = next((n for n, part in enumerate(parts[:-1]) if part in FOLDERS), None)
        if start is None or start > 1 or file.name in OF_A_RUN:
            continue
        # Shards are numbered, and nothing is said by which rows are in which.
        place = "/".join(parts[:-1] if file.stem.isdigit() else parts)
        name = "/".join(parts[: start + 2])
        columns, own = content_of(file)
        described[name].add(f"{place}: {columns}")
        rows[name] += [f"{place}: {row}" for row in own]
    return {name: digest_of([*sorted(described[name]), *sorted(rows[name])]) for name in rows}


def content_of(file: Path) -> tuple[str, list[str]]:
    """The columns of a table and their types, and its rows; the lines of another file as rows."""
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            found = {name: arrays[name] for name in sorted(arrays)}
        kinds = [(name, str(array.dtype), array.shape) for name, array in found.items()]
        return json.dumps(kinds), [json.dumps(plain(array.tolist())) for array in found.values()]
    if file.suffix != ".parquet":
        lines = file.read_text(encoding="utf-8").splitlines()
        # What a comparison of methods has taken in time is one of its figures.
        rounded = [DECIMAL.sub(lambda found: plain(float(found[0])), line) for line in lines]
        return "", [line for line in rounded if ",seconds," not in line]
    table = pq.ParquetFile(file).read(use_threads=False)
    described = [(field.name, plain_type(field.type)) for field in table.schema]
    columns = [plain_column(column) for column in table.columns]
    rows = zip(*columns, strict=True)
    return json.dumps(described), [json.dumps(row) for row in rows]


def plain_type(kind: pa.DataType) -> str:
    """The type of a column's values, however they are encoded."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {plain_type(kind.value_type)}"
    return str(kind).removeprefix("large_")


def plain_column(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; of integers and texts, which JSON has as they are, without a look."""
    kind = plain_type(column.type)
    values = column.to_pylist()
    is_plain = kind.removeprefix("u").startswith("int") or kind == "string"
    return values if is_plain else [plain(value) for value in values]


def plain(value: Any) -> Any:
    """A value as JSON has it, with doubles as texts of `DIGITS` digits."""
    if isinstance(value, float):
        return format(value + 0.0, f".{DIGITS}g")
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def digest_of_json(tree: Any) -> str:
    """Digest of what a command tells as JSON."""
    return digest_of([json.dumps(plain(tree), sort_keys=True)])


def digest_of_ledger(file: Path) -> str:
    """Digest of what a ledger has charged."""
    lines = []
    with closing(sqlite3.connect(file)) as connection:
        for table, columns in LEDGER.items():
            rows = connection.execute(f"SELECT {columns} FROM {table}")
            lines += [f"{table} {json.dumps(plain(row))}" for row in rows]
    assert any(line.startswith("draws") for line in lines)
    return digest_of(sorted(lines))


def digest_of(lines: Iterable[str]) -> str:
    """SHA-256 of lines."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
