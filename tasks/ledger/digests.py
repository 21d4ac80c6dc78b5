"""Keyed digests that recognise the same people again, whatever file they come in.

A digest is an HMAC-SHA256, under the ledger's key, of the sorted rows of a canonical table, so it
does not depend on the order of records, on file formats, or on columns that only one product
reads. A plain hash would let anyone who holds a guess of the records confirm it; without the key
the digests say nothing.

An input has one digest that names it: of persons, how many of them each block has of each
combination of the attributes that their census declares for it. Where the first column is a block
geocode there is also a digest for each county, by which ledgers of older versions know the counties
of a state. In tables of another form people are recognised by `recognition`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..runs.files import while_unchanged

DIGITS_BELOW_COUNTY = 11

_ROWS_AT_ONCE = 1 << 20
"""Rows that are laid out at once where there are no counties to go by."""

INPUT_DIGESTS = "input_digests.json"
"""Name of the file with the digests of a run's input, in its confidential folder."""


ENOUGH_WEAK = 4
"""Digests of less information that recognise people together."""


@dataclass(frozen=True)
class PeopleDigests:
    """Digests that recognise people: each `strong` one alone, `weak` ones together.

    `filling` recognises nobody: it makes the number of digests one that is public.
    """

    strong: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputDigest:
    """Digest of an input, and what recognises it in another table.

    Each of `parts` recognises people by itself: digests by county where the input has blocks, and
    the strong ones of `recognition`. Of `weak` ones it takes several, and of `filling` none does.
    Versions before had fewer of these.
    """

    whole: str
    parts: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()

    def recognised_by(self, people: PeopleDigests) -> InputDigest:
        """The digest of an input that the digests of its raw columns recognise too."""
        return InputDigest(
            self.whole,
            (*self.parts, *people.strong),
            (*self.weak, *people.weak),
            (*self.filling, *people.filling),
        )


