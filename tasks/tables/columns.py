"""One form for the columns of every format: coded columns, and identifiers with an index.

A column of codes has few distinct values, so everything about it (its canonical text, whether a
rule holds, its level in a schema) is worked out once for each distinct value and looked up for
the rows.

Large arrays in temporary files that are mapped into memory, small ones in memory.

The system may drop the pages of a mapped array and read them again, so that an input of any size
passes through bounded memory. The files have no name, are closed to others, and disappear with
the arrays, however the process ends.

Items cut into runs that are worked on together.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from ...validation.rules import Value
from .layouts import Field


def cut_into_runs(sizes: np.ndarray, limit: int) -> list[tuple[int, int]]:
    """Consecutive runs of items whose sizes add to at most `limit`, or of one larger item.

    >>> cut_into_runs(np.array([2, 3, 9, 1]), 5)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    cuts = []
    start = 0
    while start < ends.size:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        cuts.append((start, stop))
        start = stop
    return cuts


MOST_BYTES = 1 << 27
"""Bytes of an array that is kept in memory."""

_SAMPLE = 1 << 16
_SORTED_AT_ONCE = 1 << 22
"""Values that are sorted at a time."""


_FOLDER = ContextVar[Path | None]("folder of temporary files", default=None)


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Within, temporary files of arrays and tables are in a folder; elsewhere in the system's own.

    They hold confidential rows where a run reads confidential input.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder among the temporary files, which is removed with all in it."""
    return tempfile.TemporaryDirectory(dir=_FOLDER.get())


def zeros(n: int, dtype: DTypeLike) -> np.ndarray:
    """An array (n,) of zeros, mapped from a temporary file if it is large."""
    size = n * np.dtype(dtype).itemsize
    if size <= MOST_BYTES:
        return np.zeros(n, dtype=dtype)
    with tempfile.TemporaryFile(dir=_FOLDER.get()) as file:
        file.truncate(size)
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=(n,)))


class GrowingArray:
    """An array to which values are appended; beyond `MOST_BYTES` they are in a file.

    >>> growing = GrowingArray(np.int8)
    >>> growing.append(np.array([1, 2])), growing.append(np.array([3]))
    (None, None)
    >>> growing.array().tolist()
    [1, 2, 3]
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._chunks: list[np.ndarray] = []
        self._file: BinaryIO | None = None
        self._n_held = self._n_written = 0

    def __len__(self) -> int:
        return self._n_written + self._n_held

    def append(self, values: np.ndarray) -> None:
        """Append values (n,)."""
        self._chunks.append(np.asarray(values, dtype=self.dtype))
        self._n_held += len(values)
        if self._n_held * self.dtype.itemsize > MOST_BYTES:
            self._write()

    def array(self) -> np.ndarray:
        """All values so far, shape (n,)."""
        if self._file is None:
            self._chunks = [np.concatenate([np.empty(0, self.dtype), *self._chunks])]
            return self._chunks[0]
        self._write()
        return np.asarray(np.memmap(self._file, dtype=self.dtype, mode="r", shape=(len(self),)))

    def __getstate__(self) -> np.ndarray:
        return self.array()

    def __setstate__(self, values: np.ndarray) -> None:
        GrowingArray.__init__(self, values.dtype)
        self.append(values)

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_FOLDER.get())  # noqa: SIM115  Mapped later.
        for chunk in self._chunks:
            self._file.write(chunk.data)
        self._file.flush()
        self._n_written, self._n_held, self._chunks = len(self), 0, []


