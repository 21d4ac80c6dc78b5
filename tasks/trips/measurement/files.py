"""Where the levels of a trips run lie, and how their nodes are stored.

    measurements/trips/<level>/dpqueries/<shard>.parquet    dimensions, value, variance, plb
    measurements/trips/<level>/cuts.json                    which parents each shard measures
    estimates/trips/<level>/<shard>.parquet                 dimensions, count of the positive nodes

A level is `level_00`, the root, to `level_<T>`. A node is stored by the codes of its areas at the
level's depths, one column a dimension that the level has refined; nodes stand in the order of
their parents, and children of one parent in the order of their areas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.files import read_values
from ...runs.stamps import write_parquet
from ...runs.writing import Recording, write_once
from ..paths import cuts_file, level_folder
from ..workload.tree import Tree
from ..workload.truth import NO_NODES, NodeCounts

ROWS_PER_GROUP = 1 << 20


@dataclass(frozen=True)
class NodeShard:
    """Parents `start` to `stop` of the level above, whose children are measured together.

    `name` is that of its files.
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


def write_cuts(
    run: RunDirectory, level: int, cuts: Cuts, recording: Recording | None = None
) -> None:
    """Write the shards of a level, unless they stand already; `recording` as in `write_once`."""
    content = json.dumps(asdict(cuts), indent=1).encode()
    write_once(cuts_file(run, level), lambda file: file.write(content), recording)


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

    Raises ValueError for a code that is not of the level; `file` is what the sentence names.
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
    """Nodes of some files with their values ("value" or "count"), in the order they stand.

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
