"""The released tables of group sizes, their errors, and the public report of a run.

`group_sizes` (level, region, size, count) has a row for every size of every region, also where the
count is 0; `group_totals` (level, region, groups) adds them up. Both as Parquet and as
comma-delimited text with a header. Files of a run that is not private are stamped, like microdata.

Expected errors of a release are simulated with the release as truth: the mechanism, run with fresh
noise on the released numbers of groups, errs by about as much as the release itself. This reads
nothing confidential and spends nothing.

Errors against the confidential truth are confidential too; the report shows them for inputs that
are not confidential, and only for those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...geography.hierarchy import AreaLevel
from ..pages.document import Cell, Document, Table
from ..products.budget import Cost
from ..products.comparison import errors_table, write_errors
from ..products.plan import Plan
from ..products.reports import first_rows, report_document
from ..runs.directory import RunDirectory
from ..runs.stamps import RowsForm, write_rows
from .estimation.estimate import estimated_counts
from .ingest.read import exact_level, read_plan, read_regions, true_counts
from .ingest.regions import RegionHierarchy
from .plan import regions_file
from .settings import GeographySettings, GroupSizesSettings, GroupTables, Invariants

GROUP_SIZES = "group_sizes"
GROUP_TOTALS = "group_totals"

SIZES_SCHEMA = pa.schema(
    [
        ("level", pa.string()),
        ("region", pa.string()),
        ("size", pa.int64()),
        ("count", pa.int64()),
    ]
)
TOTALS_SCHEMA = pa.schema([("level", pa.string()), ("region", pa.string()), ("groups", pa.int64())])

_NEEDS_QUOTES = (",", '"', "\n", "\r")


def write_run_tables(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write both tables of a run's estimates to the folder of the unchecked release."""
    plan, hierarchy = read_plan(run), read_regions(run)
    levels = estimated_counts(run, plan, hierarchy)
    write_tables(run.unchecked_release, hierarchy, levels, plan.smallest_size)


def write_tables(
    folder: Path,
    hierarchy: RegionHierarchy,
    levels: Sequence[np.ndarray],
    smallest_size: int,
) -> None:
    """Write both tables from the counts (n, n_sizes) of every level, the table of sizes last."""
    named = list(zip(hierarchy.levels, levels, strict=True))
    totals = (
        _rows(level, np.arange(len(level)), TOTALS_SCHEMA, counts.sum(axis=1))
        for level, counts in named
    )
    sizes = (_sizes(level, counts, smallest_size) for level, counts in named)
    is_quoted = any(
        character in text
        for level in hierarchy.levels
        for text in (level.name, *level.codes)
        for character in _NEEDS_QUOTES
    )
    form = RowsForm(is_quoted=is_quoted)
    write_rows(folder / GROUP_TOTALS, TOTALS_SCHEMA, totals, form)
    write_rows(folder / GROUP_SIZES, SIZES_SCHEMA, sizes, form)


def _sizes(level: AreaLevel, counts: np.ndarray, smallest_size: int) -> pa.RecordBatch:
    n_regions, n_sizes = counts.shape
    region = np.repeat(np.arange(n_regions), n_sizes)
    size = np.tile(np.arange(smallest_size, smallest_size + n_sizes), n_regions)
    return _rows(level, region, SIZES_SCHEMA, size, counts.reshape(-1))


def _rows(
    level: AreaLevel, region: np.ndarray, schema: pa.Schema, *numbers: np.ndarray
) -> pa.RecordBatch:
    """Rows of a level by the places of their regions `(n,)`, with columns of numbers."""
    regions = pa.array(level.codes, pa.string()).take(pa.array(region))
    names = pa.repeat(pa.scalar(level.name), len(region))
    return pa.record_batch([names, regions, *map(pa.array, numbers)], schema=schema)


def settings_of_release(
    run: RunDirectory, settings: GroupSizesSettings, folder: Path
) -> GroupSizesSettings:
    """Settings of the same mechanism on a finished run's release, copied as input to `folder`."""
    hierarchy = read_regions(run)
    released = pq.read_table(run.release / "group_sizes.parquet")
    finest = released.filter(pc.equal(released["level"], hierarchy.names[-1]))
    sizes, regions = folder / "sizes.parquet", folder / "regions.parquet"
    pq.write_table(finest.select(["region", "size", "count"]), sizes)
    pq.write_table(pq.read_table(regions_file(run)), regions)
    mechanism = {"smallest_size": settings.smallest_size}
    level = exact_level(settings, hierarchy)
    exact = None if level == hierarchy.names[0] else level
    return settings.model_copy(
        update={
            "input": GroupTables(sizes=str(sizes), regions=str(regions), confidential=False),
            "geography": GeographySettings(),
            "invariants": Invariants(groups=True, level=exact),
            "mechanism": settings.mechanism.model_copy(update=mechanism),
        }
    )


