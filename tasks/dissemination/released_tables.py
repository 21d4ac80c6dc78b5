"""The tables of a release that count records in areas, read from its Parquet files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from ..runs.files import STAMP_KEY

AREA_COLUMNS = {"SUMLEV": "level", "GEOCODE": "code", "NAME": "name"}
"""Columns of tables of summary levels by those of declared tables."""


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A table of a release, as its Parquet file has it.

    path : of the table. dimensions : columns that identify a row. counts : columns of counts; one
    of `count`, or one for each variable.
    """

    path: Path
    dimensions: tuple[str, ...]
    counts: tuple[str, ...]

    @property
    def has_variables(self) -> bool:
        """Whether its columns of counts are a dimension."""
        return self.counts != ("count",)

    @property
    def margins(self) -> Path:
        """The file with the margins of its counts, which may not exist."""
        return self.path.with_stem(f"{self.path.stem}_margins")

    @property
    def stamp(self) -> str:
        """`NOT PRIVATE` for a table that protects nobody; empty for others."""
        metadata = pq.read_schema(self.path).metadata or {}
        return metadata.get(STAMP_KEY.encode(), b"").decode()

    def with_margins(self) -> pd.DataFrame:
        """All rows, with the columns of their margins where there are any."""
        rows = pq.read_table(self.path).to_pandas()
        if self.margins.exists():
            bounds = pq.read_table(self.margins).to_pandas()
            rows = rows.join(bounds[[name for name in bounds if name not in rows]])
        return rows.rename(columns=AREA_COLUMNS)


def released_tables(release: Path) -> list[ReleasedTable]:
    """The tables of counts of areas that a release has, by name."""
    found = []
    for path in sorted((release / "tables").glob("*.parquet")):
        names = pq.read_schema(path).names
        variables = tuple(name for name in names if re.fullmatch(r"[A-Z]\d{7}", name))
        if variables:
            found.append(ReleasedTable(path, ("SUMLEV", "GEOCODE"), variables))
        elif "count" in names:
            described = ("name", "latitude", "longitude", "label", "count")
            dimensions = tuple(name for name in names if name not in described)
            found.append(ReleasedTable(path, dimensions, ("count",)))
    return found
