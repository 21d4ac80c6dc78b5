"""One interface to all group-size mechanisms: noisy vectors in, counts of every level out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from spineflow.tasks.answers.estimates import read_estimates, write_estimates
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX, read_measurements
from spineflow.tasks.group_sizes.estimation.chain import chain_optimum
from spineflow.tasks.group_sizes.estimation.cumulative import cumulative_estimate
from spineflow.tasks.group_sizes.estimation.marginal_costs import hierarchical_optimum
from spineflow.tasks.group_sizes.estimation.relaxed import (
    TIME_LIMIT,
    cumulative_relaxed,
    hierarchical_relaxed,
)
from spineflow.tasks.group_sizes.estimation.topdown import topdown_estimate
from spineflow.tasks.group_sizes.ingest.files import read_plan, read_regions
from spineflow.tasks.group_sizes.paths import estimates_file, measurement_file
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.group_sizes.workload.mechanisms import (
    CHAIN_DP,
    CUMULATIVE_DP,
    HIERARCHICAL,
    HIERARCHICAL_DP,
    RELAXED,
    TOPDOWN,
)
from spineflow.tasks.group_sizes.workload.plan import Plan
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy
from spineflow.tasks.runs.directory import RunDirectory


def estimate_sizes(
    mechanism: str,
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    *,
    time_limit: float = TIME_LIMIT,
) -> list[np.ndarray]:
    """Non-negative integers (n, n_sizes) for every level, root first.

    Args:
        mechanism: one of `mechanisms.VECTOR_OF`.
        noisy: for each level the noisy vector that the mechanism measures, (n, n_sizes).
        total: the public number of groups.
        weights: integer weight of each level's squared distances (`mechanisms.level_weights`);
            `topdown` has no use for them.
        time_limit: seconds for a relaxed program; the others are fast and take no notice.

    Children add to their parents and every level to the total, except for the relaxed baselines.
    Raises SolveFailed if a relaxed program does not finish.
    """
    if mechanism in RELAXED:
        relaxed = hierarchical_relaxed if mechanism == HIERARCHICAL else cumulative_relaxed
        return relaxed(noisy, hierarchy, total, weights, time_limit=time_limit)
    if mechanism == TOPDOWN:
        return hierarchy.sum_up(topdown_estimate(noisy, hierarchy, total))
    exact = {
        HIERARCHICAL_DP: hierarchical_optimum,
        CUMULATIVE_DP: cumulative_estimate,
        CHAIN_DP: chain_optimum,
    }[mechanism]
    return hierarchy.sum_up(exact(noisy, hierarchy, total, weights))


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
