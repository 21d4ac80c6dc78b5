"""The levels of a trips run: how they are cut into shards, measured and stored.

    measurements/trips/<level>/dpqueries/<shard>.parquet    dimensions, value, variance, plb
    measurements/trips/<level>/cuts.json                    which parents each shard measures
    estimates/trips/<level>/<shard>.parquet                 dimensions, count of the positive nodes

A level is `level_00`, the root, to `level_<T>`. A node is stored by the codes of its areas at the
level's depths, one column for each dimension that the level has refined; nodes are in the order of
their parents, and children of one parent in the order of their areas.

A top-down run measures a level only once the level above is estimated: the children of its positive
nodes. These nodes, and their division into shards, are published with the measurements, so that
nothing is ever measured again in another cut, and estimates that are made again must equal those
that decided it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..ledger.charging import single_draw
from ..noise.draws import NoiseDraws
from ..products import measurement
from ..runs.directory import RunDirectory
from ..runs.errors import SpineflowError
from ..runs.files import read_values, write_once
from ..runs.stamps import write_parquet
from ..tables.columns import cut_into_runs
from .ingest.files import read_plan, read_truth
from .plan import (
    UNIVERSE,
    Plan,
    cuts_file,
    estimates_files,
    leaves_file,
    level_folder,
    measured_file,
)
from .settings import GAUSSIAN_LEAVES, TripsSettings
from .tree import NO_NODES, NodeCounts, Tree, TrueTree

ROWS_PER_GROUP = 1 << 20


@dataclass(frozen=True)
class NodeShard:
    """Parents `start` to `stop` of the level above, whose children are measured together.

    `name` is the stem of its files.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Cuts:
    """The shards of a level, and the digest of the parents they were cut for, "" if none."""

    shards: list[NodeShard]
    parents_digest: str

    def shard(self, name: str) -> NodeShard:
        """The shard of a name."""
        return next(shard for shard in self.shards if shard.name == name)


def read_cuts(run: RunDirectory, level: int) -> Cuts:
    """The cuts of a level that have been published."""
    return read_values(cuts_file(run, level), Cuts)


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


def read_nodes(paths: Sequence[Path], tree: Tree, level: int, value: str) -> NodeCounts:
    """Read the nodes of some files with their values ("value" or "count"), in the order of the
    rows.

    Raises ValueError for a code that is not of the level.
    """
    parts = [NO_NODES, *(part for path in paths for part in _read(path, tree, level, value))]
    return NodeCounts(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def _read(path: Path, tree: Tree, level: int, value: str) -> Iterator[NodeCounts]:
    depths = zip(tree.dimensions, tree.depths[level], strict=True)
    refined = [dimension.name for dimension, depth in depths if depth]
    with pq.ParquetFile(path, read_dictionary=refined) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP, columns=[*refined, value]):
            keys = node_keys(tree, level, batch, path.name)
            yield NodeCounts(keys, batch.column(value).to_numpy())


NODES_PER_SHARD = 1 << 23
"""Most noisy counts of a shard, unless one parent has more children."""

NODES_PER_GROUP = 1 << 20
"""Noisy counts held in memory at a time."""

SELECTION = "selection"
"""Estimates that decide the measurements, where the final ones combine all measurements."""


def cut_level(run: RunDirectory, settings: TripsSettings, level: int) -> None:
    """Decide which parents each shard of a level measures, and publish it once."""
    path = cuts_file(run, level)
    if path.exists():
        return
    plan = read_plan(run)
    if level == 0 or plan.budget is None:
        cuts = Cuts(_shards([(0, 1)]), "")
    elif plan.mechanism == GAUSSIAN_LEAVES:
        cuts = Cuts(_shards(_ranges(0, plan.tree.n_nodes(level), NODES_PER_SHARD)), "")
    else:
        parents = parents_of(run, plan, level)
        sizes = plan.tree.n_children(level - 1, parents.keys)
        cuts = Cuts(_shards(cut_into_runs(sizes, NODES_PER_SHARD)), _digest(parents))
    content = json.dumps(asdict(cuts), indent=1).encode()
    with single_draw(run, settings, path, UNIVERSE) as drawing:
        write_once(path, lambda file: file.write(content), drawing.recording)


def measure_once(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> None:
    """Measure and publish one shard of a level whose cut has been published.

    Raises as `single_draw`, and SpineflowError if the parents differ from the cut.
    """
    plan = read_plan(run)
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


def estimate_kind(plan: Plan) -> str:
    """The kind of estimates of a pass from the top: the final ones, or the selecting ones."""
    return SELECTION if plan.is_selected else UNIVERSE


def parents_of(run: RunDirectory, plan: Plan, level: int) -> NodeCounts:
    """The nodes above a level whose children are measured; counts are 0 if all are measured."""
    if plan.measures_all:
        keys = all_nodes(plan.tree, level - 1)
        return NodeCounts(keys, np.zeros(keys.size, dtype=np.int64))
    files = estimates_files(run, level - 1, kind=estimate_kind(plan))
    return read_nodes(files, plan.tree, level - 1, "count")


def parents_of_shard(run: RunDirectory, plan: Plan, level: int, shard: str) -> NodeCounts:
    """A shard's part of `parents_of`; raises SpineflowError if the cut was made for others."""
    parents, cuts = parents_of(run, plan, level), read_cuts(run, level)
    if _digest(parents) != cuts.parents_digest:
        raise SpineflowError(
            f"The estimates above {level_folder(level)} differ from those that decided its "
            "measurements; finish the run with the code that began it, or start a new run."
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
    """Noisy counts of a shard's nodes, drawn on demand."""
    tree, true = plan.tree, truth.leaves if level == plan.tree.depth else truth.levels[level]
    groups: Iterable[np.ndarray] = [all_nodes(tree, 0)]
    if plan.mechanism == GAUSSIAN_LEAVES:
        ranges = _ranges(shard.start, shard.stop, NODES_PER_GROUP)
        groups = (np.arange(start, stop) for start, stop in ranges)
    elif level:
        parents = parents_of_shard(run, plan, level, shard.name).keys
        ranges = cut_into_runs(tree.n_children(level - 1, parents), NODES_PER_GROUP)
        groups = (tree.children(level - 1, parents[start:stop])[0] for start, stop in ranges)
    for keys in groups:
        yield NodeCounts(keys, with_noise(true.counts_of(keys), plan, level, draws))


def with_noise(counts: np.ndarray, plan: Plan, level: int, draws: NoiseDraws) -> np.ndarray:
    """True counts of nodes of a level plus the level's discrete Gaussian noise."""
    return measurement.with_noise(counts, plan.noise_of(level), draws, level_folder(level))


def _ranges(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Consecutive ranges of at most some size."""
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


def _shards(ranges: list[tuple[int, int]]) -> list[NodeShard]:
    return [NodeShard(f"{number:05d}", *own) for number, own in enumerate(ranges)]


def _digest(parents: NodeCounts) -> str:
    """SHA-256 of published nodes and their counts."""
    digest = hashlib.sha256(parents.keys.astype("<i8").tobytes())
    digest.update(parents.counts.astype("<i8").tobytes())
    return digest.hexdigest()
