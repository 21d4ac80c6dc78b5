"""Estimating a run's group sizes from its published measurements."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from spineflow.tasks.answers.estimates import read_estimates, write_estimates
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX, read_measurements
from spineflow.tasks.group_sizes.estimation.estimate import estimate_sizes
from spineflow.tasks.group_sizes.ingest.run_files import (
    estimates_file,
    measurement_file,
    read_plan,
    read_regions,
)
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.group_sizes.workload.plan import Plan
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy
from spineflow.tasks.runs.directory import RunDirectory


def read_noisy(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> list[np.ndarray]:
    """The noisy vectors (n, n_sizes) of every level, root first."""
    name = plan.vector + DPQUERY_SUFFIX
    return [
        read_measurements(measurement_file(run, level.name), level.region)[name].values
        for level in hierarchy.levels
    ]


def estimate_run(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write the counts of every level, the finest last: where those are, all are."""
    plan, hierarchy = read_plan(run), read_regions(run)
    noisy = read_noisy(run, plan, hierarchy)
    levels = estimate_sizes(plan.mechanism, noisy, hierarchy, plan.groups, plan.weights)
    for level, counts in zip(hierarchy.levels, levels, strict=True):
        write_estimates(
            estimates_file(run, level.name),
            level.region,
            sparse.csr_array(counts),
            is_private=settings.is_private,
        )


def estimated_counts(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> list[np.ndarray]:
    """What `estimate_run` wrote, (n, n_sizes) for every level, root first."""
    return [
        read_estimates([estimates_file(run, level.name)], level.region, plan.n_sizes).toarray()
        for level in hierarchy.levels
    ]
