"""Spines as Parquet: one row a geounit, one row a block."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pyarrow.parquet as pq
from spineflow.geography.errors import GeographyRefused
from spineflow.geography.levels import Spine
from spineflow.geography.tables import spine_from_tables, spine_to_tables
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import replacing

GEOUNITS = "geounits.parquet"
BLOCKS = "blocks.parquet"


def write_spine(spine: Spine, folder: Path) -> None:
    """Write `geounits.parquet` and then `blocks.parquet`, whose presence marks a whole spine."""
    for name, table in zip((GEOUNITS, BLOCKS), spine_to_tables(spine), strict=True):
        with replacing(folder / name) as part:
            pq.write_table(table, part)


def read_spine(folder: Path) -> Spine:
    """Read what `write_spine` wrote; kept in memory while the files do not change.

    Raises InputRefused where the files do not describe one tree whose shares add to 1 on every
    path.
    """
    return _read_spine(folder, *((folder / name).stat().st_mtime_ns for name in (GEOUNITS, BLOCKS)))


@lru_cache(maxsize=4)
def _read_spine(folder: Path, *_modified: int) -> Spine:
    try:
        return spine_from_tables(pq.read_table(folder / GEOUNITS), pq.read_table(folder / BLOCKS))
    except GeographyRefused as error:
        raise InputRefused(f"spine/{folder.name}: {error}.") from None