def sorted_with_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) in ascending order, and their rows; equal ones in the order of their rows.

    An array too large for memory is cut at quantiles of a sample into parts of a few million
    values, which are sorted one after the other.
    """
    n = len(values)
    row_type = np.int32 if n < 2**31 else np.int64
    if values.nbytes <= MOST_BYTES:
        order = np.argsort(values, kind="stable")
        return values[order], order.astype(row_type)
    sample = np.sort(values[:: max(1, n // _SAMPLE)])
    cuts = np.unique(sample[:: max(1, len(sample) * _SORTED_AT_ONCE // n)])
    sizes = np.zeros(len(cuts) + 1, dtype=np.int64)
    for start in range(0, n, _SORTED_AT_ONCE):
        part = np.searchsorted(cuts, values[start : start + _SORTED_AT_ONCE], side="right")
        sizes += np.bincount(part, minlength=len(sizes))
    ends = np.cumsum(sizes)
    ascending, rows, free = zeros(n, values.dtype), zeros(n, row_type), ends - sizes
    for start in range(0, n, _SORTED_AT_ONCE):
        own = values[start : start + _SORTED_AT_ONCE]
        part = np.searchsorted(cuts, own, side="right")
        order = np.argsort(part.astype(np.int16), kind="stable")
        first = 0
        for number, size in enumerate(np.bincount(part, minlength=len(sizes)).tolist()):
            chosen, to = order[first : first + size], slice(free[number], free[number] + size)
            ascending[to], rows[to] = own[chosen], start + chosen
            first += size
            free[number] += size
    for start, end in zip(ends - sizes, ends, strict=True):
        order = np.argsort(ascending[start:end], kind="stable")
        ascending[start:end], rows[start:end] = ascending[start:end][order], rows[start:end][order]
    return ascending, rows


_MOST_DIGITS = 18
"""Longest run of digits that is certain to fit into 64 bits."""
_WITH_POINT = re.compile(r"(-?[0-9]+)\.0*")
NOT_A_NUMBER = -(1 << 62)
"""The number of a blank, of another text, and of more digits than any count has."""
_WHOLE = re.compile(r"-?[0-9]{1,13}", re.ASCII)
_MOST_NARROW = np.iinfo(np.int16).max
"""Distinct values whose positions are kept in two bytes."""
_ROWS_AT_ONCE = 1 << 20
"""Identifiers that are brought to another form at a time."""


def coded_texts(codes: np.ndarray, texts: Iterable[str]) -> pa.DictionaryArray:
    """A column of `texts` by their positions `codes`, shape `(n_rows,)`; texts may be equal.

    Its dictionary has every text once. Arrow's Parquet writer reserves room for each entry of a
    dictionary, writes equal ones once, and fills the rest of the page from uncleared memory, which
    in a process that has read microdata would reach a published file.

    >>> coded_texts(np.array([2, 1, 0]), ["a", "b", "a"]).dictionary.to_pylist()
    ['a', 'b']
    """
    distinct = pa.array(texts, pa.string()).dictionary_encode()
    codes = pa.array(np.asarray(codes).astype(np.int32))
    return pa.DictionaryArray.from_arrays(distinct.indices.take(codes), distinct.dictionary)


@dataclass(frozen=True)
class CodedColumn:
    """A column as positions `codes`, shape `(n_rows,)`, in its distinct canonical `values`.

    A value is a text, or None for blank; see `tasks.tables.layouts` for its canonical form.
    """

    codes: np.ndarray
    values: tuple[str | None, ...]

    @classmethod
    def from_arrow(cls, array: pa.Array, field: Field) -> CodedColumn:
        """Bring an Arrow array of integers, floats, strings or a dictionary to canonical form.

        >>> column = CodedColumn.from_arrow(pa.array([" 7", "007", None]), Field("A", "number"))
        >>> column.values, column.codes.tolist()
        (('7', None), [0, 0, 1])
        """
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        raw = [*array.dictionary.to_pylist(), None]
        position_of: dict[str | None, int] = {}
        positions = np.array(
            [position_of.setdefault(canonical_text(v, field), len(position_of)) for v in raw],
            dtype=np.int32,
        )
        indices = pc.fill_null(array.indices.cast(pa.int32()), len(raw) - 1)
        codes = positions[indices.to_numpy(zero_copy_only=False)]
        return cls(codes, tuple(position_of))

    def at(self, rows: np.ndarray | slice) -> CodedColumn:
        """The column at some rows."""
        return CodedColumn(self.codes[rows], self.values)

    def lookup(self, function: Callable[[str | None], object], dtype: type) -> np.ndarray:
        """`function` of every row's value, evaluated once for each distinct value."""
        return np.array([function(value) for value in self.values], dtype=dtype)[self.codes]

    def whole_numbers(self) -> np.ndarray:
        """Every row's value as a whole number, int64, or `NOT_A_NUMBER`.

        >>> CodedColumn(np.array([0, 1, 2]), ("7", "-2", "1e5")).whole_numbers()[:2].tolist()
        [7, -2]
        """

        def parsed(text: str | None) -> int:
            return int(text) if text is not None and _WHOLE.fullmatch(text) else NOT_A_NUMBER

        return self.lookup(parsed, np.int64)

    def counts(self) -> dict[Value, int]:
        """Number of rows of every value that occurs."""
        rows = np.bincount(self.codes, minlength=len(self.values))
        return {value: int(n) for value, n in zip(self.values, rows, strict=True) if n}

    def to_arrow(self) -> pa.Array:
        """Every row's value as a text; null where blank."""
        values = pa.array(self.values, pa.large_string())
        return pa.DictionaryArray.from_arrays(pa.array(self.codes), values).dictionary_decode()

    def texts(self) -> np.ndarray:
        """Every row's value, shape `(n_rows,)`, object; None where blank."""
        return self.lookup(lambda value: value, object)


