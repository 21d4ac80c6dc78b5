"""The levels of a trips run: how they are measured and stored.

    measurements/trips/<level>/dpqueries/00000.parquet    dimensions, value, variance, plb
    estimates/trips/<level>/00000.parquet                 dimensions, count of the positive nodes

A level is `level_00`, the root, to `level_<T>`. A node is stored by the codes of its areas at the
level's depths, one column for each dimension that the level has refined; nodes are in the order of
their parents, and children of one parent in the order of their areas.

A top-down run measures a level only once the level above is estimated: the children of its positive
nodes. The file of a level is published once and names its nodes, so that nothing is ever measured
again, and estimates that are made again must have the nodes that decided it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..ledger.charging import single_draw
from ..noise.distributions import NoiseDraws
from ..products import measurement
from ..runs.directory import ONLY_SHARD, RunDirectory
from ..runs.stamps import write_parquet
from ..tables.columns import cut_into_runs
from .plan import UNIVERSE, Plan, estimates_file, level_folder, measured_file, read_plan
from .settings import GAUSSIAN_LEAVES, TripsSettings
from .tree import NO_NODES, NodeCounts, Tree, TrueTree, leaves_file, read_truth

ROWS_PER_GROUP = 1 << 20


def node_columns(tree: Tree, level: int, keys: np.ndarray) -> dict[str, pa.Array]:
    """Codes of nodes, by dimension, as dictionary arrays."""
    columns = {}
    positions = tree.positions(level, keys)
    for dimension, depth, position in zip(
        tree.dimensions, tree.depths[level], positions, strict=True
    ):
        if depth:
            codes = pa.array(dimension.levels[depth].codes, pa.string())
            columns[dimension.name] = pa.DictionaryArray.from_arrays(
                pa.array(position, pa.int32()), codes
            )
    return columns


def node_keys(tree: Tree, level: int, rows: pa.RecordBatch | pa.Table, file: str) -> np.ndarray:
    """Keys of the nodes that rows name by the columns of `node_columns`.

    Raises ValueError for a code that is not of the level; `file` is named in the message.
    """
    positions = []
    for dimension, depth in zip(tree.dimensions, tree.depths[level], strict=True):
        if not depth:
            positions.append(np.zeros(rows.num_rows, dtype=np.int64))
            continue
        column = rows[dimension.name]
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        codes = pa.array(dimension.levels[depth].codes, pa.string())
        known = pc.fill_null(pc.index_in(column.dictionary, codes), -1).to_numpy()
        positions.append(known[column.indices.to_numpy()].astype(np.int64))
        if (positions[-1] < 0).any():
            raise ValueError(f"{file} holds an area that is not of {level_folder(level)}")
    return tree.keys(level, positions)


def node_rows(
    tree: Tree, level: int, nodes: NodeCounts, value: str, constants: Mapping[str, float | str]
) -> pa.RecordBatch:
    """Nodes by the columns of `node_columns`, with their counts in the column `value` and with
    columns of constants.
    """
    columns = node_columns(tree, level, nodes.keys)
    columns[value] = pa.array(nodes.counts, pa.int64())
    for name, constant in constants.items():
        columns[name] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(nodes.keys.size, dtype=np.int8)), pa.array([constant])
        )
    return pa.record_batch(columns)


def write_estimates(path: Path, tree: Tree, level: int, nodes: NodeCounts) -> None:
    """Write the positive counts of a shard in one step."""
    table = pa.Table.from_batches([node_rows(tree, level, nodes, "count", {})])
    write_parquet(
        path, table, row_group_size=ROWS_PER_GROUP, compression="zstd", compression_level=1
    )


def read_nodes(path: Path, tree: Tree, level: int, value: str) -> NodeCounts:
    """Read the nodes of a file with their values ("value" or "count"), in the order of the rows.

    Raises ValueError for a code that is not of the level.
    """
    depths = zip(tree.dimensions, tree.depths[level], strict=True)
    refined = [dimension.name for dimension, depth in depths if depth]
    keys, values = [NO_NODES.keys], [NO_NODES.counts]
    with pq.ParquetFile(path, read_dictionary=refined) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP, columns=[*refined, value]):
            keys.append(node_keys(tree, level, batch, path.name))
            values.append(batch.column(value).to_numpy())
    return NodeCounts(np.concatenate(keys), np.concatenate(values))


NODES_PER_GROUP = 1 << 20
"""Noisy counts held in memory at a time."""

SELECTION = "selection"
"""Estimates that decide the measurements, where the final ones combine all measurements."""


def measure_level(run: RunDirectory, settings: TripsSettings, level: int) -> None:
    """Measure and publish a level; raises as `single_draw`."""
    plan, truth, path = read_plan(run), read_truth(run), measured_file(run, level)
    own = plan.measures[level]
    constants: dict[str, float | str] = {
        "variance": own.variance,
        "plb": own.part_of(plan.universe().loss),
    }
    seeds = (UNIVERSE, own.part, ONLY_SHARD)
    with single_draw(
        run, settings, path, UNIVERSE, truth=[leaves_file(run)], seeds=seeds
    ) as drawing:
        rows = (
            node_rows(plan.tree, level, nodes, "value", constants)
            for nodes in noisy_nodes(run, plan, truth, level, drawing.noise)
        )
        schema = node_rows(plan.tree, level, NO_NODES, "value", constants).schema
        drawing.publish(schema, rows, ROWS_PER_GROUP)


def estimate_kind(plan: Plan) -> str:
    """The kind of estimates of a pass from the top: the final ones, or the selecting ones."""
    return SELECTION if plan.is_selected else UNIVERSE


def parents_of(run: RunDirectory, plan: Plan, level: int) -> NodeCounts:
    """The nodes above a level whose children are measured; counts are 0 if all are measured."""
    if plan.measures_all:
        keys = all_nodes(plan.tree, level - 1)
        return NodeCounts(keys, np.zeros(keys.size, dtype=np.int64))
    above = estimates_file(run, level - 1, estimate_kind(plan))
    return read_nodes(above, plan.tree, level - 1, "count")


def all_nodes(tree: Tree, level: int) -> np.ndarray:
    """Keys of all nodes of a level, children of one parent together, in the order of parents."""
    keys = np.zeros(1, dtype=np.int64)
    for above in range(level):
        keys, _ = tree.children(above, keys)
    return keys


def noisy_nodes(
    run: RunDirectory, plan: Plan, truth: TrueTree, level: int, draws: NoiseDraws
) -> Iterator[NodeCounts]:
    """Noisy counts of a level's nodes in groups, drawn on demand."""
    tree, true = plan.tree, truth.leaves if level == plan.tree.depth else truth.levels[level]
    if plan.threshold is not None:
        yield listed_leaves(plan, true, draws)
        return
    groups: Iterable[np.ndarray] = [all_nodes(tree, 0)]
    if plan.mechanism == GAUSSIAN_LEAVES:
        n = tree.n_nodes(level)
        starts = range(0, n, NODES_PER_GROUP)
        groups = (np.arange(start, min(start + NODES_PER_GROUP, n)) for start in starts)
    elif level:
        parents = parents_of(run, plan, level).keys
        ranges = cut_into_runs(tree.n_children(level - 1, parents), NODES_PER_GROUP)
        groups = (tree.children(level - 1, parents[start:stop])[0] for start, stop in ranges)
    for keys in groups:
        yield NodeCounts(keys, with_noise(true.counts_of(keys), plan, level, draws))


def listed_leaves(plan: Plan, leaves: NodeCounts, draws: NoiseDraws) -> NodeCounts:
    """Noisy counts of the positive leaves that reach the threshold of the stability histogram."""
    noisy = with_noise(leaves.counts, plan, plan.tree.depth, draws)
    return NodeCounts(leaves.keys, noisy).at(noisy >= (plan.threshold or 1))


def with_noise(counts: np.ndarray, plan: Plan, level: int, draws: NoiseDraws) -> np.ndarray:
    """True counts of nodes of a level plus the level's noise."""
    own = plan.measures[level]
    return measurement.with_noise(counts, own.noise, draws, own.part)
