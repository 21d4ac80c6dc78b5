"""One interface to all group-size mechanisms: noisy vectors in, counts of every level out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from ...answers.estimates import read_estimates, write_estimates
from ...answers.noisy import DPQUERY_SUFFIX, read_measurements
from ...runs.directory import RunDirectory
from ..ingest.files import exact_groups, read_plan, read_regions
from ..paths import estimates_file, measurement_file
from ..settings import GroupSizesSettings
from ..workload.mechanisms import (
    CHAIN_DP,
    CUMULATIVE_DP,
    HIERARCHICAL,
    HIERARCHICAL_DP,
    RELAXED,
    TOPDOWN,
)
from ..workload.plan import Plan, merged_levels
from ..workload.regions import RegionHierarchy
from .chain import chain_optimum
from .cumulative import cumulative_estimate
from .relaxed import (
    TIME_LIMIT,
    cumulative_relaxed,
    hierarchical_relaxed,
)
from .rows import Rows, exact_hierarchical
from .topdown import topdown_estimate


def estimate_sizes(
    mechanism: str,
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    *,
    rows: Rows | None = None,
    time_limit: float = TIME_LIMIT,
) -> list[np.ndarray]:
    """Non-negative integers (n, n_sizes) for every level, root first.

    Args:
        mechanism: one of `mechanisms.VECTOR_OF`.
        noisy: for each level the noisy vector that the mechanism measures, (n, n_sizes).
        total: the public number of groups.
        weights: integer weight of each level's squared distances (`mechanisms.level_weights`);
            `topdown` has no use for them. Of weight 0, where nothing was measured, may be all
            levels but the finest and, with `topdown`, the root.
        rows: public numbers of groups by region, for the mechanisms of `KEEP_ROWS`.
        time_limit: seconds for a relaxed program; the others are fast and take no notice.

    Children add to their parents and every level to the total, except for the relaxed baselines.
    Raises SolveFailed if a relaxed program does not finish.
    """
    if mechanism in RELAXED:
        relaxed = hierarchical_relaxed if mechanism == HIERARCHICAL else cumulative_relaxed
        return relaxed(noisy, hierarchy, total, weights, time_limit=time_limit)
    if mechanism == TOPDOWN:
        return hierarchy.sum_up(topdown_estimate(noisy, hierarchy, total))
    if mechanism == CHAIN_DP:
        return hierarchy.sum_up(chain_optimum(noisy, hierarchy, total, weights))
    exact = {HIERARCHICAL_DP: exact_hierarchical, CUMULATIVE_DP: cumulative_estimate}[mechanism]
    return hierarchy.sum_up(exact(noisy, hierarchy, total, weights, rows))


def read_noisy(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> list[np.ndarray]:
    """The noisy vectors (n, n_sizes) of every level, root first; zeros where none was measured."""
    name = plan.vector + DPQUERY_SUFFIX
    return [
        read_measurements(measurement_file(run, level.name), level.region)[name].values
        if own.is_measured
        else np.zeros((len(level), plan.n_sizes), dtype=np.int64)
        for own, level in zip(plan.levels, hierarchy.levels, strict=True)
    ]


def estimate_run(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write the counts of every level, the finest last: where those are, all are."""
    plan, hierarchy = read_plan(run), read_regions(run)
    noisy = read_noisy(run, plan, hierarchy)
    levels = estimate_plan(plan, hierarchy, noisy, exact_groups(run, plan, hierarchy))
    for level, counts in zip(hierarchy.levels, levels, strict=True):
        write_estimates(
            estimates_file(run, level.name),
            level.region,
            sparse.csr_array(counts),
            is_private=settings.is_private,
        )


def estimate_plan(
    plan: Plan,
    hierarchy: RegionHierarchy,
    noisy: Sequence[np.ndarray],
    exact: np.ndarray | None = None,
    **options: float,
) -> list[np.ndarray]:
    """Counts (n, n_sizes) of every level, from its noisy vector, by the mechanism of a plan.

    `exact` are the public numbers of groups of the regions of the plan's exact level. What is
    estimated is the hierarchy of measured levels with the root and the exact level; the other
    levels have the regions of one of these, or are sums of those below. `options` go to
    `estimate_sizes`.
    """
    first = merged_levels(hierarchy.n_regions)
    rows, kept = None, {0, *plan.measured}
    if exact is not None:
        kept |= {first[hierarchy.names.index(plan.exact_level)]}
    depths = sorted(kept)
    if exact is not None:
        rows = Rows(depths.index(first[hierarchy.names.index(plan.exact_level)]), exact)
    found = estimate_sizes(
        plan.mechanism,
        [noisy[depth] for depth in depths],
        hierarchy.restricted(depths),
        plan.groups,
        [plan.weights[depth] for depth in depths],
        rows=rows,
        **options,
    )
    estimates = dict(zip(depths, found, strict=True))
    for depth in reversed(range(len(noisy))):
        if depth not in estimates and first[depth] in estimates:
            estimates[depth] = estimates[first[depth]]
        elif depth not in estimates:
            children = hierarchy.children(depth)[:-1]
            estimates[depth] = np.add.reduceat(estimates[depth + 1], children, axis=0)
    return [estimates[depth] for depth in range(len(noisy))]


def estimated_counts(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> list[np.ndarray]:
    """What `estimate_run` wrote, (n, n_sizes) for every level, root first."""
    return [
        read_estimates([estimates_file(run, level.name)], level.region, plan.n_sizes).toarray()
        for level in hierarchy.levels
    ]
