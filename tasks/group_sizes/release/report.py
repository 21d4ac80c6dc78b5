"""The public report of a group-sizes run: its settings, its accuracy, its checks.

Errors against the input are shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ...pages.document import Cell, Document, Figure, Table
from ...pages.figures import line_chart
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.read import read_plan
from ..plan import Plan as MeasuredLevels
from ..settings import GroupSizesSettings
from .tables import GROUP_SIZES

MOST_POINTS = 300
"""Points of a curve, which are denser where sizes are small."""

NEIGHBORS = {
    False: "one person joins or leaves a group",
    True: "one person moves from a group to another",
}


def report(
    run: RunDirectory, settings: GroupSizesSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    measured = read_plan(run)
    return report_document(
        run,
        settings,
        plan,
        "group_sizes/templates/report.md.j2",
        counts=first_rows(run.release / f"{GROUP_SIZES}.parquet"),
        measured=measured,
        facts={
            "mechanism": measured.mechanism,
            "sizes": sizes_text(measured),
            "groups (invariant, exact)": f"{measured.groups:,}",
        },
        **_accuracy(accuracy),
    )


def size_ranges(smallest: int, largest: int) -> Iterator[tuple[int, int]]:
    """Ranges of sizes for tables: one by one up to 7, then doubling.

    >>> list(size_ranges(1, 20))[5:]
    [(6, 6), (7, 7), (8, 15), (16, 20)]
    """
    yield from ((size, size) for size in range(smallest, min(largest, 7) + 1))
    low = 8
    while low <= largest:
        yield low, min(2 * low - 1, largest)
        low *= 2


def sizes_text(plan: MeasuredLevels) -> str:
    """The released sizes in words."""
    more = " or more" if plan.is_top_coded else ""
    return f"{plan.smallest_size} to {plan.largest_size}{more}"


def aggregate_by_level(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors by level, from those by level and size that a run keeps."""
    of_level = errors.groupby("level", sort=False)
    figures = of_level.agg({"absolute_error": "sum", "regions": "first"}).reset_index()
    figures["error_per_region"] = figures["absolute_error"] / figures["regions"]
    return figures


def _accuracy(accuracy: pd.DataFrame | None) -> dict[str, Any]:
    """Errors by level, by size, and up to each size, for the template."""
    if accuracy is None:
        return {"errors": None}
    levels = list(dict.fromkeys(accuracy["level"]))
    columns = {
        "level": "level",
        "regions": "regions",
        "absolute_error": "error",
        "error_per_region": "error per region",
    }
    by_size: list[tuple[Cell, ...]] = []
    for low, high in size_ranges(int(accuracy["size"].min()), int(accuracy["size"].max())):
        own = accuracy[accuracy["size"].between(low, high)]
        errors = own.groupby("level", sort=False)["absolute_error"].sum()
        label = str(low) if low == high else f"{low} to {high}"
        groups = int(own.loc[own["level"] == levels[0], "groups"].sum())
        by_size.append((label, groups, *(int(errors[name]) for name in levels)))
    n_sizes = len(accuracy) // len(levels)
    shown = np.unique(np.geomspace(1, n_sizes, MOST_POINTS).astype(np.int64)) - 1
    series = {
        name: (
            own["size"].to_numpy(float)[shown] + 1,
            own["absolute_error"].cumsum().to_numpy(float)[shown],
        )
        for name, own in accuracy.groupby("level", sort=False)
    }
    chart = line_chart(
        series,
        title="Error up to each size, by level",
        x_label="size + 1",
        y_label="L1 error of all sizes so far",
        log_x=True,
        steps=True,
    )
    headers = ("size", "groups", *(f"error: {name}" for name in levels))
    errors = aggregate_by_level(accuracy)
    return {
        "errors": dict(zip(errors["level"], errors["error_per_region"], strict=True)),
        "by_level": errors_table(errors, columns),
        "by_size": Table(headers, tuple(by_size)),
        "chart": Figure(chart, "Error of all sizes up to each one."),
    }
