"""One interface to all group-size mechanisms: noisy vectors in, counts of every level out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from spineflow.tasks.group_sizes.estimation.chain import chain_optimum
from spineflow.tasks.group_sizes.estimation.cumulative import cumulative_estimate
from spineflow.tasks.group_sizes.estimation.marginal_costs import hierarchical_optimum
from spineflow.tasks.group_sizes.estimation.relaxed import (
    TIME_LIMIT,
    cumulative_relaxed,
    hierarchical_relaxed,
)
from spineflow.tasks.group_sizes.estimation.topdown import topdown_estimate
from spineflow.tasks.group_sizes.workload.mechanisms import (
    CHAIN_DP,
    CUMULATIVE_DP,
    HIERARCHICAL,
    HIERARCHICAL_DP,
    RELAXED,
    TOPDOWN,
)
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy


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
