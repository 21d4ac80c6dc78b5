"""Solver records of a shard as Parquet: how each parent's children were estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pyarrow as pa

from ...runs.stamps import write_parquet
from .parent import SolveRecord


def write_solves(path: Path, records: Sequence[SolveRecord]) -> None:
    """Write how every solve of a shard ended."""
    names = [field.name for field in fields(SolveRecord)]
    table = pa.table({name: [getattr(record, name) for record in records] for name in names})
    write_parquet(path, table, compression="zstd")