class GrowingColumn:
    """A coded column to which batches are appended; large ones are in a file.

    Its values always include a blank, to mark rows without a value.

    >>> growing = GrowingColumn()
    >>> growing.append(CodedColumn(np.array([0, 0]), ("b",)))
    >>> growing.column().texts().tolist(), growing.column().values
    (['b', 'b'], (None, 'b'))
    """

    def __init__(self) -> None:
        self._positions: dict[str | None, int] = {None: 0}
        self._codes = GrowingArray(np.int16)

    def append(self, column: CodedColumn) -> None:
        """Append the rows of a column."""
        known = self._positions
        positions = [known.setdefault(value, len(known)) for value in column.values]
        if len(known) > _MOST_NARROW and self._codes.dtype == np.int16:
            wide, narrow = GrowingArray(np.int32), self._codes.array()
            for start in range(0, len(narrow), _ROWS_AT_ONCE):
                wide.append(narrow[start : start + _ROWS_AT_ONCE])
            self._codes = wide
        self._codes.append(np.array(positions, dtype=self._codes.dtype)[column.codes])

    def column(self) -> CodedColumn:
        """All rows so far."""
        return CodedColumn(self._codes.array(), tuple(self._positions))


def canonical_text(value: str | int | float | None, field: Field) -> str | None:
    """The canonical text of one raw value; None where it is blank.

    >>> canonical_text(30100, Field("TABTRACTCE", "code", width=6))
    '030100'
    """
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        text = str(value)
        return text.zfill(field.width) if field.kind == "code" and field.width else text
    text = str(value).strip()
    if not text:
        return None
    if field.kind == "text":
        return text
    if (whole := without_point(text)) != text:
        return canonical_text(int(whole), field)
    if field.kind == "number" and text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    return text


def number_counts(numbers: np.ndarray) -> dict[Value, int]:
    """Rows of each distinct number, None for what is no number."""
    distinct, rows = (each.tolist() for each in np.unique(numbers, return_counts=True))
    return {None if n == NOT_A_NUMBER else n: k for n, k in zip(distinct, rows, strict=True)}


def without_point(text: str) -> str:
    """A whole number without the point and zeros that columns of floats add; others unchanged.

    >>> without_point("44.0"), without_point("01."), without_point("4.5")
    ('44', '01', '4.5')
    """
    found = _WITH_POINT.fullmatch(text)
    return found[1] if found else text


class KeyColumn:
    """A column of identifiers, gathered batch by batch.

    Numbers beyond `tasks.tables.columns.MOST_BYTES` go to a temporary file; identifiers
    that are texts stay in memory.
    """

    def __init__(self) -> None:
        self._codes = GrowingArray(np.int64)
        self._is_blank = GrowingArray(bool)
        self._texts: list[pa.Array | None] = []
        self._lengths: list[int] = []
        self.are_numbers = True
        """Whether all so far are made of up to 18 digits, or blank."""

    def add(self, keys: pa.Array) -> None:
        """Append identifiers."""
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            plain = _plain(keys.slice(start, _ROWS_AT_ONCE))
            numbers, is_blank = _numbers(plain), plain.is_null().to_numpy(zero_copy_only=False)
            are_numbers = np.array_equal(numbers < 0, is_blank)
            self._codes.append(numbers)
            self._is_blank.append(is_blank)
            are_integers = are_numbers and pa.types.is_integer(plain.type)
            self._texts.append(None if are_integers else plain)
            self._lengths.append(len(plain))
            self.are_numbers &= are_numbers

    def numbers(self) -> np.ndarray:
        """The identifiers as numbers, shape `(n_rows,)`; -1 where blank or no number."""
        return self._codes.array()

    def is_blank(self) -> np.ndarray:
        """Mask of the rows without an identifier, shape `(n_rows,)`."""
        return self._is_blank.array()

    def texts(self) -> pa.Array:
        """The identifiers as texts; null where blank."""
        parts = (_texts(part) for part in self.chunks())
        return pa.concat_arrays([pa.array([], pa.large_string()), *parts])

    def chunks(self) -> Iterator[pa.Array]:
        """The identifiers, some rows at a time; null where blank."""
        numbers, end = self.numbers(), 0
        for plain, length in zip(self._texts, self._lengths, strict=True):
            start, end = end, end + length
            own = numbers[start:end]
            yield pa.array(own, mask=own < 0) if plain is None or self.are_numbers else plain


