"""Measuring a trips run, shard by shard.

A top-down run measures a level only once the level above is estimated: the children of its
positive nodes. Which nodes those are, and how they are cut into shards, is published with the
measurements, so that nothing is ever measured again in another cut, and estimates that were made
anew must be those that decided it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ...ledger.charging import single_draw
from ...noise.draws import NoiseDraws
from ...products import measurement
from ...runs.directory import RunDirectory
from ...runs.errors import SpineflowError
from ...tables.columns import cut_at
from ..ingest.files import plan_of, read_truth
from ..paths import UNIVERSE, cuts_file, estimates_files, leaves_file, level_folder, measured_file
from ..settings import TripsSettings
from ..workload.mechanisms import GAUSSIAN_LEAVES
from ..workload.plan import Plan
from ..workload.tree import Tree
from ..workload.truth import NO_NODES, NodeCounts, TrueTree
from .files import ROWS_PER_GROUP, Cuts, NodeShard, node_rows, read_cuts, read_nodes, write_cuts

NODES_PER_SHARD = 1 << 23
"""Most noisy counts of a shard, unless one parent has more children."""

NODES_PER_GROUP = 1 << 20
"""Noisy counts held in memory at a time."""

SELECTION = "selection"
"""Estimates that decide what is measured, where the final ones combine all measurements."""


def cut_level(run: RunDirectory, settings: TripsSettings, level: int) -> None:
    """Decide which parents each shard of a level measures, and publish it once."""
    path = cuts_file(run, level)
    if path.exists():
        return
    plan = plan_of(run, settings)
    if level == 0 or plan.budget is None:
        cuts = Cuts([NodeShard("00000", 0, 1)], "")
    elif plan.mechanism == GAUSSIAN_LEAVES:
        n = plan.tree.n_nodes(level)
        starts = range(0, n, NODES_PER_SHARD)
        cuts = Cuts(_named([(start, min(start + NODES_PER_SHARD, n)) for start in starts]), "")
    else:
        parents = parents_of(run, plan, level)
        sizes = plan.tree.n_children(level - 1, parents.keys)
        cuts = Cuts(_named(cut_at(sizes, NODES_PER_SHARD)), _digest(parents))
    with single_draw(run, settings, path, UNIVERSE) as drawing:
        write_cuts(run, level, cuts, drawing.recording)


def measure_once(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> None:
    """Measure and publish one shard of a level whose cut has been published.

    Raises as `single_draw`, and SpineflowError if the parents are not those of the cut.
    """
    plan = plan_of(run, settings)
    path, part = measured_file(run, level, shard), read_cuts(run, level).shard(shard)
    truth = read_truth(run)
    noise = plan.noise_of(level)
    loss = None if plan.guarantee is None else plan.guarantee.parameter
    if plan.budget is not None and loss is not None:
        loss *= plan.budget.shares[level]
    plb = "inf" if loss is None else str(loss)
    constants: dict[str, float | str] = {"variance": noise.variance if noise else 0.0, "plb": plb}

    def batches(draws: NoiseDraws) -> Iterator[pa.RecordBatch]:
        if plan.budget is None:
            listed = plan.stability.measure(truth.leaves, draws, level_folder(level))
            counted: Iterable[NodeCounts] = [listed]
        else:
            counted = _noisy_groups(run, plan, truth, level, part, draws)
        for nodes in counted:
            yield node_rows(plan.tree, level, nodes, "value", constants)

    with single_draw(
        run,
        settings,
        path,
        UNIVERSE,
        truth=[leaves_file(run)],
        seeds=(UNIVERSE, level_folder(level), shard),
        reads=[cuts_file(run, level)],
    ) as drawing:
        schema = node_rows(plan.tree, level, NO_NODES, "value", constants).schema
        drawing.publish(schema, batches(drawing.noise), ROWS_PER_GROUP)


def passed_down(plan: Plan) -> str:
    """The kind of estimates of a pass from the top: the final ones, or those that `SELECTION` is
    of."""
    return SELECTION if plan.is_selected else UNIVERSE


def parents_of(run: RunDirectory, plan: Plan, level: int) -> NodeCounts:
    """The nodes above a level whose children are measured; counts are 0 if all are measured."""
    if plan.measures_all:
        keys = all_nodes(plan.tree, level - 1)
        return NodeCounts(keys, np.zeros(keys.size, dtype=np.int64))
    files = estimates_files(run, level - 1, kind=passed_down(plan))
    return read_nodes(files, plan.tree, level - 1, "count")


def parents_of_shard(run: RunDirectory, plan: Plan, level: int, shard: str) -> NodeCounts:
    """A shard's part of `parents_of`; raises SpineflowError if the cut was made for others."""
    parents, cuts = parents_of(run, plan, level), read_cuts(run, level)
    if _digest(parents) != cuts.parents_digest:
        raise SpineflowError(
            f"The estimates above {level_folder(level)} are not those that decided what was "
            "measured there; finish the run with the code that began it, or start a new run."
        )
    own = cuts.shard(shard)
    return parents.at(slice(own.start, own.stop))


def all_nodes(tree: Tree, level: int) -> np.ndarray:
    """Keys of all nodes of a level, children of one parent together, in the order of parents."""
    keys = np.zeros(1, dtype=np.int64)
    for above in range(level):
        keys, _ = tree.children(above, keys)
    return keys


def _noisy_groups(
    run: RunDirectory, plan: Plan, truth: TrueTree, level: int, shard: NodeShard, draws: NoiseDraws
) -> Iterator[NodeCounts]:
    """Noisy counts of a shard's nodes, drawn as they are asked for."""
    if level == 0:
        groups = iter([(np.zeros(1, dtype=np.int64), np.array([truth.leaves.total]))])
    elif plan.mechanism == GAUSSIAN_LEAVES:
        groups = _leaf_groups(truth, shard)
    else:
        groups = _child_groups(truth, level, parents_of_shard(run, plan, level, shard.name).keys)
    for keys, counts in groups:
        yield NodeCounts(keys, with_noise(counts, plan, level, draws))


def with_noise(counts: np.ndarray, plan: Plan, level: int, draws: NoiseDraws) -> np.ndarray:
    """True counts of nodes of a level plus the level's discrete Gaussian noise."""
    return measurement.with_noise(counts, plan.noise_of(level), draws, level_folder(level))


def _leaf_groups(truth: TrueTree, shard: NodeShard) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(shard.start, shard.stop, NODES_PER_GROUP):
        keys = np.arange(start, min(start + NODES_PER_GROUP, shard.stop))
        yield keys, truth.leaves.counts_of(keys)


def _child_groups(
    truth: TrueTree, level: int, parents: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start, stop in cut_at(truth.tree.n_children(level - 1, parents), NODES_PER_GROUP):
        keys, _ = truth.tree.children(level - 1, parents[start:stop])
        yield keys, truth.levels[level].counts_of(keys)


def _named(cuts: list[tuple[int, int]]) -> list[NodeShard]:
    return [NodeShard(f"{number:05d}", *cut) for number, cut in enumerate(cuts)]


def _digest(parents: NodeCounts) -> str:
    """SHA-256 of published nodes and their counts."""
    digest = hashlib.sha256(parents.keys.astype("<i8").tobytes())
    digest.update(parents.counts.astype("<i8").tobytes())
    return digest.hexdigest()
