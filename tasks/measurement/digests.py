"""Keyed digests that recognise the same people again, whatever file they come in.

A digest is an HMAC-SHA256, under the ledger's key, of the sorted rows of a canonical table, so it
does not depend on the order of records, on file formats, or on columns that only one product
reads. A plain hash would let anyone who holds a guess of the records confirm it; without the key
the digests say nothing.

Persons are recognised by how many of them have each age and race in each block
(`PERSON_COLUMNS`), which every product that reads persons knows. Where the first column is a
block geocode there is also a digest for each county, so that the counties of a state are
recognised when they come alone.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PERSON_COLUMNS = ("block_geocode", "age", "cenrace", "persons")
"""Canonical columns of persons, as integers: geocode of 16 digits, years, CENRACE less 1, and
the number of persons, one row for every combination that occurs."""

DIGITS_BELOW_COUNTY = 11

INPUT_DIGESTS = "input_digests.json"
"""Name of the file with the digests of a run's input, in its confidential folder."""


@dataclass(frozen=True)
class InputDigest:
    """Digest of an input, and of parts of it by county where it has blocks."""

    whole: str
    parts: tuple[str, ...] = ()


def input_digest(kind: str, columns: Mapping[str, np.ndarray], key: bytes) -> InputDigest:
    """Digest of the multiset of rows of a table, and of each county's if it has blocks.

    `kind` ("persons", "trips", ...) and the column names take part. Columns (n,) hold integers or
    strings; a first column named `block_geocode` may hold either.

    >>> ages = {"age": np.array([30, 41])}
    >>> input_digest("persons", ages, b"k") == input_digest("persons", {"age": [41, 30]}, b"k")
    True
    """
    label = "|".join([kind, *columns])
    arrays = [_canonical(column) for column in columns.values()]
    has_blocks = next(iter(columns), None) == "block_geocode"
    if has_blocks:
        arrays[0] = arrays[0].astype(np.int64)
    rows = _sorted_rows(arrays)
    whole = _digest_of_sorted(label, rows, key)
    if not has_blocks or not rows.size:
        return InputDigest(whole)
    county = rows[rows.dtype.names[0]] // 10**DIGITS_BELOW_COUNTY
    starts = np.flatnonzero(np.diff(county, prepend=-1))
    parts = np.split(rows, starts[1:])
    return InputDigest(whole, tuple(_digest_of_sorted(label, part, key) for part in parts))


def _canonical(column: np.ndarray) -> np.ndarray:
    column = np.asarray(column)
    if column.dtype.kind in "iub":
        return column.astype(np.int64)
    if column.dtype.kind == "f":
        raise TypeError("a digest needs integers or strings, not floats")
    return np.char.encode(column.astype(str), "utf-8")


def _sorted_rows(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The rows as a structured array, sorted by the columns in order."""
    dtype = [(f"f{i}", column.dtype.newbyteorder("<")) for i, column in enumerate(columns)]
    rows = np.empty(len(columns[0]), dtype=dtype)
    order = np.lexsort(columns[::-1])
    for (name, _), column in zip(dtype, columns, strict=True):
        rows[name] = column[order]
    return rows


def _digest_of_sorted(label: str, rows: np.ndarray, key: bytes) -> str:
    """HMAC of the rows, strings padded to the longest of the whole table."""
    head = f"{label}|{rows.dtype.descr}|{len(rows)}|".encode()
    return hmac.new(key, head + rows.tobytes(), hashlib.sha256).hexdigest()
