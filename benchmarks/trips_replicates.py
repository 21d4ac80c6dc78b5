"""Replicates of a mechanism in memory, for studies on data that are not confidential.

Nothing is charged and nothing is published, so this is no way to release anything.
"""

from __future__ import annotations

import numpy as np
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import RandomSource
from spineflow.tasks.trips.estimation.estimate import (
    ROOT,
    MeasuredTree,
    integer_pass,
    only_children,
    step_down,
    weight_variance,
)
from spineflow.tasks.trips.ingest.ingest import check_input
from spineflow.tasks.trips.measurement import all_nodes, listed_leaves, with_noise
from spineflow.tasks.trips.plan import Plan
from spineflow.tasks.trips.release import level_errors
from spineflow.tasks.trips.settings import TripsMechanism, TripsSettings
from spineflow.tasks.trips.tree import NodeCounts, TrueTree, sum_by_key


def true_tree(settings: TripsSettings) -> TrueTree:
    """The counts of the settings' input; raises InputRefused for input that breaks a rule."""
    check = check_input(settings).accepted()
    return TrueTree(check.shape.tree, check.leaves)


def replicate(
    plan: Plan, truth: TrueTree, mechanism: TripsMechanism, source: RandomSource
) -> list[NodeCounts]:
    """The released nodes of every level, root first, of one replicate."""
    draws = UnchargedNoise(source)
    if plan.is_top_down:
        return _top_down(plan, truth, mechanism, draws)
    depth = plan.tree.depth
    if plan.threshold is not None:
        levels = [listed_leaves(plan, truth.leaves, draws)]
    else:
        keys = np.arange(plan.tree.n_nodes(depth))
        noisy = with_noise(truth.leaves.counts_of(keys), plan, depth, draws)
        levels = [NodeCounts(keys, noisy)]
    for level in range(depth, 0, -1):
        above = plan.tree.parent_keys(level, levels[-1].keys)
        levels.append(sum_by_key(above, levels[-1].counts))
    return levels[::-1]


def _top_down(
    plan: Plan, truth: TrueTree, mechanism: TripsMechanism, draws: UnchargedNoise
) -> list[NodeCounts]:
    root, variance = np.array([truth.leaves.total]), 0.0
    if 0 in plan.measures:
        root, variance = with_noise(root, plan, 0, draws), weight_variance(plan, 0)
    measured = MeasuredTree.rooted(plan.tree, int(root[0]), variance)
    released = [NodeCounts(ROOT, root).positive]
    for level in range(1, plan.tree.depth + 1):
        above = released[-1]
        parents = all_nodes(plan.tree, level - 1) if plan.measures_all else above.keys
        if level in plan.inferred:
            measured.add_inferred(parents)
            if not plan.measures_all:
                released.append(only_children(plan.tree, level, above))
            continue
        keys, _ = plan.tree.children(level - 1, parents)
        counts = truth.levels[level].counts_of(keys)
        noisy = NodeCounts(keys, with_noise(counts, plan, level, draws))
        measured.add_level(parents, noisy, weight_variance(plan, level))
        if not plan.measures_all:
            released.append(step_down(plan.tree, level, above, noisy, mechanism))
    if plan.measures_all or plan.is_selected:
        released = [nodes for _, nodes in integer_pass(measured, mechanism)]
    return released


def replicate_errors(
    plan: Plan, truth: TrueTree, mechanism: TripsMechanism, source: RandomSource
) -> dict[str, np.ndarray]:
    """Errors of one replicate by name (see `level_errors`), each `(T + 1,)`."""
    errors = [
        level_errors(level, nodes)
        for level, nodes in zip(
            truth.levels, replicate(plan, truth, mechanism, source), strict=True
        )
    ]
    return {name: np.array([error[name] for error in errors]) for name in errors[0]}
