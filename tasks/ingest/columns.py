"""One form for the columns of every format: coded columns, and identifiers with an index.

A column of codes has few distinct values, so everything about it (its canonical text, whether a
rule holds, its level in a schema) is worked out once for each distinct value and looked up for
the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tasks.ingest.layouts import Field

_MOST_DIGITS = 18
"""Longest run of digits that is certain to fit into 64 bits."""


@dataclass(frozen=True)
class CodedColumn:
    """A column as positions `codes`, shape `(n_rows,)`, in its distinct canonical `values`.

    A value is a text, or None for blank; see `tasks.ingest.layouts` for its canonical form.
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

    def lookup(self, function: Callable[[str | None], object], dtype: type) -> np.ndarray:
        """`function` of every row's value, evaluated once for each distinct value."""
        return np.array([function(value) for value in self.values], dtype=dtype)[self.codes]

    def counts(self) -> dict[str | None, int]:
        """Number of rows of every value that occurs."""
        rows = np.bincount(self.codes, minlength=len(self.values))
        return {value: int(n) for value, n in zip(self.values, rows, strict=True) if n}

    def texts(self) -> np.ndarray:
        """Every row's value, shape `(n_rows,)`, object; None where blank."""
        return self.lookup(lambda value: value, object)


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
    if field.kind == "number" and text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    return text


class KeyIndex:
    """Finds the row of an identifier in a column of identifiers.

    Identifiers are compared as numbers if all of the indexed column are made of up to 18 digits,
    so that integers, `7` and `000000007` agree; otherwise as texts without surrounding blanks.

    >>> index = KeyIndex(pa.array(["01", "02", None]))
    >>> index.positions(pa.array([2, 3])).tolist()
    [1, -1]
    """

    def __init__(self, keys: pa.Array) -> None:
        texts = _key_texts(keys)
        numbers = _numbers(texts)
        self.is_blank: np.ndarray = texts.is_null().to_numpy(zero_copy_only=False)
        """Mask of the rows without an identifier, shape `(n_rows,)`."""
        self._is_numeric = bool(np.array_equal(numbers < 0, self.is_blank))
        labels = pd.Index(numbers if self._is_numeric else texts.to_numpy(zero_copy_only=False))
        self.is_repeated: np.ndarray = labels.duplicated(keep=False) & ~self.is_blank
        """Mask of the rows whose identifier another row has too, shape `(n_rows,)`."""
        self._rows = np.flatnonzero(~labels.duplicated() & ~self.is_blank)
        self._labels = labels[self._rows]

    def positions(self, keys: pa.Array) -> np.ndarray:
        """Row of every identifier in the indexed column, shape `(n_keys,)`; -1 for none.

        Where the indexed column repeats an identifier, its first row is given.
        """
        texts = _key_texts(keys)
        if self._is_numeric:
            found = self._labels.get_indexer(_numbers(texts))
        else:
            found = self._labels.get_indexer(texts.to_numpy(zero_copy_only=False))
        if not len(self._rows):
            return np.full(len(texts), -1, dtype=np.int64)
        return np.where(found < 0, -1, self._rows[found]).astype(np.int64)


def is_blank_key(keys: pa.Array) -> np.ndarray:
    """Mask of the rows without an identifier, shape `(n_rows,)`."""
    return _key_texts(keys).is_null().to_numpy(zero_copy_only=False)


def _key_texts(keys: pa.Array) -> pa.Array:
    """Identifiers as texts without surrounding blanks; null where blank."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if pa.types.is_floating(keys.type):
        # A float that is no whole number, or too large to be exact, identifies nothing.
        is_exact = pc.and_(pc.equal(pc.floor(keys), keys), pc.less(pc.abs(keys), 2.0**53))
        keys = pc.if_else(is_exact, keys, None).cast(pa.int64())
    texts = pc.utf8_trim_whitespace(keys.cast(pa.large_string()))
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _numbers(texts: pa.Array) -> np.ndarray:
    """Identifiers as int64; -1 where blank or not made of up to 18 ASCII digits."""
    is_number = pc.and_(
        pc.and_(pc.string_is_ascii(texts), pc.utf8_is_digit(texts)),
        pc.less_equal(pc.utf8_length(texts), _MOST_DIGITS),
    )
    numbers = pc.if_else(is_number, texts, None).cast(pa.int64())
    return pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False)
