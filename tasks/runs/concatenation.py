"""Tables that several tasks have written in parts, concatenated without decoding a value.

The row groups of Parquet files are copied as they are, and the footers are merged: a footer is a
structure in Thrift's compact protocol, of which the offsets of columns and the numbers of row
groups change. The result has the bytes that one writer of all row groups writes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from .files import replacing
from .stamps import WrittenFiles

_MAGIC = b"PAR1"
_AT_ONCE = 1 << 24
_TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_NUMBER = (4, 5, 6)
"""Types of values; those of 16, 32 and 64 bits are numbers of variable length."""
_N_ROWS, _ROW_GROUPS = 3, 4
"""Fields of a footer."""
_COLUMNS, _FILE_OFFSET, _ORDINAL = 1, 5, 7
"""Fields of a row group."""
_METADATA, _OFFSETS_OF_COLUMN, _OFFSETS = 3, (2, 4, 6), (9, 10, 11, 14)
"""Fields of a column in a row group, and the offsets in its metadata."""

Struct = dict[int, tuple[int, Any]]
"""Type and value of each field, by number; of a list, the type of its elements and these."""


def concatenate_rows(stem: Path, parts: Sequence[Path]) -> WrittenFiles:
    """Write the Parquet and the text file `stem` from those of all `parts`, in order, and remove
    the parts.

    Each part has the two files as `stamps.rows_written` writes them, with the same columns. The
    text appears last.
    """
    with (
        replacing(stem.with_suffix(".csv")) as text,
        replacing(stem.with_suffix(".parquet")) as parquet,
    ):
        n_rows = _concatenate_parquet(parquet, [part.with_suffix(".parquet") for part in parts])
        _concatenate_text(text, [part.with_suffix(".csv") for part in parts])
    for part in parts:
        for path in (part.with_suffix(".csv"), part.with_suffix(".parquet")):
            path.unlink()
    return WrittenFiles(stem.with_suffix(".parquet"), stem.with_suffix(".csv"), n_rows)


def _concatenate_text(path: Path, parts: Sequence[Path]) -> None:
    """Rows under the first part's header, with its stamp."""
    with path.open("wb") as sink:
        for number, part in enumerate(parts):
            with part.open("rb") as source:
                if number and source.readline().startswith(b"# "):
                    source.readline()
                _copy(source, sink, source.tell(), part.stat().st_size)


def _concatenate_parquet(path: Path, parts: Sequence[Path]) -> int:
    """Row groups under one footer; returns the number of rows."""
    merged: Struct = {}
    with path.open("wb") as sink:
        sink.write(_MAGIC)
        for part in parts:
            with part.open("rb") as source:
                footer, end = _footer_of(source)
                shift = sink.tell() - len(_MAGIC)
                _copy(source, sink, len(_MAGIC), end)
            groups = footer[_ROW_GROUPS][1][1]
            for number, group in enumerate(groups, len(merged[_ROW_GROUPS][1][1]) if merged else 0):
                _move(group, shift, number)
            if merged:
                merged[_ROW_GROUPS][1][1].extend(groups)
                kind, n_rows = merged[_N_ROWS]
                merged[_N_ROWS] = kind, n_rows + footer[_N_ROWS][1]
            else:
                merged = footer
        content = bytearray()
        _write_struct(content, merged)
        sink.write(bytes(content) + struct.pack("<I", len(content)) + _MAGIC)
    return int(merged[_N_ROWS][1])


def _copy(source: BinaryIO, sink: BinaryIO, start: int, stop: int) -> None:
    """Append some bytes of a file to another."""
    source.seek(start)
    while (left := stop - source.tell()) > 0:
        sink.write(source.read(min(left, _AT_ONCE)))


def _footer_of(source: BinaryIO) -> tuple[Struct, int]:
    """The footer of a Parquet file, and its offset."""
    source.seek(-8, os.SEEK_END)
    end = source.tell()
    size, magic = struct.unpack("<I4s", source.read())
    if magic != _MAGIC:
        raise ValueError(f"{source.name} is not a complete Parquet file")
    source.seek(end - size)
    footer, _ = _read_struct(source.read(size), 0)
    return footer, end - size


def _move(group: Struct, shift: int, number: int) -> None:
    """Move a row group of a footer by some bytes, and number it."""
    _shift(group, (_FILE_OFFSET,), shift)
    if _ORDINAL in group:
        group[_ORDINAL] = group[_ORDINAL][0], number
    for column in group[_COLUMNS][1][1]:
        _shift(column, _OFFSETS_OF_COLUMN, shift)
        _shift(column[_METADATA][1], _OFFSETS, shift)


def _shift(fields: Struct, numbers: Sequence[int], shift: int) -> None:
    for number in numbers:
        kind, offset = fields.get(number, (0, 0))
        if offset:
            fields[number] = kind, offset + shift


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_number(data, at)
        kind = head & 15
        if kind in (_TRUE, _FALSE):
            found[number] = kind, None
        else:
            value, at = _read_value(data, at, kind)
            found[number] = kind, value
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _NUMBER:
        return _read_number(data, at)
    if kind == _TEXT:
        size, at = _read_size(data, at)
        return data[at : at + size], at + size
    if kind == _STRUCT:
        return _read_struct(data, at)
    if kind in (_LIST, _SET):
        head, at = data[at], at + 1
        size, of_each, values = head >> 4, head & 15, []
        if size == 15:
            size, at = _read_size(data, at)
        for _ in range(size):
            value, at = _read_value(data, at, of_each)
            values.append(value)
        return (of_each, values), at
    if kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        size = 8 if kind == _DOUBLE else 1
        return data[at : at + size], at + size
    raise ValueError("a Parquet footer has a value of an unknown type")


def _read_size(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) & 128:
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
    return value | byte << shift, at + 1


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_size(data, at)
    return (value >> 1) ^ -(value & 1), at


def _write_struct(into: bytearray, fields: Struct) -> None:
    before = 0
    for number, (kind, value) in fields.items():
        if 0 < number - before < 16:
            into.append((number - before) << 4 | kind)
        else:
            into.append(kind)
            _write_number(into, number)
        before = number
        if kind not in (_TRUE, _FALSE):
            _write_value(into, kind, value)
    into.append(0)


def _write_value(into: bytearray, kind: int, value: Any) -> None:
    if kind in _NUMBER:
        _write_number(into, value)
    elif kind == _TEXT:
        _write_size(into, len(value))
        into += value
    elif kind == _STRUCT:
        _write_struct(into, value)
    elif kind in (_LIST, _SET):
        of_each, values = value
        into.append(min(len(values), 15) << 4 | of_each)
        if len(values) >= 15:
            _write_size(into, len(values))
        for one in values:
            _write_value(into, of_each, one)
    else:
        into += value


def _write_size(into: bytearray, value: int) -> None:
    while value > 127:
        into.append(value & 127 | 128)
        value >>= 7
    into.append(value)


def _write_number(into: bytearray, value: int) -> None:
    _write_size(into, value << 1 if value >= 0 else ~value << 1 | 1)
