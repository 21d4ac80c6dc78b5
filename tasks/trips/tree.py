"""Trees of range queries over hierarchies of areas, and the true counts of their nodes.

Every level of a tree refines one dimension by one level of its hierarchy. The destination tree of
origins and destinations refines the destination, then the origin, and so on; the origin tree the
other way round. A list of columns is a tree too, that refines one column after the other. A node
is one area of every dimension at the depths of its level, and its leaves are the cells of the
table.

A node's key is the mixed-radix number of its areas' positions, the last dimension running fastest,
so that a level's nodes are integers for any number of dimensions, and unused nodes take no memory.

Nodes of a level with their counts, and the confidential tree: the true counts of its nodes, of
which the positive ones are kept.

The tree of a run and its confidential leaves are files of the run directory:

spine/trips/areas.parquet     dimension, depth, level, code, parent: public areas, in order
spine/trips/tree.json         what each level refines, the release's columns, and the total
                              number of trips where it is an invariant
confidential/trips/leaves.parquet     key, count of the positive leaves
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...geography.hierarchy import AreaHierarchy, AreaLevel
from ..runs.directory import RunDirectory
from ..runs.files import cache_unchanged, read_record, write_record
from ..runs.stamps import write_parquet

ROOT = ""
"""Code of the one area of a hierarchy's root level, which no file names."""


@dataclass(frozen=True, eq=False)
class Hierarchy(AreaHierarchy):
    """Levels of areas, the root first; the finest level is where records live.

    `name` is the dimension's name: "origin", "destination", or a column.
    """

    name: str

    def __post_init__(self) -> None:
        if len(self.levels[0]) != 1:
            raise ValueError(f"the root level of {self.name} must hold one area")
        for above, level in zip(self.levels, self.levels[1:], strict=False):
            if (np.diff(level.parent) < 0).any() or not np.array_equal(
                np.unique(level.parent), np.arange(len(above))
            ):
                raise ValueError(
                    f"level {level.name} of {self.name}: children of an area must be "
                    "consecutive, in the order of the level above, and every area needs some"
                )

    @property
    def depth(self) -> int:
        """Number of levels below the root."""
        return len(self.levels) - 1

    def n_leaves(self, depth: int) -> np.ndarray:
        """For every area at `depth`, the number of finest areas in it."""
        return np.bincount(self.ancestors(depth), minlength=len(self.levels[depth]))


def hierarchy_of_links(
    name: str, levels: Sequence[tuple[str, np.ndarray | pd.Series, Iterable[str]]]
) -> Hierarchy:
    """Order levels of `(name, codes, codes of the parents)`, coarsest first, into a hierarchy.

    Parents' codes of the first level are not looked at. Areas are sorted by their codes within
    their parent, so that the result does not depend on the order of the input. Every code must be
    unique within its level, and every parent must exist and have a child.

    >>> links = [("region", np.array(["n", "s"]), None), ("town", np.array(["a"]), np.array(["s"]))]
    >>> hierarchy_of_links("origin", links[:1]).levels[1].codes.tolist()
    ['n', 's']
    """
    built = [AreaLevel.root(ROOT)]
    for depth, (level_name, codes, parents) in enumerate(levels):
        above = parents if depth else np.full(len(codes), ROOT)
        built.append(built[-1].below(level_name, codes, above))
    return Hierarchy(tuple(built), name)


MOST_NODES = 1 << 62
"""Keys must fit into 64 bits."""


