"""Parquet files of a run, stamped as they are written if the run is not private.

A run that protects nobody says so in every file from its first byte on: what is written once, as
measurements are, is never written again, and whoever stops such a run half way has no file that
looks like another's. What writes a file far from the settings learns it from the run directory
that the file lies in, whose `NOT PRIVATE.txt` is there before everything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .files import NOT_PRIVATE, STAMP_FILE, STAMP_KEY, replacing

_SETTINGS = "settings.toml"


def stamp(*, is_private: bool) -> dict[str, str]:
    """Metadata of the Parquet files of a run; empty if it is private."""
    return {} if is_private else {STAMP_KEY: NOT_PRIVATE}


def stamp_at(path: Path) -> dict[str, str]:
    """Metadata of the Parquet file at a path: a stamp if the run directory that it lies in is of a
    run that is not private."""
    for folder in path.absolute().parents:
        if (folder / _SETTINGS).exists():
            return stamp(is_private=not (folder / STAMP_FILE).exists())
    return {}


def stamped(schema: pa.Schema, metadata: dict[str, str]) -> pa.Schema:
    """A schema with metadata beside its own.

    >>> stamped(pa.schema([]), stamp(is_private=False)).metadata
    {b'spineflow': b'NOT PRIVATE'}
    """
    return schema.with_metadata({**(schema.metadata or {}), **metadata}) if metadata else schema


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table in one step, with the stamp if need be; `options` as of `pq.write_table`."""
    table = table.replace_schema_metadata(stamped(table.schema, stamp_at(path)).metadata)
    with replacing(path) as part:
        pq.write_table(table, part, **options)
