"""The geographic entities of the accuracy report, and which of them lie on the spine.

They are the entities of the summary levels of the redistricting tables, and the geounits of every
geolevel of the spine that is not one of those. Blocks that can hold nobody take no part; they are
on no spine, and nothing about them is uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np
import pandas as pd
from spineflow.geography.levels import Spine
from spineflow.tasks.census.census import Census
from spineflow.tasks.census.entities import entities
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
    levels += _own_levels(spine, geounits, matched)
    return tuple(level for level in levels if level.n_entities)


def declared_entity_levels(
    spine: Spine, areas: pd.DataFrame, census: Census
) -> tuple[EntityLevel, ...]:
    """All levels of a declared census: its geolevels, the columns of areas that its tables are by,
    and the geounits of the spine that are none of these.
    """
    columns = [level for table in census.tables for level in table.levels]
    named = [name for name in (*census.geolevels, *columns) if name in areas.columns]
    geounits = {level.name: spine.ancestors(level.name) for level in spine.geolevels}
    matched, levels = set(), []
    for name in dict.fromkeys([census.geolevels[0], *named]):
        number, codes = entities(areas, census.geolevels, name)
        entity = number[spine.block_row]
        same = [own for own, place in geounits.items() if _is_same_partition(entity, place)]
        matched |= set(same)
        levels.append(EntityLevel(name, bool(same), entity, len(codes)))
    return (*levels, *_own_levels(spine, geounits, matched))


def _own_levels(
    spine: Spine, geounits: Mapping[str, np.ndarray], matched: Set[str]
) -> Iterator[EntityLevel]:
    """The geolevels of a spine that are no summary levels, but for a single geounit."""
    for name, position in geounits.items():
        if name not in matched and len(spine.geolevel(name)) > 1:
            label = f"{name.replace('_', ' ').lower()}{OF_THE_SPINE}"
            yield EntityLevel(label, True, position, len(spine.geolevel(name)))


def _is_same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two numberings put the same blocks together, and leave none out."""
    if (first < 0).any():
        return False
    pairs = np.unique(first * (int(second.max()) + 1) + second).size
    return pairs == np.unique(first).size == np.unique(second).size
