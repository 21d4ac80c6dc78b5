"""Nodes of a level with their counts, and the confidential tree: the true counts of its nodes, of
which the positive ones are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .tree import Tree


@dataclass(frozen=True, eq=False)
class NodeCounts:
    """Nodes of one level and their counts, true, noisy or estimated.

    `keys` and `counts` are `(n,)` int64. Of true counts the positive ones are kept, by ascending
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
    """True counts of all levels, summed from the `leaves`, those of level T, when asked for."""

    tree: Tree
    leaves: NodeCounts

    @cached_property
    def levels(self) -> tuple[NodeCounts, ...]:
        """Positive nodes of every level, the root first."""
        levels = [self.leaves]
        for level in range(self.tree.depth, 0, -1):
            levels.append(summed(self.tree.parent_keys(level, levels[-1].keys), levels[-1].counts))
        return tuple(reversed(levels))


def summed(keys: np.ndarray, counts: np.ndarray) -> NodeCounts:
    """One node for each key that occurs with a sum of counts that is not 0."""
    order = np.argsort(keys, kind="stable")
    unique, starts = np.unique(keys[order], return_index=True)
    sums = np.add.reduceat(counts[order], starts) if starts.size else counts[:0]
    return NodeCounts(unique, sums).at(sums != 0)
