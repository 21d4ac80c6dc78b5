"""Columns of texts that stay in Arrow's memory, such as a mapped file's.

A Python text of a geocode takes some 75 bytes and an array of them 8 more each; in Arrow's memory
it takes its characters and 4 bytes, and none of them is read until needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Texts:
    """A column of texts without gaps, indexed like an object array `(n,)` of str.

    A position gives a str; a slice, positions or a mask give an object array of just these. NumPy,
    pandas and Arrow take it as they take an array; Arrow without a copy.

    >>> texts = Texts(pa.array(["a", "b", "c"]))
    >>> texts[1], texts[1:].tolist(), texts[np.array([2, 0])].tolist()
    ('b', ['b', 'c'], ['c', 'a'])
    """

    ndim = 1

    def __init__(self, array: pa.StringArray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    @property
    def shape(self) -> tuple[int]:
        """`(n,)`, as NumPy has it."""
        return (len(self._array),)

    @property
    def size(self) -> int:
        """`n`, as NumPy has it."""
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return _objects(self._array.slice(start, max(stop - start, 0)))
            index = np.arange(start, stop, step)
        chosen = np.asarray(index)
        if chosen.ndim == 0:
            return self._array[int(chosen)].as_py()
        if chosen.dtype == bool:
            if len(chosen) != len(self):
                raise IndexError(f"a mask of {len(chosen)} for {len(self)} texts")
            return _objects(self._array.filter(pa.array(chosen)))
        chosen = chosen.astype(np.int64)
        return _objects(
            self._array.take(pa.array(np.where(chosen < 0, chosen + len(self), chosen)))
        )

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._array.slice(start, _AT_ONCE).to_pylist()

    def __eq__(self, other: object) -> Any:
        return np.asarray(self) == other

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != other

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        texts = _objects(self._array)
        return texts if dtype is None else texts.astype(dtype, copy=False)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:  # noqa: A002
        return self._array if type in (None, self._array.type) else self._array.cast(type)

    def tolist(self) -> list[str]:
        """All texts."""
        return self._array.to_pylist()


class TextIndex:
    """Finds texts again among distinct ones, without a Python object for any of them.

    >>> index = TextIndex(np.array(["c", "a", "b"], dtype=object))
    >>> index.positions(pa.array(["a", "d"])).tolist()
    [1, -1]
    >>> index.between("b", "z").positions(pa.array(["a", "b", "c"])).tolist()
    [-1, 2, 0]
    """

    def __init__(self, texts: Any) -> None:
        array = pa.array(texts, pa.string())
        order = pc.sort_indices(array)
        self._ascending, self._position = array.take(order), order.to_numpy().astype(np.int64)

    def __len__(self) -> int:
        return len(self._ascending)

    def between(self, lowest: str, highest: str) -> TextIndex:
        """Those from one text to another, both included; no text is copied."""
        first = bisect_left(self._ascending, lowest, key=_text)
        last = bisect_right(self._ascending, highest, lo=first, key=_text)
        part = TextIndex.__new__(TextIndex)
        part._ascending = self._ascending.slice(first, last - first)
        part._position = self._position[first:last]
        return part

    def positions(self, texts: pa.Array) -> np.ndarray:
        """Position of each text among the indexed ones, shape `(n_texts,)`; -1 if absent."""
        place = pc.index_in(texts, value_set=self._ascending)
        found = np.full(len(texts), -1, dtype=np.int64)
        is_known = place.is_valid().to_numpy(zero_copy_only=False)
        found[is_known] = self._position[place.drop_null().to_numpy()]
        return found


_AT_ONCE = 1 << 16
"""Texts that are made at a time where they are gone through."""


def texts_of(array: pa.Array) -> np.ndarray:
    """Arrow's texts in a spine's representation, typed as the array that they are used as."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays([pa.array([], array.type), *array.chunks])
    if array.null_count:
        raise ValueError("a column of texts has gaps")
    return cast("np.ndarray", Texts(pc.cast(array, pa.string())))


def _text(scalar: pa.StringScalar) -> str:
    return scalar.as_py()


def _objects(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)