KEYS = ("level",)
FIGURES = {
    "absolute_error": "absolute error, summed over the regions and sizes of a level",
    "error_per_region": "the same for a region, on average",
}


def write_accuracy(run: RunDirectory, _settings: GroupSizesSettings) -> None:
    """Write the errors by level and size to the confidential folder of the run."""
    plan, hierarchy = read_plan(run), read_regions(run)
    counts = estimated_counts(run, plan, hierarchy), true_counts(run, hierarchy, plan)
    frames = [
        pd.DataFrame(
            {
                "level": name,
                "size": np.arange(plan.smallest_size, plan.largest_size + 1),
                "regions": len(truth),
                "groups": truth.sum(axis=0),
                "absolute_error": np.abs(estimated - truth).sum(axis=0),
            }
        )
        for name, estimated, truth in zip(hierarchy.names, *counts, strict=True)
    ]
    write_errors(run, pa.Table.from_pandas(pd.concat(frames), preserve_index=False))


def facts_of_run(run: RunDirectory, _settings: GroupSizesSettings) -> dict[str, str]:
    """Description of a run in words."""
    plan = read_plan(run)
    return {
        "mechanism": plan.mechanism,
        "calibration": plan.calibration,
        "loss": Cost(plan.universe).in_words,
        "neighbours": "bounded" if plan.bounded else "unbounded",
        "sizes": f"{plan.smallest_size} to {plan.largest_size}",
    }


def report(
    run: RunDirectory, settings: GroupSizesSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    measured = read_plan(run)
    more = " or more" if measured.is_top_coded else ""
    return report_document(
        run,
        settings,
        plan,
        "group_sizes/templates/report.md.j2",
        counts=first_rows(run.release / f"{GROUP_SIZES}.parquet"),
        measured=measured,
        facts={
            "mechanism": measured.mechanism,
            "sizes": f"{measured.smallest_size} to {measured.largest_size}{more}",
            "groups (invariant, exact)": f"{measured.groups:,}",
        },
        **_accuracy(accuracy),
    )


def size_ranges(smallest: int, largest: int) -> Iterator[tuple[int, int]]:
    """Ranges of sizes for tables: single sizes up to 7, then ranges of doubling length.

    >>> list(size_ranges(1, 20))[5:]
    [(6, 6), (7, 7), (8, 15), (16, 20)]
    """
    yield from ((size, size) for size in range(smallest, min(largest, 7) + 1))
    low = 8
    while low <= largest:
        yield low, min(2 * low - 1, largest)
        low *= 2


def aggregate_by_level(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors by level, summed from errors by level and size."""
    of_level = errors.groupby("level", sort=False)
    figures = of_level.agg({"absolute_error": "sum", "regions": "first"}).reset_index()
    figures["error_per_region"] = figures["absolute_error"] / figures["regions"]
    return figures


def _accuracy(accuracy: pd.DataFrame | None) -> dict[str, Any]:
    """Errors by level and by size, for the template."""
    if accuracy is None:
        return {"errors": None}
    columns = {
        "level": "level",
        "regions": "regions",
        "absolute_error": "error",
        "error_per_region": "error per region",
    }
    by_size: list[tuple[Cell, ...]] = []
    for low, high in size_ranges(int(accuracy["size"].min()), int(accuracy["size"].max())):
        own = accuracy[accuracy["size"].between(low, high)].groupby("level", sort=False)
        errors = own["absolute_error"].sum()
        label = str(low) if low == high else f"{low} to {high}"
        by_size.append((label, int(own["groups"].sum().iloc[0]), *errors.tolist()))
    headers = ("size", "groups", *(f"error: {name}" for name in accuracy["level"].unique()))
    errors = aggregate_by_level(accuracy)
    return {
        "errors": dict(zip(errors["level"], errors["error_per_region"], strict=True)),
        "by_level": errors_table(errors, columns),
        "by_size": Table(headers, tuple(by_size)),
    }
