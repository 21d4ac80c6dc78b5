"""The tables of a release that count records in areas, read from its Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..runs.files import STAMP_KEY

AREA_COLUMNS = {"SUMLEV": "level", "GEOCODE": "code", "NAME": "name"}
"""Columns of tables of summary levels, renamed as in declared tables."""

ROWS_PER_BATCH = 1 << 12

SUMMARY_LEVELS = "Counts of summary levels"
"""The table of all files of summary levels together."""


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

    def ends(self, end: str) -> list[str]:
        """The columns of the lower or upper ends of margins, one for each of counts."""
        return [f"{name}_{end.upper()}" for name in self.counts] if self.has_variables else [end]

    @property
    def margins(self) -> Path:
        """The file with the margins of its counts, which may not exist."""
        return self.path.with_stem(f"{self.path.stem}_margins")

    @property
    def stamp(self) -> str:
        """`NOT PRIVATE` for a table without protection; empty for others."""
        metadata = pq.read_schema(self.path).metadata or {}
        return metadata.get(STAMP_KEY.encode(), b"").decode()

    def batches(self) -> Iterator[tuple[pa.RecordBatch, ...]]:
        """The rows of the table, some at a time, each time with those of its margins, if any; one
        empty batch of a table without rows."""
        files = [pq.ParquetFile(path) for path in (self.path, self.margins) if path.exists()]
        if not files[0].metadata.num_rows:
            yield tuple(pa.RecordBatch.from_pylist([], file.schema_arrow) for file in files)
        yield from zip(*(file.iter_batches(ROWS_PER_BATCH) for file in files), strict=True)

    def with_margins(self) -> pd.DataFrame:
        """All rows, with the columns of their margins, if any."""
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


@dataclass(frozen=True)
class LevelCounts:
    """The areas of one level of a table, with their counts.

    codes, names : of the areas. variables : labels of the counts. counts, lower, upper : by area,
    then by variable; None for a missing value.
    """

    table: str
    level: str
    codes: tuple[str, ...]
    names: tuple[str, ...]
    variables: tuple[str, ...]
    counts: tuple[int | None, ...]
    lower: tuple[int | None, ...]
    upper: tuple[int | None, ...]


def counts_by_level(table: ReleasedTable, labels: Mapping[str, str]) -> list[LevelCounts]:
    """The levels of a released table, with `labels` of its variables by name."""
    rows = table.with_margins()
    if table.has_variables:
        variables = [f"{name} {labels.get(name, '')}".strip() for name in table.counts]
        level = table.path.stem.replace("_", " ")
        return [_level(table, SUMMARY_LEVELS, level, rows, variables)]
    keys = [name for name in table.dimensions if name not in ("level", "code")]
    rows["variable"] = rows[keys].astype(str).agg(", ".join, axis=1) if keys else "all"
    found = []
    for level, own in rows.groupby("level", sort=False):
        variables = own["variable"].unique()
        found.append(_level(table, table.path.stem, str(level), own, variables))
    return found


def codes_by_level(levels: Iterable[LevelCounts]) -> dict[str, set[str]]:
    """The codes of the areas of each level, of all tables together."""
    found: dict[str, set[str]] = {}
    for own in levels:
        found.setdefault(own.level, set()).update(own.codes)
    return found


def _level(
    table: ReleasedTable, name: str, level: str, rows: pd.DataFrame, variables: Iterable[str]
) -> LevelCounts:
    areas = rows.drop_duplicates("code")
    names = areas["name"] if "name" in areas else areas["code"]

    def flat(columns: Sequence[str]) -> tuple[int | None, ...]:
        if not set(columns) <= set(rows.columns):
            return ()
        values = rows[list(columns)].astype("Int64").to_numpy().ravel()
        return tuple(None if pd.isna(value) else int(value) for value in values)

    return LevelCounts(
        name,
        level,
        tuple(areas["code"].astype(str)),
        tuple(names.astype(str)),
        tuple(variables),
        flat(table.counts),
        flat(table.ends("lower")),
        flat(table.ends("upper")),
    )
