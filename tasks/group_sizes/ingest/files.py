"""Where a group-sizes run keeps its hierarchy, its plan and its confidential counts."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.group_sizes.ingest.hierarchy import stored_hierarchy
from spineflow.tasks.group_sizes.paths import (
    UNIVERSE,
    plan_file,
    regions_file,
)
from spineflow.tasks.group_sizes.workload.plan import Plan
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing


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


def true_counts(run: RunDirectory, hierarchy: RegionHierarchy, plan: Plan) -> list[np.ndarray]:
    """Confidential counts (n, n_sizes) of every level, root first."""
    finest = read_histogram(
        run.histogram(UNIVERSE), hierarchy.levels[-1].region, n_cells=plan.n_sizes
    )
    return hierarchy.sum_up(finest.toarray())