@dataclass(frozen=True, eq=False)
class Tree:
    """The public shape of a tree: `refined[l - 1]` is the dimension that level l refines."""

    dimensions: tuple[Hierarchy, ...]
    refined: tuple[int, ...]

    def __post_init__(self) -> None:
        for number, dimension in enumerate(self.dimensions):
            if self.refined.count(number) != dimension.depth:
                raise ValueError(f"the tree must refine {dimension.name} {dimension.depth} times")
        # Python's integers: the product of the inputs must not wrap before it is compared.
        n_leaves = 1
        for dimension in self.dimensions:
            n_leaves *= len(dimension.levels[-1])
        if n_leaves >= MOST_NODES:
            raise ValueError("the table has more cells than 64-bit keys can number")

    @property
    def depth(self) -> int:
        """T: the level of the leaves, the root being level 0."""
        return len(self.refined)

    @cached_property
    def depths(self) -> tuple[tuple[int, ...], ...]:
        """For every level, the depth of each dimension."""
        depths = [(0,) * len(self.dimensions)]
        for number in self.refined:
            deeper = list(depths[-1])
            deeper[number] += 1
            depths.append(tuple(deeper))
        return tuple(depths)

    def sizes(self, level: int) -> tuple[int, ...]:
        """Number of areas of each dimension at a level."""
        return tuple(
            len(dimension.levels[depth])
            for dimension, depth in zip(self.dimensions, self.depths[level], strict=True)
        )

    def n_nodes(self, level: int) -> int:
        """Number of nodes of a level, empty ones included."""
        return int(np.prod([1, *self.sizes(level)], dtype=object))

    def level_name(self, level: int) -> str:
        """The level's areas in words: the level that each refined dimension has reached.

        >>> from spineflow.tasks.trips.tree import hierarchy_of_links
        >>> areas = [("region", np.array(["n", "s"]), None)]
        >>> tree = column_tree([hierarchy_of_links("place", areas)])
        >>> [tree.level_name(level) for level in range(2)]
        ['root', 'region']
        """
        names = [
            dimension.levels[depth].name
            for dimension, depth in zip(self.dimensions, self.depths[level], strict=True)
            if depth
        ]
        return ", ".join(names) or "root"

    def keys(self, level: int, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Keys of nodes given by the positions of their areas, one array a dimension."""
        return np.ravel_multi_index(tuple(positions), self.sizes(level))

    def positions(self, level: int, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        """Positions of the areas of nodes, one array a dimension; the inverse of `keys`."""
        return np.unravel_index(keys, self.sizes(level))

    def parent_keys(self, level: int, keys: np.ndarray) -> np.ndarray:
        """Keys of the parents, at the level above, of nodes of a level."""
        number, size, inner = self._radix(level)
        parent = self.dimensions[number].levels[self.depths[level][number]].parent
        outer, low = np.divmod(keys, inner)
        outer, position = np.divmod(outer, size)
        return (outer * self.sizes(level - 1)[number] + parent[position]) * inner + low

    def n_children(self, level: int, keys: np.ndarray) -> np.ndarray:
        """Number of children, at the level below, of each node of a level, `(n,)`."""
        number, _, inner = self._radix(level + 1)
        offsets = self._child_offsets(level)
        position = keys // inner % self.sizes(level)[number]
        return offsets[position + 1] - offsets[position]

    def children(self, level: int, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys of all children of some nodes of a level, and where each node's start.

        Children of one node are consecutive, in the order of their areas; `(n_children,)` keys at
        the level below and offsets `(n + 1,)`.
        """
        n_children = self.n_children(level, keys)
        offsets = np.concatenate([[0], np.cumsum(n_children)])
        number, size, inner = self._radix(level + 1)
        outer, low = np.divmod(keys, inner)
        outer, position = np.divmod(outer, self.sizes(level)[number])
        first = (outer * size + self._child_offsets(level)[position]) * inner + low
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], n_children)
        return np.repeat(first, n_children) + place * inner, offsets

    def _radix(self, level: int) -> tuple[int, int, int]:
        """The dimension that a level refines, its size there, and the size of all after it."""
        number = self.refined[level - 1]
        sizes = self.sizes(level)
        return number, sizes[number], int(np.prod([1, *sizes[number + 1 :]]))

    def _child_offsets(self, level: int) -> np.ndarray:
        """Where the children of every area start that the level below refines, `(n + 1,)`."""
        number = self.refined[level]
        return self.dimensions[number].children(self.depths[level][number])


