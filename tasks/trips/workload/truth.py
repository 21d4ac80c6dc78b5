"""The confidential tree: true counts of its positive nodes, and those of any parents' children."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from .tree import Tree

Families = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of one level: parents (n,), where the children of each begin (n + 1,), and those children's keys
and counts."""


@dataclass(frozen=True, eq=False)
class TrueLevel:
    """The positive nodes of a level: `keys` (n,) ascending, `counts` (n,) positive, int64."""

    keys: np.ndarray
    counts: np.ndarray

    @cached_property
    def total(self) -> int:
        """The number of trips."""
        return int(self.counts.sum())

    def counts_of(self, keys: np.ndarray) -> np.ndarray:
        """True counts of given nodes, zeros included, in their order."""
        where = np.searchsorted(self.keys, keys)
        where[where == self.keys.size] = 0
        if not self.keys.size:
            return np.zeros(keys.size, dtype=np.int64)
        return np.where(self.keys[where] == keys, self.counts[where], 0)


@dataclass(frozen=True, eq=False)
class TrueTree:
    """True counts of all levels, summed from the `leaves`, those of level T, when asked for."""

    tree: Tree
    leaves: TrueLevel

    @cached_property
    def levels(self) -> tuple[TrueLevel, ...]:
        """Positive nodes of every level, the root first."""
        levels = [self.leaves]
        for level in range(self.tree.depth, 0, -1):
            levels.append(summed(self.tree.parent_keys(level, levels[-1].keys), levels[-1].counts))
        return tuple(reversed(levels))

    @cached_property
    def _families(self) -> tuple[Families, ...]:
        """For every level but the root: sorted parents with positive children, and the children."""
        families = []
        for level in range(1, self.tree.depth + 1):
            nodes = self.levels[level]
            parent = self.tree.parent_keys(level, nodes.keys)
            order = np.argsort(parent, kind="stable")
            parents, starts = np.unique(parent[order], return_index=True)
            offsets = np.append(starts, order.size)
            families.append((parents, offsets, nodes.keys[order], nodes.counts[order]))
        return tuple(families)

    def children(self, level: int, parents: np.ndarray) -> tuple[np.ndarray, ...]:
        """All children at `level` of some nodes above: keys, offsets `(n + 1,)`, true counts.

        Children without trips are among them, with a count of 0.
        """
        keys, offsets = self.tree.children(level - 1, parents)
        counts = np.zeros(keys.size, dtype=np.int64)
        families = self._families[level - 1]
        if families[0].size:
            family = np.searchsorted(families[0], parents)
            family[family == families[0].size] = 0
            family[families[0][family] != parents] = -1
            stride = self.tree.stride(level)
            _, own_offsets, own_keys, own_counts = families
            _fill_counts(keys, offsets, family, own_offsets, own_keys, own_counts, stride, counts)
        return keys, offsets, counts


def summed(keys: np.ndarray, counts: np.ndarray) -> TrueLevel:
    """One node for each key that occurs with a positive sum of counts."""
    order = np.argsort(keys, kind="stable")
    unique, starts = np.unique(keys[order], return_index=True)
    sums = np.add.reduceat(counts[order], starts) if starts.size else counts[:0]
    return TrueLevel(unique[sums > 0], sums[sums > 0])


@njit(nogil=True, cache=True)
def _fill_counts(
    keys: np.ndarray,
    offsets: np.ndarray,
    family: np.ndarray,
    own_offsets: np.ndarray,
    own_keys: np.ndarray,
    own_counts: np.ndarray,
    stride: int,
    counts: np.ndarray,
) -> None:
    """Children of one parent have keys `stride` apart, which gives every child's place."""
    for i in range(family.size):
        if family[i] < 0:
            continue
        start = offsets[i]
        for j in range(own_offsets[family[i]], own_offsets[family[i] + 1]):
            counts[start + (own_keys[j] - keys[start]) // stride] = own_counts[j]
