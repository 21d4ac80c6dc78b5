"""Rows of delimited text with hundreds of numbers, written many at a time.

Bytes are copied and digits written without a text object for any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import pyarrow as pa
import pyarrow.csv


def numbered_rows(lines: bytes | pa.Buffer, numbers: np.ndarray, separator: str) -> memoryview:
    """Every one of some lines with its row of `numbers` `(n_lines, n)` int64 after it, each number
    after a separator.

    Lines end with a line feed, and have no other.
    """
    text = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if len(ends) != len(numbers):
        raise ValueError(f"{len(ends)} lines cannot have {len(numbers)} rows of numbers")
    largest = max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))
    widest = len(str(largest)) + 2
    out = np.empty(len(text) + numbers.size * widest, dtype=np.uint8)
    end = _write_numbered(text, ends, np.ascontiguousarray(numbers), ord(separator), out)
    return out[:end].data


def text_lines(
    columns: Sequence[pa.Array], schema: pa.Schema, delimiter: str, quoting: str = "none"
) -> pa.Buffer:
    """Columns of texts as lines of delimited text."""
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter=delimiter, quoting_style=quoting
    )
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
    pyarrow.csv.write_csv(batch, sink, options)
    return sink.getvalue()


@numba.njit(cache=True, nogil=True)
def _write_digits(value: int, out: np.ndarray, position: int) -> int:
    """Write an integer in decimal from `position` on; returns where it ends."""
    if value < 0:
        out[position] = 45
        position += 1
        value = -value
    if value < 10:
        out[position] = 48 + value
        return position + 1
    end = position
    rest = value
    while rest > 0:
        end += 1
        rest //= 10
    for place in range(end - 1, position - 1, -1):
        out[place] = 48 + value % 10
        value //= 10
    return end


@numba.njit(cache=True, nogil=True)
def _write_numbered(
    text: np.ndarray, ends: np.ndarray, numbers: np.ndarray, separator: int, out: np.ndarray
) -> int:
    position, start = 0, 0
    for row in range(len(ends)):
        for place in range(start, ends[row]):
            out[position] = text[place]
            position += 1
        start = ends[row] + 1
        for column in range(numbers.shape[1]):
            out[position] = separator
            position = _write_digits(numbers[row, column], out, position + 1)
        out[position] = 10
        position += 1
    return position
