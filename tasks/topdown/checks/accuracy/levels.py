"""The geographic entities of the accuracy report, and which of them lie on the spine.

They are the entities of the summary levels of the redistricting tables, and the geounits of every
geolevel of the spine that is not one of those. Blocks that can hold nobody take no part; they are
on no spine, and nothing about them is uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from spineflow.geography.levels import Spine
from spineflow.tasks.topdown.release.tabulations.levels import SUMMARY_LEVELS, entities_of

OF_THE_SPINE = " of the spine"
"""Ends the names of levels whose entities are a spine's own geounits."""


@dataclass(frozen=True, eq=False)
class EntityLevel:
    """Entities of one kind, each a set of the spine's blocks."""

    name: str
    on_spine: bool
    """Whether they are geounits of the spine."""
    entity: np.ndarray
    """(n_blocks,) int64: each block's entity, in the order of the spine's blocks; -1 for none."""
    n_entities: int

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(n_entities, n) sums of the blocks' `values` (n_blocks, n)."""
        inside = self.entity >= 0
        sums = np.zeros((self.n_entities, values.shape[1]), dtype=values.dtype)
        np.add.at(sums, self.entity[inside], values[inside])
        return sums


def entity_levels(spine: Spine, geography: pd.DataFrame) -> tuple[EntityLevel, ...]:
    """All levels, from large to small entities within each of the two kinds.

    `geography` is the geography frame of the spine's blocks, in the order of its rows.
    """
    frame = geography.iloc[spine.block_row].reset_index(drop=True)
    geounits = {level.name: spine.ancestors(level.name) for level in spine.geolevels}
    matched = set()
    levels = []
    for level in SUMMARY_LEVELS.values():
        entity = entities_of(frame, level).block_entity
        same = [name for name, other in geounits.items() if _is_same_partition(entity, other)]
        matched |= set(same)
        levels.append(EntityLevel(level.name, bool(same), entity, int(entity.max(initial=-1)) + 1))
    for name, position in geounits.items():
        if name not in matched and len(spine.geolevel(name)) > 1:
            label = f"{name.replace('_', ' ').lower()}{OF_THE_SPINE}"
            levels.append(EntityLevel(label, True, position, len(spine.geolevel(name))))
    return tuple(level for level in levels if level.n_entities)


def _is_same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two numberings put the same blocks together, and leave none out."""
    if (first < 0).any():
        return False
    pairs = np.unique(first * (int(second.max()) + 1) + second).size
    return pairs == np.unique(first).size == np.unique(second).size