def od_tree(origin: Hierarchy, destination: Hierarchy, *, first: str = "destination") -> Tree:
    """The destination tree, or the origin tree with `first="origin"`, of hierarchies of one depth.

    Level 2 i - 1 refines the first dimension and level 2 i the other, so that the even levels are
    pairs of areas of the same level.
    """
    pair = (1, 0) if first == "destination" else (0, 1)
    return Tree((origin, destination), pair * origin.depth)


def column_tree(columns: Sequence[Hierarchy]) -> Tree:
    """A tree that refines one dimension completely, then the next."""
    refined = [number for number, column in enumerate(columns) for _ in range(column.depth)]
    return Tree(tuple(columns), tuple(refined))


@dataclass(frozen=True, eq=False)
class NodeCounts:
    """Nodes of one level and their counts, true, noisy or estimated.

    `keys` and `counts` are `(n,)` int64. For true counts the positive ones are kept, by ascending
    keys.
    """

    keys: np.ndarray
    counts: np.ndarray

    @cached_property
    def total(self) -> int:
        """The number of trips."""
        return int(self.counts.sum())

    def at(self, chosen: np.ndarray | slice) -> NodeCounts:
        """Some of the nodes, by a mask or by their places."""
        return NodeCounts(self.keys[chosen], self.counts[chosen])

    @property
    def ascending(self) -> NodeCounts:
        """The nodes by ascending keys."""
        return self.at(np.argsort(self.keys, kind="stable"))

    @property
    def positive(self) -> NodeCounts:
        """The nodes with a positive count."""
        return self.at(self.counts > 0)

    def counts_of(self, keys: np.ndarray) -> np.ndarray:
        """Counts of given nodes, 0 for others than these, whose keys must ascend."""
        where = np.searchsorted(self.keys, keys)
        where[where == self.keys.size] = 0
        if not self.keys.size:
            return np.zeros(keys.size, dtype=np.int64)
        return np.where(self.keys[where] == keys, self.counts[where], 0)


NO_NODES = NodeCounts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class TrueTree:
    """True counts of all levels, summed on demand from the `leaves`, those of level T."""

    tree: Tree
    leaves: NodeCounts

    @cached_property
    def levels(self) -> tuple[NodeCounts, ...]:
        """Positive nodes of every level, the root first."""
        levels = [self.leaves]
        for level in range(self.tree.depth, 0, -1):
            levels.append(
                sum_by_key(self.tree.parent_keys(level, levels[-1].keys), levels[-1].counts)
            )
        return tuple(reversed(levels))


def sum_by_key(keys: np.ndarray, counts: np.ndarray) -> NodeCounts:
    """One node for each key that occurs with a sum of counts that is not 0."""
    order = np.argsort(keys, kind="stable")
    unique, starts = np.unique(keys[order], return_index=True)
    sums = np.add.reduceat(counts[order], starts) if starts.size else counts[:0]
    return NodeCounts(unique, sums).at(sums != 0)


def tree_file(run: RunDirectory) -> Path:
    """The last file that ingest writes: where it is, all is."""
    return run.root / "spine" / "trips" / "tree.json"


def areas_file(run: RunDirectory) -> Path:
    """Where the areas of the tree are kept."""
    return tree_file(run).with_name("areas.parquet")


def leaves_file(run: RunDirectory) -> Path:
    """The confidential counts."""
    return run.confidential / "trips" / "leaves.parquet"


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


@cache_unchanged(leaves_file, at_most=1)
def read_truth(run: RunDirectory) -> TrueTree:
    """The confidential tree."""
    table = pq.read_table(leaves_file(run))
    leaves = NodeCounts(table["key"].to_numpy(), table["count"].to_numpy())
    return TrueTree(read_tree(run).tree, leaves)
