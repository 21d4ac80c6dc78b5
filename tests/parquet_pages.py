"""What the dictionary pages of Parquet files hold beyond their values.

The head of a page is a Thrift structure in the compact protocol; of it the first three fields
(kind, bytes, bytes compressed) and the number of values in the structure that follows are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.tasks.runs.files import STAMP_FILE


def surplus(path: Path) -> dict[str, bytes]:
    """By column of texts, the bytes that follow the last value of its dictionary pages, if any."""
    content = path.read_bytes()
    found: dict[str, bytes] = {}
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    for group in groups:
        for column in (group.column(i) for i in range(group.num_columns)):
            if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY":
                page, n_values = dictionary_page(content, column)
                for _ in range(n_values):
                    (length,) = struct.unpack_from("<I", page)
                    page = page[4 + length :]
                if page:
                    found[column.path_in_schema] = page
    return found


def dictionary_page(content: bytes, column: pq.ColumnChunkMetaData) -> tuple[bytes, int]:
    """The dictionary page of a column of a row group, decompressed, and its number of values."""
    numbers = fields(content, column.dictionary_page_offset)
    (kind, _), (size, _), (compressed, _) = (next(numbers) for _ in range(3))
    assert kind == 2, "the page of a dictionary"
    n_values, _ = next(numbers)
    *_, (_, end) = numbers
    stored = content[end : end + compressed]
    if column.compression != "UNCOMPRESSED":
        stored = pa.Codec(column.compression.lower()).decompress(stored, size).to_pybytes()
    assert len(stored) == size
    return stored, n_values


def fields(content: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Numbers of a structure and of the structures in it, and where each ends, the end included."""
    depth = 1
    while depth:
        head, at = content[at], at + 1
        if head == 0:
            depth -= 1
        elif head & 15 == 12:
            depth += 1
        elif head & 15 in (5, 6):
            number = shift = 0
            while True:
                byte, at = content[at], at + 1
                number |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            yield (number >> 1) ^ -(number & 1), at
        else:
            assert head & 15 in (1, 2), "a truth value stands in the head of its field"
    yield -1, at


def mark_not_private(folder: Path) -> None:
    """Make a folder look like the directory of a run that is not private."""
    folder.mkdir(exist_ok=True)
    for name in ("settings.toml", STAMP_FILE):
        (folder / name).touch()
