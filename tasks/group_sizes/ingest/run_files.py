"""Where a group-sizes run keeps its hierarchy, its plan and its confidential counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.group_sizes.ingest.hierarchy import stored_hierarchy
from spineflow.tasks.group_sizes.workload.plan import Plan
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing

UNIVERSE = "groups"
"""The universe in the names of measurement and estimate folders."""

SHARD = "00000"
"""A level is measured as one shard."""


def regions_file(run: RunDirectory) -> Path:
    """The hierarchy: level, region, parent; public."""
    return run.root / "hierarchy" / "regions.parquet"


def plan_file(run: RunDirectory) -> Path:
    """The plan, which is written last by the ingest; public."""
    return run.root / "hierarchy" / "plan.json"


def read_regions(run: RunDirectory) -> RegionHierarchy:
    """The hierarchy of a run."""
    return stored_hierarchy(regions_file(run))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run."""
    return Plan.from_json(plan_file(run).read_text(encoding="utf-8"))


def write_plan(run: RunDirectory, plan: Plan) -> None:
    """Write the plan in one step."""
    with replacing(plan_file(run)) as part:
        part.write_text(plan.to_json(), encoding="utf-8")


def measurement_file(run: RunDirectory, level: str) -> Path:
    """The noisy vector of a level."""
    return run.dpqueries(UNIVERSE, level, SHARD)


def estimates_file(run: RunDirectory, level: str) -> Path:
    """The estimated counts of a level."""
    return run.estimates(UNIVERSE, level, SHARD)


def true_counts(run: RunDirectory, hierarchy: RegionHierarchy, plan: Plan) -> list[np.ndarray]:
    """Confidential counts (n, n_sizes) of every level, root first."""
    finest = read_histogram(
        run.histogram(UNIVERSE), hierarchy.levels[-1].region, n_cells=plan.n_sizes
    )
    return hierarchy.sum_up(finest.toarray())