class KeyIndex:
    """Finds the row of an identifier in a column of identifiers.

    Identifiers are compared as numbers if all of the indexed column are made of up to 18 digits,
    so that integers, `7` and `000000007` agree; else as texts without surrounding blanks.

    The index keeps sorted 64-bit codes and their rows: the numbers themselves, or hashes of
    the texts. Rows with equal hashes are compared by text, so that collisions cannot mislead.

    >>> index = KeyIndex(pa.array(["01", "02", None]))
    >>> index.positions(pa.array([2, 3])).tolist()
    [1, -1]
    """

    def __init__(self, keys: pa.Array | KeyColumn) -> None:
        if not isinstance(keys, KeyColumn):
            column = KeyColumn()
            column.add(keys)
            keys = column
        codes = keys.numbers()
        n_keys = len(codes)
        self.is_blank: np.ndarray = keys.is_blank()
        """Mask of the rows without an identifier, shape `(n_rows,)`."""
        self._texts: pa.Array | None = None
        """The indexed column where identifiers are compared as texts."""
        if not keys.are_numbers:
            self._texts, hashes = keys.texts(), GrowingArray(np.int64)
            for start in range(0, n_keys, _ROWS_AT_ONCE):
                hashes.append(_hashes(self._texts.slice(start, _ROWS_AT_ONCE)))
            codes = hashes.array()

        ascending, order = sorted_with_rows(codes)
        alike = np.sort(order[_repeated_positions(ascending)])
        alike = alike[~self.is_blank[alike]]
        labels = pd.Index(codes[alike] if self._texts is None else self._texts.take(alike))
        self.is_repeated: np.ndarray = zeros(n_keys, bool)
        """Mask of the rows whose identifier another row has too, shape `(n_rows,)`."""
        self.is_repeated[alike] = labels.duplicated(keep=False)
        if self.is_repeated[alike].any() or self.is_blank.any():
            is_indexed = ~self.is_blank
            is_indexed[alike] = ~labels.duplicated()
            is_indexed = is_indexed[order]
            ascending, order = ascending[is_indexed], order[is_indexed]
        self._codes, self._rows = ascending, order

    def positions(self, keys: pa.Array) -> np.ndarray:
        """Row of every identifier in the indexed column, shape `(n_keys,)`; -1 for none.

        Where the indexed column repeats an identifier, its first row is given.
        """
        plain = _plain(keys)
        wanted = _numbers(plain) if self._texts is None else _hashes(_texts(plain))
        found = np.full(len(keys), -1, dtype=np.int64)
        # Looked up in ascending order, along the codes, since random access to memory is slow.
        pending = np.argsort(wanted)
        at = np.searchsorted(self._codes, wanted[pending])
        while pending.size:
            is_like = at < len(self._codes)
            is_like[is_like] = self._codes[at[is_like]] == wanted[pending[is_like]]
            pending, at = pending[is_like], at[is_like]
            rows = self._rows[at]
            if self._texts is None:
                found[pending] = rows
                break
            same = pc.equal(self._texts.take(rows), _texts(plain).take(pending))
            is_same = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
            found[pending[is_same]] = rows[is_same]
            pending, at = pending[~is_same], at[~is_same] + 1
        return found

    def positions_by_value(self, keys: pa.Array) -> np.ndarray:
        """As `positions`, with each distinct value looked up once."""
        if not pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_encode()
        # The last entry is for blanks.
        known = np.append(self.positions(keys.dictionary), -1)
        codes = pc.fill_null(keys.indices.cast(pa.int64()), len(known) - 1)
        return known[codes.to_numpy(zero_copy_only=False)]


