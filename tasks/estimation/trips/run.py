"""Estimating a trips run, level by level, from published measurements and the public tree.

A top-down mechanism projects each parent's noisy children onto its count and keeps what is
positive. The full-information mechanism combines the measurements of all levels first; where the
tree is too large to be measured whole, a first top-down pass selects what is measured.
"""

from __future__ import annotations

import numpy as np

from tasks.errors import SpineflowError
from tasks.estimation.trips.black_box import chebyshev_by_highs
from tasks.estimation.trips.projection import chebyshev_projection, euclidean_projection
from tasks.estimation.trips.tree_least_squares import MeasuredLevel, tree_least_squares
from tasks.files import replacing
from tasks.ingest.trips.files import read_tree
from tasks.measurement.trips.files import (
    UNIVERSE,
    NodeShard,
    NodeValues,
    estimates_file,
    level_folder,
    measured_file,
    read_cuts,
    read_nodes,
    write_estimates,
)
from tasks.measurement.trips.plan import Plan
from tasks.measurement.trips.run import SELECTION, parents_of, parents_of_shard, plan_of
from tasks.run_directory import RunDirectory
from tasks.settings.trips import TripsMechanism, TripsSettings
from tasks.workload.trips.mechanisms import CHEBYSHEV, FULL_INFORMATION, TDA_CHEBYSHEV, TDA_L2

ONLY_SHARD = "00000"


def project(
    values: np.ndarray, offsets: np.ndarray, totals: np.ndarray, mechanism: TripsMechanism
) -> np.ndarray:
    """The projection that a mechanism's settings name, on every segment."""
    if mechanism.name == TDA_CHEBYSHEV:
        return chebyshev_by_highs(values, offsets, totals)
    smallest_first = mechanism.remove_small_values == "first"
    is_euclidean = mechanism.name == TDA_L2 or (
        mechanism.name == FULL_INFORMATION and mechanism.projection != CHEBYSHEV
    )
    chosen = euclidean_projection if is_euclidean else chebyshev_projection
    return chosen(values, offsets, totals, smallest_first=smallest_first)


def estimate_once(
    run: RunDirectory, settings: TripsSettings, level: int, shard: NodeShard
) -> NodeValues:
    """Estimate and write the positive nodes of one shard of a level; returns them."""
    plan = plan_of(run, settings)
    if level == 0:
        nodes = _root(run, plan)
    elif plan.is_top_down:
        parents = parents_of_shard(run, plan, level, shard)
        keys, offsets = plan.tree.children(level - 1, parents.keys)
        noisy = _noisy(run, plan, level, shard)
        if not np.array_equal(noisy.keys, keys):
            raise _other_nodes(level)
        counts = project(noisy.values, offsets, parents.values, settings.mechanism)
        nodes = _positive(keys, counts)
    else:
        noisy = _noisy(run, plan, level, shard)
        nodes = NodeValues(noisy.keys[noisy.values != 0], noisy.values[noisy.values != 0])
    kind = SELECTION if plan.is_selected else UNIVERSE
    _write(run, settings, plan, level, shard.name, nodes, kind)
    return nodes


def combine(run: RunDirectory, settings: TripsSettings) -> None:
    """Combine the measurements of all levels, and write the estimates of every level."""
    plan = plan_of(run, settings)
    tree = plan.tree
    keys, levels = measured_tree(run, plan)
    estimates = tree_least_squares(levels)
    total = read_tree(run).total
    nodes = NodeValues(keys[0], np.array([max(0, round(estimates[0][0]))]))
    counts = nodes.values
    for level in range(tree.depth + 1):
        if level:
            counts, nodes = _next_level(levels, keys, estimates, level, counts, settings, tree)
        elif total is not None:
            counts = np.array([total])
            nodes = _positive(keys[0], counts)
        _write(run, settings, plan, level, ONLY_SHARD, nodes, UNIVERSE)


def measured_tree(run: RunDirectory, plan: Plan) -> tuple[list[np.ndarray], list[MeasuredLevel]]:
    """Keys and noisy counts of all measured nodes, level by level, an exact root included."""
    total = read_tree(run).total
    root = np.zeros(1, dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    if total is None:
        noisy = _noisy(run, plan, 0, NodeShard(ONLY_SHARD, 0, 1))
        levels = [MeasuredLevel(noisy.values, _weight(plan, 0), none, root)]
    else:
        levels = [MeasuredLevel(np.array([total]), 0.0, none, root)]
    keys = [root]
    for level in range(1, plan.tree.depth + 1):
        parents = parents_of(run, plan, level).keys
        own, offsets = plan.tree.children(level - 1, parents)
        shards = read_cuts(run, level).shards
        files = [measured_file(run, level, shard.name) for shard in shards]
        noisy = read_nodes(files, plan.tree, level, "value")
        if not np.array_equal(noisy.keys, own):
            raise _other_nodes(level)
        levels.append(
            MeasuredLevel(
                noisy.values,
                _weight(plan, level),
                _places(keys[-1], parents),
                offsets,
            )
        )
        keys.append(own)
    return keys, levels


def _next_level(levels, keys, estimates, level, counts, settings, tree):
    """Counts of a level's measured nodes from those above, and the positive ones.

    Nodes above the leaves whose children were not measured were found empty by the first pass,
    and stay so: there is nothing to tell their trips apart by.
    """
    own = levels[level]
    may_be_positive = np.ones(own.values.size, dtype=bool)
    if level < tree.depth:
        may_be_positive[:] = False
        may_be_positive[levels[level + 1].parent] = True
    family = np.repeat(np.arange(own.parent.size), np.diff(own.offsets))[may_be_positive]
    offsets = np.searchsorted(family, np.arange(own.parent.size + 1))
    rounded = np.rint(estimates[level][may_be_positive]).astype(np.int64)
    found = np.zeros(own.values.size, dtype=np.int64)
    found[may_be_positive] = project(rounded, offsets, counts[own.parent], settings.mechanism)
    return found, _positive(keys[level], found)


def _root(run: RunDirectory, plan: Plan) -> NodeValues:
    """The root: the invariant total, or the noisy one, at least 0."""
    total = read_tree(run).total
    if total is None:
        noisy = _noisy(run, plan, 0, NodeShard(ONLY_SHARD, 0, 1))
        total = max(0, int(noisy.values[0]))
    return _positive(np.zeros(1, dtype=np.int64), np.array([total]))


def _noisy(run: RunDirectory, plan: Plan, level: int, shard: NodeShard) -> NodeValues:
    return read_nodes([measured_file(run, level, shard.name)], plan.tree, level, "value")


def _weight(plan: Plan, level: int) -> float:
    """Variance that the least squares give a level; without noise all count the same."""
    return float(plan.budget.sigma_squared(level)) or 1.0


def _places(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each of `wanted` stands in `keys`, both in the order of the tree."""
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys, wanted, sorter=order)]


def _positive(keys: np.ndarray, counts: np.ndarray) -> NodeValues:
    return NodeValues(keys[counts > 0], counts[counts > 0])


def _other_nodes(level: int) -> SpineflowError:
    return SpineflowError(
        f"The measurements of {level_folder(level)} are of other nodes than its parents have; "
        "restore the run's measurements, or start a new run."
    )


def _write(
    run: RunDirectory,
    settings: TripsSettings,
    plan: Plan,
    level: int,
    shard: str,
    nodes: NodeValues,
    kind: str,
) -> None:
    with replacing(estimates_file(run, level, shard, kind=kind)) as part:
        write_estimates(part, plan.tree, level, nodes, is_private=settings.is_private)
