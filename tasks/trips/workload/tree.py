"""Trees of range queries over one or more hierarchies, and nodes of a level as integer keys.

Every level of a tree refines one dimension by one level of its hierarchy. The destination tree of
origins and destinations refines the destination, then the origin, and so on; the origin tree the
other way round. A list of columns is a tree too, that refines one column after the other. A node
is one area of every dimension at the depths of its level, and its leaves are the cells of the
table.

A node's key is the mixed-radix number of its areas' positions, the last dimension running
fastest, so that a level's nodes are integers, whatever the number of dimensions, and nodes that
nobody asked for take no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .hierarchy import Hierarchy

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
        # Python's integers: the product of what is given must not wrap before it is compared.
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

        >>> from spineflow.tasks.trips.workload.hierarchy import hierarchy_of_links
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
        keys = np.zeros(len(positions[0]), dtype=np.int64)
        for size, position in zip(self.sizes(level), positions, strict=True):
            keys *= size
            keys += position
        return keys

    def positions(self, level: int, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        """Positions of the areas of nodes, one array a dimension; the inverse of `keys`."""
        found = []
        for size in reversed(self.sizes(level)):
            keys, position = np.divmod(keys, size)
            found.append(position)
        return tuple(reversed(found))

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

        Children of one node stand together, in the order of their areas; `(n_children,)` keys at
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
    those of pairs of areas of the same level.
    """
    pair = (1, 0) if first == "destination" else (0, 1)
    return Tree((origin, destination), pair * origin.depth)


def column_tree(columns: Sequence[Hierarchy]) -> Tree:
    """A tree that refines one dimension completely, then the next."""
    refined = [number for number, column in enumerate(columns) for _ in range(column.depth)]
    return Tree(tuple(columns), tuple(refined))
