"""Which released counts are fit for use: margins in proportion to the counts, level by level.

A count is reliable if its margin of 90 % is at most 27 % of it, a coefficient of variation of a
sixth: up to this, Statistics Canada publishes estimates of its surveys without a warning. Margins
hardly depend on the count, so that a level has a smallest count from which counts are reliable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ..pages.document import Cell, Table
from .released_tables import ReleasedTable, released_tables

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
    for table in released_tables(release):
        if not table.margins.exists():
            continue
        for name, level, counts in _counts_by_level(table):
            counts = counts[counts["count"] > 0]
            if counts.empty:
                continue
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


def _counts_by_level(table: ReleasedTable) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Counts with `lower`, `upper` and `of`, their description, by table and level; of tables of a
    summary level the positive ones.

    For tables of a summary level, only the total and the cells of its first table: there are
    hundreds of variables.
    """
    if not table.has_variables:
        rows = table.with_margins().dropna(subset=["lower", "upper"])
        labels = [name for name in table.dimensions if name in rows]
        rows["of"] = rows[labels].astype(str).agg(", ".join, axis=1)
        groups = rows.groupby("level", sort=False) if "level" in rows else [("all", rows)]
        for level, own in groups:
            yield table.path.stem, str(level), own
        return
    first = table.counts[0]
    cells = [name for name in table.counts if name[:4] == first[:4] and name != first]
    published = pq.read_table(table.path, columns=["GEOCODE", first, *cells]).to_pandas()
    ends = [f"{name}_{end}" for name in (first, *cells) for end in ("LOWER", "UPPER")]
    bounds = pq.read_table(table.margins, columns=ends).to_pandas()
    level = table.path.stem.partition("_")[2].replace("_", " ")
    title = f"{first[0]}{int(first[1:4])}"
    for name, columns in ((f"{title}: total", [first]), (f"{title}: other cells", cells)):
        count = published[columns].to_numpy().ravel()
        kept = np.flatnonzero(count > 0)  # Most cells of blocks are empty.
        lower, upper = (
            bounds[[f"{own}_{end}" for own in columns]].to_numpy().ravel()[kept]
            for end in ("LOWER", "UPPER")
        )
        code = published["GEOCODE"].iloc[kept // max(1, len(columns))].astype(str)
        described = {"lower": lower, "upper": upper, "of": (f"{level} " + code).to_numpy()}
        yield name, level, pd.DataFrame({"count": count[kept], **described})


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