def is_blank_key(keys: pa.Array) -> np.ndarray:
    """Mask of the rows without an identifier, shape `(n_rows,)`."""
    return _plain(keys).is_null().to_numpy(zero_copy_only=False)


def is_inexact_key(keys: pa.Array) -> np.ndarray:
    """Mask of the rows whose identifier is a float that identifies nothing, shape `(n_rows,)`."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if not pa.types.is_floating(keys.type):
        return np.zeros(len(keys), dtype=bool)
    is_filled = ~keys.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return is_filled & is_blank_key(keys)


def trimmed_texts(keys: pa.Array) -> pa.Array:
    """Identifiers as texts without surrounding blanks; null where blank."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    texts = pc.utf8_trim_whitespace(keys.cast(pa.large_string()))
    if pc.any(pc.match_substring(texts, ".")).as_py():
        # Text of a whole number from a column of floats.
        texts = pc.replace_substring_regex(texts, r"^([0-9]+)\.0*$", r"\1")
    return pc.if_else(pc.equal(texts, ""), None, texts)


def canonical_keys(keys: pa.Array) -> pa.Array:
    """Identifiers in a form that compares equal in every column: `007` as `7`.

    A column of both numbers and other texts is compared as texts, so that without this one row
    would decide how all others are compared.

    >>> canonical_keys(pa.array(["007", "A07", ""])).to_pylist()
    ['7', 'A07', None]
    """
    plain = _plain(keys)
    if pa.types.is_integer(plain.type):
        return plain
    numbers = _numbers(plain)
    texts = pa.array(numbers, mask=numbers < 0).cast(pa.large_string())
    return pc.coalesce(texts, _texts(plain))


def key_hashes(keys: pa.Array) -> np.ndarray:
    """A 64-bit hash of every identifier, shape `(n_keys,)`, uint64; equal ones have one, however
    the file writes them."""
    plain = _plain(keys)
    numbers = _numbers(plain)
    hashes = pd.util.hash_array(numbers)
    if not pa.types.is_integer(plain.type) and (other := numbers < 0).any():
        hashes[other] = _hashes(_texts(plain.filter(pa.array(other)))).view(np.uint64)
    return hashes


def _plain(keys: pa.Array) -> pa.Array:
    """Identifiers as int64, or as texts without surrounding blanks; null where blank."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if pa.types.is_floating(keys.type):
        # A float that is no whole number, or too large to be exact, is no identifier.
        is_exact = pc.and_(pc.equal(pc.floor(keys), keys), pc.less(pc.abs(keys), 2.0**53))
        keys = pc.if_else(is_exact, keys, None).cast(pa.int64())
    if pa.types.is_integer(keys.type) and not pa.types.is_uint64(keys.type):
        return keys.cast(pa.int64())
    return trimmed_texts(keys)


def _repeated_positions(ascending: np.ndarray) -> np.ndarray:
    """Positions of the values, in ascending order, that occur more than once."""
    found = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(ascending), _ROWS_AT_ONCE):
        values = ascending[start : start + _ROWS_AT_ONCE + 1]
        found.append(start + np.flatnonzero(values[1:] == values[:-1]))
    as_next = np.concatenate(found)
    return np.union1d(as_next, as_next + 1)


def _texts(plain: pa.Array) -> pa.Array:
    return plain.cast(pa.large_string())


def _numbers(plain: pa.Array) -> np.ndarray:
    """Identifiers as int64; -1 where blank or not made of up to 18 ASCII digits."""
    if pa.types.is_integer(plain.type):
        numbers = pc.fill_null(plain, -1).to_numpy(zero_copy_only=False)
        return np.where((numbers >= 0) & (numbers < 10**_MOST_DIGITS), numbers, -1)
    is_number = pc.and_(
        pc.and_(pc.string_is_ascii(plain), pc.utf8_is_digit(plain)),
        pc.less_equal(pc.utf8_length(plain), _MOST_DIGITS),
    )
    numbers = pc.if_else(is_number, plain, None).cast(pa.int64())
    return pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False)


def _hashes(texts: pa.Array) -> np.ndarray:
    """A 64-bit hash of every text as int64; arbitrary for nulls."""
    values = pc.fill_null(texts, "").to_numpy(zero_copy_only=False)
    return pd.util.hash_array(values, categorize=False).view(np.int64)
