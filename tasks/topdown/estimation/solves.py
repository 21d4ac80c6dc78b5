"""Solver records of a shard as Parquet: how each parent's children were estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.topdown.estimation.parent import SolveRecord


def write_solves(path: Path, records: Sequence[SolveRecord]) -> None:
    """Write how every solve of a shard ended."""
    names = [field.name for field in fields(SolveRecord)]
    rows = [asdict(record) for record in records]
    table = pa.table({name: [row[name] for row in rows] for name in names})
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd")
