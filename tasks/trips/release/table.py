"""The released table and the range queries that it implies, from the leaves' estimates.

    trips.parquet, trips.csv    the input's place columns and count; non-zero rows
    range_queries.parquet, .csv level, the areas at the level's depths by dimension, and count

Rows are in the order of the areas. Range queries are sums of the released rows, so they agree
with the table by construction; for a mechanism on the leaves alone they are all there is above.

A release of trips as the truth of a simulation of its expected errors.

The mechanism is public. Run again on the released counts, with fresh noise, it is off by about as
much as the release itself is. Nothing confidential is read, and nothing spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import NOT_PRIVATE, replacing
from ...runs.stamps import stamp
from ..ingest.files import RunTree, read_tree
from ..measurement import ROWS_PER_GROUP, node_columns, node_keys, read_nodes
from ..plan import estimates_files
from ..settings import TripsSettings
from ..tree import NodeCounts, Tree, sum_by_key

TABLE = "trips"
RANGE_QUERIES = "range_queries.parquet"
LEVEL = "level"


def write_release(run: RunDirectory, is_private: bool) -> None:
    """Write table and range queries into the unchecked release.

    The CSV file comes last: where it is, all is.
    """
    run_tree = read_tree(run)
    tree = run_tree.tree
    leaves = read_nodes(estimates_files(run, tree.depth), tree, tree.depth, "count").ascending
    folder = run.unchecked_release
    _write(folder / RANGE_QUERIES, list(_range_queries(tree, leaves)), is_private)
    _write(folder / TABLE, [pa.table(release_columns(run_tree, leaves))], is_private)


def _range_queries(tree: Tree, leaves: NodeCounts) -> Iterator[pa.Table]:
    """The levels of the tree, finest first, as tables of one schema."""
    names = [dimension.name for dimension in tree.dimensions]
    nodes = leaves
    for level in range(tree.depth, -1, -1):
        if level < tree.depth:
            nodes = sum_by_key(tree.parent_keys(level + 1, nodes.keys), nodes.counts)
        n = nodes.keys.size
        codes = node_columns(tree, level, nodes.keys)
        columns = {LEVEL: pa.array(np.full(n, level, dtype=np.int32))}
        columns |= {
            name: codes[name].dictionary_decode() if name in codes else pa.nulls(n, pa.string())
            for name in names
        }
        yield pa.table(columns | {"count": pa.array(nodes.counts)})


def release_columns(run_tree: RunTree, leaves: NodeCounts) -> dict[str, pa.Array]:
    """The columns of the released table, as texts or, where the input had them, as integers."""
    tree = run_tree.tree
    positions = tree.positions(tree.depth, leaves.keys)
    columns = {}
    for column in run_tree.columns:
        dimension = tree.dimensions[column.dimension]
        codes = pa.array(dimension.levels[column.depth].codes, pa.string())
        if column.is_integer:
            codes = codes.cast(pa.int64())
        at_depth = dimension.ancestors(column.depth)[positions[column.dimension]]
        columns[column.name] = codes.take(pa.array(at_depth))
    columns["count"] = pa.array(leaves.counts, pa.int64())
    return columns


def released_level(folder: Path, tree: Tree, level: int) -> NodeCounts:
    """The range queries of a level, as nodes, from a release in `folder`."""
    table = pq.read_table(
        folder / RANGE_QUERIES,
        filters=[(LEVEL, "=", level)],
        read_dictionary=[dimension.name for dimension in tree.dimensions],
    )
    return NodeCounts(node_keys(tree, level, table, RANGE_QUERIES), table["count"].to_numpy())


def n_trips(folder: Path, tree: Tree) -> int:
    """The released number of trips."""
    return released_level(folder, tree, 0).total


def n_released(folder: Path) -> Counter[int]:
    """Number of counts that are not zero, by level."""
    return Counter(
        pq.read_table(folder / RANGE_QUERIES, columns=[LEVEL])[LEVEL].to_numpy().tolist()
    )


def _write(stem: Path, tables: Sequence[pa.Table], is_private: bool) -> None:
    """Write tables of one schema as Parquet, each as row groups of its own, and then as delimited
    text with one header; empty fields are null."""
    stamped = None if is_private else stamp(is_private=False)
    schema = tables[0].schema.with_metadata(stamped)
    parquet, text = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    with replacing(parquet) as part, pq.ParquetWriter(part, schema, compression="zstd") as rows:
        for table in tables:
            rows.write_table(table.replace_schema_metadata(stamped), row_group_size=ROWS_PER_GROUP)
    with replacing(text) as part, part.open("wb") as sink:
        if not is_private:
            sink.write(f"# {NOT_PRIVATE}\n".encode())
        with pacsv.CSVWriter(sink, tables[0].schema) as lines:
            for table in tables:
                lines.write_table(table)


def settings_of_release(run: RunDirectory, settings: TripsSettings, folder: Path) -> TripsSettings:
    """Settings of the same mechanism on a finished run's release.

    Raises InputRefused where the values in the input are the areas: a release lacks those without
    a count.
    """
    if settings.input.areas is None:
        raise InputRefused(
            f"{run.root}: its areas are the values in its input, which a release need not have; "
            "errors can be expected where input.areas lists them."
        )
    which = "trips" if settings.input.trips is not None else "table"
    own = {which: str(run.release / "trips.parquet"), "count": "count", "person": None}
    privacy = {"excess_trips": "refused"}
    return settings.model_copy(
        update={
            "input": settings.input.model_copy(update={**own, "confidential": False}),
            "privacy": settings.privacy.model_copy(update=privacy),
        }
    )
