"""Rows of delimited text, written many at a time.

A row is made of pieces that many rows share, such as the codes of a block or of a cell, and of
numbers. Bytes are copied and digits written without a text object for any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import pyarrow.csv

LONGEST_NUMBER = 20
"""Characters of the longest 64-bit integer, with its sign."""

OF_BLOCK, OF_CELL, NUMBER = range(3)
"""What decides a piece of a row: its block, its cell or its number."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """The successive pieces of rows, `(n_pieces,)` each.

    kind : what decides each piece.
    first : where the texts of each piece begin among `offsets`; the texts of a NUMBER are one, what
        follows the number.
    offsets, text : all texts, one after the other, with the separators that follow them; text i is
        `text[offsets[i]:offsets[i + 1]]`.
    longest : characters of the longest row.
    """

    kind: np.ndarray
    first: np.ndarray
    offsets: np.ndarray
    text: np.ndarray
    longest: int

    @classmethod
    def of(cls, pieces: Sequence[tuple[int, pa.StringArray]]) -> Pieces:
        """From the kind and the texts of each piece."""
        buffers, offsets, first = [], [np.zeros(1, dtype=np.int64)], []
        n, end, longest = 0, 0, 0
        for kind, texts in pieces:
            of_piece, buffer = _offsets_and_bytes(texts)
            first.append(n)
            buffers.append(buffer)
            offsets.append(of_piece[1:] + end)
            n, end = n + len(texts), end + len(buffer)
            longest += int(np.diff(of_piece).max(initial=0))
            longest += LONGEST_NUMBER if kind == NUMBER else 0
        return cls(
            np.array([kind for kind, _ in pieces], dtype=np.int64),
            np.array(first, dtype=np.int64),
            np.concatenate(offsets),
            np.concatenate(buffers),
            longest,
        )


def repeated_rows(
    pieces: Pieces, block: np.ndarray, cell: np.ndarray, count: np.ndarray, first_number: int
) -> memoryview:
    """The text of `count[i]` equal rows of `block[i]` and `cell[i]`, for i in turn, but for their
    numbers, which go up from `first_number`. The arrays have shape `(n,)`.
    """
    out = np.empty(int(count.sum()) * pieces.longest, dtype=np.uint8)
    end = _write_repeated(
        pieces.kind,
        pieces.first,
        pieces.offsets,
        pieces.text,
        block,
        cell,
        count,
        first_number,
        out,
    )
    return out[:end].data


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


def _offsets_and_bytes(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets `(n + 1,)` from 0 on and the bytes of texts without nulls."""
    _, offset_buffer, data = texts.buffers()
    if not len(texts):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[texts.offset :][: len(texts) + 1]
    known = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return offsets.astype(np.int64) - int(offsets[0]), known[offsets[0] : offsets[-1]]


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
def _write_repeated(
    kind: np.ndarray,
    first: np.ndarray,
    offsets: np.ndarray,
    text: np.ndarray,
    block: np.ndarray,
    cell: np.ndarray,
    count: np.ndarray,
    number: int,
    out: np.ndarray,
) -> int:
    position = 0
    for i in range(len(count)):
        for _ in range(count[i]):
            for piece in range(len(kind)):
                chosen = first[piece]
                if kind[piece] == OF_BLOCK:
                    chosen += block[i]
                elif kind[piece] == OF_CELL:
                    chosen += cell[i]
                else:
                    position = _write_digits(number, out, position)
                for place in range(offsets[chosen], offsets[chosen + 1]):
                    out[position] = text[place]
                    position += 1
            number += 1
    return position


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