def input_digest(kind: str, columns: Mapping[str, np.ndarray], key: bytes) -> InputDigest:
    """Digest of the multiset of rows of a table, and of each county's if it has blocks.

    `kind` ("persons", "trips", ...) and the column names take part. Columns (n,) hold integers or
    strings; a first column named `block_geocode` may hold either.

    >>> ages = {"age": np.array([30, 41])}
    >>> input_digest("persons", ages, b"k") == input_digest("persons", {"age": [41, 30]}, b"k")
    True
    """
    arrays = [_canonical(column) for column in columns.values()]
    has_blocks = next(iter(columns), None) == "block_geocode"
    if has_blocks:
        arrays[0] = arrays[0].astype(np.int64, copy=False)
    n = len(arrays[0])
    order = None if _is_sorted(arrays) else np.lexsort(arrays[::-1])
    if has_blocks:
        geocode = arrays[0] if order is None else arrays[0][order]
        county = (geocode // 10**DIGITS_BELOW_COUNTY).astype(np.int32)
        starts = np.flatnonzero(np.append(True, county[1:] != county[:-1]))[:n]
    else:
        starts = np.arange(0, n, _ROWS_AT_ONCE)
    parts = (
        [array[start:end] if order is None else array[order[start:end]] for array in arrays]
        for start, end in zip(starts, np.append(starts[1:], n), strict=False)
    )
    types = [np.dtype("<i8") if array.dtype.kind in "iub" else array.dtype for array in arrays]
    return _digest(kind, tuple(columns), types, n, parts, key, of_parts=has_blocks)


def block_counts_digest(
    kind: str, columns: Sequence[str], counties: Iterable[Sequence[np.ndarray]], n: int, key: bytes
) -> InputDigest:
    """What `input_digest` is of a table of integers with blocks that comes county by county.

    Each county is its rows' columns (n_rows,), in the order of all columns; the first has geocodes,
    and counties ascend by it. `n` is the number of all rows.
    """
    types = [np.dtype("<i8")] * len(columns)
    return _digest(kind, columns, types, n, counties, key, of_parts=True)


def _digest(
    kind: str,
    columns: Sequence[str],
    types: Sequence[np.dtype],
    n: int,
    parts: Iterable[Sequence[np.ndarray]],
    key: bytes,
    *,
    of_parts: bool,
) -> InputDigest:
    """Digest of rows in their order, which come in parts, and of each part if asked for."""
    dtype = [(f"f{i}", each) for i, each in enumerate(types)]
    head = f"{'|'.join([kind, *columns])}|{np.dtype(dtype).descr}"
    whole, digests = _begun(head, n, key), []
    for arrays in parts:
        rows = np.empty(len(arrays[0]), dtype=dtype)
        for (name, _), array in zip(dtype, arrays, strict=True):
            rows[name] = array
        whole.update(rows.view(np.uint8).data)
        if of_parts:
            part = _begun(head, len(rows), key)
            part.update(rows.view(np.uint8).data)
            digests.append(part.hexdigest())
    return InputDigest(whole.hexdigest(), tuple(digests))


def unnamed_digest(kind: str, columns: Sequence[np.ndarray], count: np.ndarray, key: bytes) -> str:
    """Digest of a table of counts that does not depend on its columns' names or their order.

    Columns (n,) hold codes, and rows are distinct. The columns are put in the order of the
    digests of what each holds by itself, the counts of its codes added up; columns that agree in
    that keep the order in which they come. A column that another one determines, as a region does
    which is given beside its province, is left out.

    >>> one, other = np.array(["a", "b"]), np.array(["x", "x"])
    >>> n = np.array([3, 4])
    >>> unnamed_digest("t", [one, other], n, b"k") == unnamed_digest("t", [other, one], n, b"k")
    True
    """
    import pandas as pd  # Only inputs without a name of their own need it.

    codes = [pd.factorize(np.asarray(column, dtype=object)) for column in columns]
    kept = [number for number in range(len(columns)) if not _is_determined(codes, number)]

    def by_itself(number: int) -> str:
        position, values = codes[number]
        totals = np.bincount(position, weights=count, minlength=len(values)).astype(np.int64)
        table = {"code": np.asarray(values, dtype=str), "count": totals}
        return input_digest(kind, table, key).whole

    ordered = sorted(kept, key=by_itself)
    rows = pd.DataFrame(
        {f"column {place}": np.asarray(columns[n], dtype=str) for place, n in enumerate(ordered)}
        | {"count": count}
    )
    return input_digest(kind, {name: rows[name].to_numpy() for name in rows}, key).whole


@while_unchanged(lambda path, key: path, at_most=64)
def file_digest(path: Path, key: bytes) -> str:
    """Keyed digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hmac.new, key, digestmod="sha256")).hexdigest()


def _is_determined(codes: Sequence[tuple[np.ndarray, np.ndarray]], number: int) -> bool:
    """Whether the codes of one column follow from those of another, coarser ones from finer.

    Of columns that determine each other the first stays.
    """
    position, values = codes[number]
    for other, (finer, finer_values) in enumerate(codes):
        if other == number:
            continue
        n_pairs = np.unique(finer.astype(np.int64) * max(1, len(values)) + position).size
        if n_pairs == len(finer_values) and (len(finer_values) > len(values) or other < number):
            return True
    return False


def _canonical(column: np.ndarray) -> np.ndarray:
    """Integers as they are, which all become int64 in a row; strings as UTF-8."""
    column = np.asarray(column)
    if column.dtype.kind in "iub":
        return column
    if column.dtype.kind == "f":
        raise TypeError("a digest needs integers or strings, not floats")
    return np.char.encode(column.astype(str), "utf-8")


def _is_sorted(columns: Sequence[np.ndarray]) -> bool:
    """Whether the rows are in the order of the columns, the first of them first."""
    is_next = np.ones(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in reversed(columns):
        is_next = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & is_next)
    return bool(is_next.all())


def _begun(head: str, n_rows: int, key: bytes) -> hmac.HMAC:
    """The HMAC before its rows, strings padded to the longest of the whole table."""
    return hmac.new(key, f"{head}|{n_rows}|".encode(), hashlib.sha256)
