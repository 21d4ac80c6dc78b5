"""The tables of a release that count records in areas, and which of their counts are fit for use.

Margins are judged in proportion to the counts, level by level. A count is reliable if its margin of
90 % is at most 27 % of it, a coefficient of variation of a sixth: up to this, Statistics Canada
publishes estimates of its surveys without a warning. Margins hardly depend on the count, so that a
level has a smallest count from which counts are reliable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..pages.document import Cell, Table
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
        """All rows: dimensions, names of areas and counts, with the ends of margins, if any."""
        rows = _read_columns(self.path, {*self.dimensions, "NAME", "name", *self.counts})
        if self.margins.exists():
            ends = {*self.ends("lower"), *self.ends("upper")}
            rows = rows.join(_read_columns(self.margins, ends))
        return rows.rename(columns=AREA_COLUMNS)


def _read_columns(path: Path, names: set[str]) -> pd.DataFrame:
    """Those of these columns that a file has."""
    there = [name for name in pq.read_schema(path).names if name in names]
    return pq.read_table(path, columns=there).to_pandas()


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


@dataclass(frozen=True, eq=False)
class LevelCounts:
    """The areas of one level of a table, with their counts.

    codes, names : of the areas. variables : labels of the counts. figures : `count`, and with
    margins `lower` and `upper`, shape (n_areas, n_variables) each; NaN for a missing value.
    """

    table: str
    level: str
    codes: tuple[str, ...]
    names: tuple[str, ...]
    variables: tuple[str, ...]
    figures: Mapping[str, np.ndarray]

    def listed(self, figure: str) -> list[int | None]:
        """A figure by area, then by variable; None for a missing value, nothing without margins."""
        values = self.figures.get(figure, np.zeros(0)).ravel().tolist()
        return [None if math.isnan(value) else int(value) for value in values]


def counts_by_level(table: ReleasedTable, labels: Mapping[str, str]) -> Iterator[LevelCounts]:
    """The levels of a released table, with `labels` of its variables by name."""
    rows, name = table.with_margins(), table.path.stem
    variables = [f"{own} {labels.get(own, '')}".strip() for own in table.counts]
    groups: Iterable[tuple[Any, pd.DataFrame]] = [(name.replace("_", " "), rows)]
    if not table.has_variables:
        keys = [own for own in table.dimensions if own not in ("level", "code")]
        rows["variable"] = rows[keys].astype(str).agg(", ".join, axis=1) if keys else "all"
        groups = rows.groupby("level", sort=False)
    columns = {"count": list(table.counts)} | {end: table.ends(end) for end in ("lower", "upper")}
    for level, own in groups:
        areas = own.drop_duplicates("code")
        yield LevelCounts(
            SUMMARY_LEVELS if table.has_variables else name,
            str(level),
            tuple(areas["code"].astype(str)),
            tuple(areas["name" if "name" in areas else "code"].astype(str)),
            tuple(variables if table.has_variables else own["variable"].unique()),
            {
                figure: own[names].to_numpy(float, na_value=np.nan).reshape(len(areas), -1)
                for figure, names in columns.items()
                if {*names} <= {*own}
            },
        )


def codes_by_level(levels: Iterable[LevelCounts]) -> dict[str, set[str]]:
    """The codes of the areas of each level, of all tables together."""
    found: dict[str, set[str]] = {}
    for own in levels:
        found.setdefault(own.level, set()).update(own.codes)
    return found


LARGEST_MARGIN = 0.27
"""Largest share that the margin of a reliable count has of it."""
MOSTLY, HARDLY = 0.95, 0.05
"""Share of reliable counts from which a whole level may be used, and share up to which none of it
may.
"""


@dataclass(frozen=True, eq=False)
class Fitness:
    """Verdicts on every table and level, and an example of a count with its margin.

    levels : table, level, counts (number of them that are positive), typical count, margin (half
        the width of the interval, typically), reliable (share of the counts), verdict.
    example : a sentence on one count of the finest level.
    """

    levels: Table
    example: str


def fitness(release: Path) -> Fitness | None:
    """The fitness of a release for use; None where no table has margins."""
    rows, example = list[dict[str, Cell | None]](), ""
    for table in (own for own in released_tables(release) if own.margins.exists()):
        for name, level, counts in _positive_counts(table):
            if len(counts):
                rows.append({"table": name, "level": level, **_verdict(counts)})
                example = _example(counts) or example
    return Fitness(Table.of(rows, "verdict"), example) if rows else None


def counts_in_margins(release: Path) -> list[dict[str, Cell]]:
    """For each table of a release with margins, its counts that are not known exactly, and the
    shares of them below, inside and above their intervals."""
    rows = list[dict[str, Cell]]()
    for table in (own for own in released_tables(release) if own.margins.exists()):
        n_open, n_below, n_above = np.zeros(3, dtype=np.int64)
        for counts, ends in table.batches():
            for names in zip(table.counts, table.ends("lower"), table.ends("upper"), strict=True):
                count, lower, upper = (
                    own[name].to_numpy(zero_copy_only=False)
                    for own, name in zip((counts, ends, ends), names, strict=True)
                )
                is_open = lower < upper
                n_open += is_open.sum()
                n_below += (is_open & (count < lower)).sum()
                n_above += (is_open & (count > upper)).sum()
        if n_open:
            shares = {"below": n_below, "inside": n_open - n_below - n_above, "above": n_above}
            row: dict[str, Cell] = {"table": table.path.stem, "counts": int(n_open)}
            rows.append(row | {place: f"{n / n_open:.1%}" for place, n in shares.items()})
    return rows


def _positive_counts(table: ReleasedTable) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Positive counts with `lower`, `upper`, and `of`, their description, by table and level.

    For tables of a summary level, only the total and the cells of its first table: there are
    hundreds of variables.
    """
    first = table.counts[0]
    counted = tuple(name for name in table.counts if name[:4] == first[:4])
    for level in counts_by_level(replace(table, counts=counted), {}):
        place = np.flatnonzero(level.figures["count"] > 0)  # Most cells of blocks are empty.
        area, variable = np.divmod(place, len(level.variables))
        counts = pd.DataFrame({name: own.flat[place] for name, own in level.figures.items()})
        codes, variables = (np.array(own, dtype=object) for own in (level.codes, level.variables))
        if table.has_variables:
            title, name = f"{first[0]}{int(first[1:4])}", level.level.partition(" ")[2]
            counts["of"] = f"{name} " + codes[area]
            yield f"{title}: total", name, counts[variable == 0]
            yield f"{title}: other cells", name, counts[variable > 0]
        else:
            described = ", " + variables[variable] if len(variables) > 1 else ""
            counts["of"] = f"{level.level}, " + codes[area] + described
            yield level.table, level.level, counts.dropna()


