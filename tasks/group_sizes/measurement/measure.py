"""Measuring a group-sizes run, level by level.

What each vector that is measured is, and its sensitivity, stands in
`tasks.group_sizes.workload.mechanisms`.
"""

from __future__ import annotations

import numpy as np

from ...products.measurement import noisy_answers, publish_level
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan, read_regions, true_counts
from ..paths import UNIVERSE
from ..settings import GroupSizesSettings
from ..workload.mechanisms import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
)


def measure_level(run: RunDirectory, settings: GroupSizesSettings, level_name: str) -> None:
    """Measure and publish one level; raises as `single_draw`."""
    plan, hierarchy = read_plan(run), read_regions(run)
    depth = hierarchy.names.index(level_name)
    level, regions = plan.levels[depth], hierarchy.levels[depth].codes
    vector = true_vector(plan.vector, true_counts(run, hierarchy, plan)[depth])
    noise, loss = level.noise_of(plan.noise), plan.loss and plan.loss * level.share
    publish_level(
        run,
        settings,
        UNIVERSE,
        level_name,
        lambda draws: [noisy_answers(plan.vector, regions, vector, noise, loss, draws, level_name)],
    )


def true_vector(vector: str, counts: np.ndarray) -> np.ndarray:
    """A vector at one level, (n, n_sizes), from the counts of its regions and sizes, (n, n_sizes).

    >>> counts = np.array([[2, 1], [0, 3]])
    >>> true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, counts).tolist()
    [[2, 3], [2, 6]]
    """
    if vector == GROUP_SIZES:
        return counts
    if vector == CUMULATIVE_GROUP_SIZES:
        return np.cumsum(counts, axis=1)
    if vector == CHAINED_CUMULATIVE_GROUP_SIZES:
        chain = np.cumsum(counts.T.reshape(-1))
        return np.ascontiguousarray(chain.reshape(counts.shape[::-1]).T)
    raise ValueError(f"unknown vector {vector!r}")
