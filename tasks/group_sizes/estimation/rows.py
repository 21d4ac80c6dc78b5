"""Public numbers of groups by region: the rows of a hierarchy, and the program that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..workload.regions import RegionHierarchy
from .marginal_costs import hierarchical_optimum
from .transport import hierarchical_optimum_of_rows


@dataclass(frozen=True, eq=False)
class Rows:
    """The regions of the level at `depth` have `totals` groups each, which is public."""

    depth: int
    totals: np.ndarray

    def bounds(self, hierarchy: RegionHierarchy) -> list[np.ndarray]:
        """For each level the number of groups of its regions, or below the rows that of theirs."""
        bounds = [self.totals]
        for level in hierarchy.levels[self.depth : 0 : -1]:
            above = np.zeros(int(level.parent[-1]) + 1, dtype=np.int64)
            np.add.at(above, level.parent, bounds[0])
            bounds.insert(0, above)
        for level in hierarchy.levels[self.depth + 1 :]:
            bounds.append(bounds[-1][level.parent])
        return bounds


def exact_hierarchical(
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    rows: Rows | None = None,
) -> np.ndarray:
    """`hierarchical_optimum`, with the numbers of groups of `rows` kept if there are any."""
    if rows is None or len(rows.totals) == 1:
        return hierarchical_optimum(noisy, hierarchy, total, weights)
    return hierarchical_optimum_of_rows(noisy, hierarchy, rows.depth, rows.totals, weights)
