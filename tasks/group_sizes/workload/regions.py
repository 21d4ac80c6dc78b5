"""The region hierarchy: a tree of regions, every leaf at the same depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....geography.levels import child_offsets


@dataclass(frozen=True, eq=False)
class RegionLevel:
    """The regions of one level, in the order of their parents.

    `region` (n,) object array of str; `parent` (n,) int64 position in the level above, which never
    decreases; [-1] at the root.
    """

    name: str
    region: np.ndarray
    parent: np.ndarray

    def __len__(self) -> int:
        return len(self.region)


@dataclass(frozen=True, eq=False)
class RegionHierarchy:
    """All levels, the root first; children of one region are contiguous in the level below.

    >>> root = RegionLevel("nation", np.array(["US"]), np.array([-1]))
    >>> states = RegionLevel("state", np.array(["GA", "NY"]), np.array([0, 0]))
    >>> RegionHierarchy((root, states)).children(0).tolist()
    [0, 2]
    """

    levels: tuple[RegionLevel, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels, root first."""
        return tuple(level.name for level in self.levels)

    @property
    def n_regions(self) -> tuple[int, ...]:
        """Number of regions of each level, root first."""
        return tuple(len(level) for level in self.levels)

    @property
    def n_leaves(self) -> int:
        """Number of regions of the finest level."""
        return len(self.levels[-1])

    def children(self, depth: int) -> np.ndarray:
        """Offsets (n + 1,): region i of level `depth` has the children at positions offsets[i] up
        to offsets[i + 1] of the level below.
        """
        return child_offsets(self.levels[depth + 1].parent, len(self.levels[depth]))

    @cached_property
    def leaves(self) -> tuple[np.ndarray, ...]:
        """For each level offsets (n + 1,): the finest regions below each region, contiguous too."""
        offsets = [np.arange(self.n_leaves + 1, dtype=np.int64)]
        for depth in range(len(self.levels) - 2, -1, -1):
            offsets.append(offsets[-1][self.children(depth)])
        return tuple(reversed(offsets))

    def ancestors(self, depth: int, above: int) -> np.ndarray:
        """Position at level `above` of what every region of level `depth` lies in."""
        position = np.arange(len(self.levels[depth]))
        for level in self.levels[depth:above:-1]:
            position = level.parent[position]
        return position

    def restricted(self, depths: Sequence[int]) -> RegionHierarchy:
        """The hierarchy of some of the levels, ascending positions, of which the first is a root.

        >>> names = [["US"], ["GA", "NY"], ["1", "2", "3"]]
        >>> parents = [[-1], [0, 0], [0, 1, 1]]
        >>> levels = (RegionLevel("", np.array(n), np.array(p)) for n, p in zip(names, parents))
        >>> RegionHierarchy(tuple(levels)).restricted([0, 2]).levels[1].parent.tolist()
        [0, 0, 0]
        """
        parents = [np.array([-1]), *map(self.ancestors, depths[1:], depths)]
        kept = zip((self.levels[depth] for depth in depths), parents, strict=True)
        return RegionHierarchy(tuple(RegionLevel(own.name, own.region, up) for own, up in kept))

    def sum_up(self, finest: np.ndarray) -> list[np.ndarray]:
        """Sums of a table (n_leaves, ...) of the finest level over the regions of every level."""
        return [np.add.reduceat(finest, offsets[:-1], axis=0) for offsets in self.leaves[:-1]] + [
            finest
        ]
