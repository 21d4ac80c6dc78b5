"""Hierarchies: the public areas, or levels of a column, that one dimension of a tree refines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....geography.hierarchy import AreaHierarchy, AreaLevel

ROOT = ""
"""Code of the one area of a hierarchy's root level, which no file names."""


@dataclass(frozen=True, eq=False)
class Hierarchy(AreaHierarchy):
    """Levels of areas, the root first; the finest level is where records live.

    `name` is what one dimension of a tree is called: "origin", "destination", or a column.
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
                    f"level {level.name} of {self.name}: children of an area must stand together, "
                    "in the order of the level above, and every area needs some"
                )

    @property
    def depth(self) -> int:
        """Number of levels below the root."""
        return len(self.levels) - 1

    def n_leaves(self, depth: int) -> np.ndarray:
        """For every area at `depth`, the number of finest areas in it."""
        return np.bincount(self.ancestors(depth), minlength=len(self.levels[depth]))


def hierarchy_of_links(name: str, levels: list[tuple[str, np.ndarray, np.ndarray]]) -> Hierarchy:
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