def _verdict(counts: pd.DataFrame) -> dict[str, Cell | None]:
    half = (counts["upper"] - counts["lower"]) / 2
    margin = float(half.median())
    reliable = float((half <= LARGEST_MARGIN * counts["count"]).mean())
    least = int(np.ceil(margin / LARGEST_MARGIN))
    verdict = f"use counts of {least:,} and more"
    if reliable >= MOSTLY:
        verdict = "use"
    elif reliable <= HARDLY:
        verdict = f"add up to {least:,} and more first"
    return {
        "counts": len(counts),
        "typical count": int(counts["count"].median()),
        "margin": f"± {margin:,.4g}",
        "reliable": f"{reliable:.0%}",
        "verdict": verdict,
    }


def _example(counts: pd.DataFrame) -> str:
    """A count of about the typical size within its interval; empty without such a count."""
    holds = (counts["lower"] <= counts["count"]) & (counts["count"] <= counts["upper"])
    inside = counts[holds & (counts["lower"] < counts["upper"])]
    if inside.empty:
        return ""
    row = inside.iloc[(inside["count"] - inside["count"].median()).abs().argsort().iloc[0]]
    return (
        f"An example: {row['of']} has a published count of {int(row['count']):,}; the true one is "
        f"between {int(row['lower']):,} and {int(row['upper']):,}, with a probability of 90 % at "
        "least."
    )
