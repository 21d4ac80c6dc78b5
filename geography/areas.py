"""Public areas within each other: levels of areas, each in the order of the areas above."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .levels import child_offsets


@dataclass(frozen=True, eq=False)
class AreaLevel:
    """The areas of one level, in the order of their parents.

    `codes` (n,) object array of str; `parent` (n,) int64 position in the level above, which never
    decreases; [-1] at the root.
    """

    name: str
    codes: np.ndarray
    parent: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def root(cls, code: str, name: str = "root") -> AreaLevel:
        """A level of one area."""
        return cls(name, np.array([code], dtype=object), np.array([-1], dtype=np.int64))

    def below(self, name: str, codes: np.ndarray, parents: Iterable[str]) -> AreaLevel:
        """Areas with their parents' codes as the level below this one, sorted by code within their
        parent, so that the result does not depend on their order; raises KeyError for other
        parents.
        """
        place = {code: i for i, code in enumerate(self.codes)}
        parent = np.array([place[code] for code in parents], dtype=np.int64)
        codes = np.asarray(codes, dtype=object)
        order = np.lexsort((codes.astype(str), parent))
        return AreaLevel(name, codes[order], parent[order])


@dataclass(frozen=True, eq=False)
class AreaHierarchy:
    """All levels, the root first; children of one area are contiguous in the level below.

    >>> levels = AreaLevel.root("US", "nation"), AreaLevel("state", ["GA", "NY"], np.array([0, 0]))
    >>> AreaHierarchy(levels).children(0).tolist()
    [0, 2]
    """

    levels: tuple[AreaLevel, ...]

    def children(self, depth: int) -> np.ndarray:
        """Offsets (n + 1,): area i of level `depth` has the children at positions offsets[i] up to
        offsets[i + 1] of the level below.
        """
        return child_offsets(self.levels[depth + 1].parent, len(self.levels[depth]))

    def ancestors(self, depth: int, below: int = -1) -> np.ndarray:
        """Position at level `depth` of what every area of the level `below` lies in, by default the
        finest.
        """
        position = np.arange(len(self.levels[below]))
        for level in self.levels[below:depth:-1]:
            position = level.parent[position]
        return position
