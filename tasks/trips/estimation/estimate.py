"""Estimating a trips run, level by level, from published measurements and the public tree.

A top-down mechanism projects each parent's noisy children onto its count and keeps what is
positive. The full-information mechanism combines the measurements of all levels first; where the
tree is too large to be measured whole, a first top-down pass selects what is measured.
"""

from __future__ import annotations

from ...runs.directory import ONLY_SHARD, RunDirectory
from ..ingest.files import plan_of, read_tree
from ..measurement.files import read_cuts, read_nodes, write_estimates
from ..measurement.measure import parents_of, parents_of_shard, passed_down
from ..paths import estimates_file, measured_file
from ..settings import TripsSettings
from ..workload.plan import Plan
from ..workload.truth import NodeCounts
from .top_down import ROOT, MeasuredTree, integer_pass, only_children, step_down


def estimate_once(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> None:
    """Estimate and write the positive nodes of one shard of a level."""
    plan = plan_of(run, settings)
    if level == 0:
        nodes = _root(run, plan)
    elif level in plan.inferred:
        nodes = only_children(plan.tree, level, parents_of(run, plan, level))
    elif plan.is_top_down:
        parents = parents_of_shard(run, plan, level, shard)
        noisy = _noisy(run, plan, level, shard)
        nodes = step_down(plan.tree, level, parents, noisy, settings.mechanism)
    else:
        noisy = _noisy(run, plan, level, shard)
        nodes = noisy.at(noisy.counts != 0)
    path = estimates_file(run, level, shard, kind=passed_down(plan))
    write_estimates(path, plan.tree, level, nodes)


def combine_levels(run: RunDirectory, settings: TripsSettings) -> None:
    """Combine the measurements of all levels, and write the estimates of every level."""
    plan = plan_of(run, settings)
    for level, nodes in integer_pass(measured_tree(run, plan), settings.mechanism):
        write_estimates(estimates_file(run, level, ONLY_SHARD), plan.tree, level, nodes)


def measured_tree(run: RunDirectory, plan: Plan) -> MeasuredTree:
    """All noisy counts of a run, an exact root included."""
    total = read_tree(run).total
    if total is None:
        root = int(_noisy(run, plan, 0).counts[0])
        measured = MeasuredTree.rooted(plan.tree, root, plan.weight_variance(0))
    else:
        measured = MeasuredTree.rooted(plan.tree, total, 0.0)
    for level in range(1, plan.tree.depth + 1):
        parents = parents_of(run, plan, level).keys
        if level in plan.inferred:
            measured.add_inferred(parents)
            continue
        noisy = _noisy(run, plan, level)
        measured.add_level(parents, noisy, plan.weight_variance(level))
    return measured


def _root(run: RunDirectory, plan: Plan) -> NodeCounts:
    """The root: the invariant total, or the noisy one, at least 0."""
    total = read_tree(run).total
    root = _noisy(run, plan, 0) if total is None else NodeCounts(ROOT, ROOT + total)
    return root.positive


def _noisy(run: RunDirectory, plan: Plan, level: int, shard: str | None = None) -> NodeCounts:
    """Noisy counts of a level, or of one shard of it."""
    shards = [own.name for own in read_cuts(run, level).shards] if shard is None else [shard]
    files = [measured_file(run, level, name) for name in shards]
    return read_nodes(files, plan.tree, level, "value")
