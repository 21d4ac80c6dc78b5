"""The region hierarchy: a tree of regions, every leaf at the same depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....geography.hierarchy import AreaHierarchy, AreaLevel


@dataclass(frozen=True, eq=False)
class RegionHierarchy(AreaHierarchy):
    """All levels of regions, the root first."""

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

    @cached_property
    def leaves(self) -> tuple[np.ndarray, ...]:
        """For each level offsets (n + 1,): the finest regions below each region, contiguous too."""
        offsets = [np.arange(self.n_leaves + 1, dtype=np.int64)]
        for depth in range(len(self.levels) - 2, -1, -1):
            offsets.append(offsets[-1][self.children(depth)])
        return tuple(reversed(offsets))

    def restricted(self, depths: Sequence[int]) -> RegionHierarchy:
        """The hierarchy of some of the levels, ascending positions, of which the first is a root.

        >>> names = [["US"], ["GA", "NY"], ["1", "2", "3"]]
        >>> parents = [[-1], [0, 0], [0, 1, 1]]
        >>> levels = (AreaLevel("", np.array(n), np.array(p)) for n, p in zip(names, parents))
        >>> RegionHierarchy(tuple(levels)).restricted([0, 2]).levels[1].parent.tolist()
        [0, 0, 0]
        """
        parents = [np.array([-1]), *map(self.ancestors, depths, depths[1:])]
        kept = zip((self.levels[depth] for depth in depths), parents, strict=True)
        return RegionHierarchy(tuple(AreaLevel(own.name, own.codes, up) for own, up in kept))

    def sum_up(self, finest: np.ndarray) -> list[np.ndarray]:
        """Sums of a table (n_leaves, ...) of the finest level over the regions of every level."""
        return [np.add.reduceat(finest, offsets[:-1], axis=0) for offsets in self.leaves[:-1]] + [
            finest
        ]
