"""The tree and the plan of a run and its confidential leaves, as files of the run directory.

spine/trips/areas.parquet     dimension, depth, level, code, parent: public areas, in order
spine/trips/tree.json         what each level refines, the release's columns, and the total
                              number of trips where it is an invariant
spine/trips/plan.json         mechanism, guarantee, the shares and squared sensitivities of the
                              measured levels, or the scale and the threshold of the histogram
confidential/trips/leaves.parquet     key, count of the positive leaves

The plan is made once, charged, and read by every step after that: optimised shares come out of
floating-point arithmetic that another version, or another machine, may round otherwise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....geography.hierarchy import AreaLevel
from ...runs.directory import RunDirectory
from ...runs.files import cache_unchanged, read_record, read_values, write_record, write_values
from ...runs.stamps import write_parquet
from ..plan import Plan, TreelessPlan, areas_file, leaves_file, plan_file, tree_file
from ..tree import Hierarchy, NodeCounts, Tree, TrueTree

COUNT = "count"


@dataclass(frozen=True)
class PlaceColumn:
    """A column of the input, and of the released table: the codes of a dimension at one depth.

    A row's place in a dimension is its finest column. `is_integer` records whether the input's
    column held integers, as the release's then does.
    """

    name: str
    dimension: int
    depth: int
    is_integer: bool = False


@dataclass(frozen=True, eq=False)
class RunTree:
    """The public facts of a run's input: the tree, the columns of places, an invariant total."""

    tree: Tree
    columns: tuple[PlaceColumn, ...]
    total: int | None = None


def write_tree(run: RunDirectory, run_tree: RunTree) -> None:
    """Write the areas, followed by the tree."""
    tree = run_tree.tree
    rows = [
        (dimension.name, depth, level.name, code, parent)
        for dimension in tree.dimensions
        for depth, level in enumerate(dimension.levels)
        for code, parent in zip(level.codes.tolist(), level.parent.tolist(), strict=True)
    ]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    areas = pa.table(columns, names=["dimension", "depth", "level", "code", "parent"])
    write_parquet(areas_file(run), areas, compression="zstd")
    facts = {
        "dimensions": [dimension.name for dimension in tree.dimensions],
        "refined": list(tree.refined),
        "columns": [asdict(column) for column in run_tree.columns],
        "total": run_tree.total,
    }
    write_record(tree_file(run), facts)


@cache_unchanged(tree_file, at_most=2)
def read_tree(run: RunDirectory) -> RunTree:
    """The tree that ingest wrote."""
    facts = read_record(tree_file(run))
    areas = pq.read_table(areas_file(run)).to_pandas()
    dimensions = []
    for name in facts["dimensions"]:
        own = areas[areas["dimension"] == name]
        levels = tuple(
            AreaLevel(
                str(at_depth["level"].iloc[0]),
                at_depth["code"].to_numpy(dtype=object),
                at_depth["parent"].to_numpy(dtype=np.int64),
            )
            for _, at_depth in own.groupby("depth")
        )
        dimensions.append(Hierarchy(levels, name))
    return RunTree(
        Tree(tuple(dimensions), tuple(facts["refined"])),
        tuple(PlaceColumn(**column) for column in facts["columns"]),
        facts["total"],
    )


def write_leaves(run: RunDirectory, leaves: NodeCounts) -> None:
    """Write the confidential counts in one step."""
    write_parquet(leaves_file(run), pa.table({"key": leaves.keys, COUNT: leaves.counts}))


@cache_unchanged(leaves_file, at_most=1)
def read_truth(run: RunDirectory) -> TrueTree:
    """The confidential tree."""
    table = pq.read_table(leaves_file(run))
    leaves = NodeCounts(table["key"].to_numpy(), table[COUNT].to_numpy())
    return TrueTree(read_tree(run).tree, leaves)


def write_plan(run: RunDirectory, plan: Plan) -> None:
    """Write a plan in one step, but for its tree, which has files of its own."""
    facts = {name: value for name, value in vars(plan).items() if name != "tree"}
    write_values(plan_file(run), TreelessPlan(**facts))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run, which its ingest has written."""
    return Plan(**vars(read_values(plan_file(run), TreelessPlan)), tree=read_tree(run).tree)
