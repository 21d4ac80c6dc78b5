"""The released tables: groups by level, region and size, and groups in all by level and region.

`group_sizes` (level, region, size, count) has a row for every size of every region, also where the
count is 0; `group_totals` (level, region, groups) adds them up. Both as Parquet and as
comma-delimited text with a header. A run that is not private is stamped as microdata are.

A release of group sizes as the truth of a simulation of its expected errors.

The mechanism is public. Run again on the released numbers of groups, with fresh noise, it is off by
about as much as the release itself is. Nothing confidential is read, and nothing spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.stamps import RowsForm, write_rows
from ..estimation.estimate import estimated_counts
from ..ingest.read import exact_level, read_plan, read_regions
from ..ingest.regions import RegionHierarchy
from ..plan import regions_file
from ..settings import GeographySettings, GroupSizesSettings, GroupTables, Invariants

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
    smallest, is_private = plan.smallest_size, settings.is_private
    write_tables(run.unchecked_release, hierarchy, levels, smallest, is_private=is_private)


def write_tables(
    folder: Path,
    hierarchy: RegionHierarchy,
    levels: Sequence[np.ndarray],
    smallest_size: int,
    *,
    is_private: bool = True,
) -> None:
    """Write both tables of the counts (n, n_sizes) of every level, the sizes last."""
    totals = (
        pa.record_batch(
            [
                pa.array(np.full(len(level), level.name, dtype=object)),
                pa.array(level.codes),
                pa.array(counts.sum(axis=1)),
            ],
            schema=TOTALS_SCHEMA,
        )
        for level, counts in zip(hierarchy.levels, levels, strict=True)
    )
    sizes = (
        _sizes(level.name, level.codes, counts, smallest_size)
        for level, counts in zip(hierarchy.levels, levels, strict=True)
    )
    is_quoted = any(
        character in text
        for level in hierarchy.levels
        for text in (level.name, *level.codes)
        for character in _NEEDS_QUOTES
    )
    form = RowsForm(is_quoted=is_quoted)
    write_rows(folder / GROUP_TOTALS, TOTALS_SCHEMA, totals, is_private, form)
    write_rows(folder / GROUP_SIZES, SIZES_SCHEMA, sizes, is_private, form)


def _sizes(
    name: str, regions: np.ndarray, counts: np.ndarray, smallest_size: int
) -> pa.RecordBatch:
    n_regions, n_sizes = counts.shape
    region = np.repeat(np.arange(n_regions, dtype=np.int32), n_sizes)
    size = np.arange(smallest_size, smallest_size + n_sizes)
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(name), counts.size),
            pa.array(regions, pa.string()).take(pa.array(region)),
            pa.array(np.tile(size, n_regions)),
            pa.array(counts.reshape(-1)),
        ],
        schema=SIZES_SCHEMA,
    )


def settings_of_release(
    run: RunDirectory, settings: GroupSizesSettings, folder: Path
) -> GroupSizesSettings:
    """Settings of the same mechanism on a finished run's release, whose tables go to a folder."""
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
