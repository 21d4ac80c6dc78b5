"""The geographic entities of the accuracy report, and which of them lie on the spine.

They are the entities of the summary levels of the redistricting tables, and the geounits of every
geolevel of the spine that is not one of those. Blocks that can hold nobody take no part; they are
on no spine, and nothing about them is uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import sparse
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
        inside = np.flatnonzero(self.entity >= 0)
        ones = np.ones(inside.size, dtype=values.dtype)
        where = (ones, (self.entity[inside], inside))
        return sparse.csr_array(where, (self.n_entities, len(self.entity))) @ values


def entity_levels(spine: Spine, geography: pd.DataFrame) -> tuple[EntityLevel, ...]:
    """All levels, from large to small entities within each of the two kinds.

    `geography` is the geography frame of the spine's blocks, in the order of its rows.
    """
    return stretched_levels(spine, [spine], geography)[0]


def stretched_levels(
    whole: Spine, stretches: Sequence[Spine], geography: pd.DataFrame
) -> list[tuple[EntityLevel, ...]]:
    """All levels of a spine by the stretches that it is cut into between states: the same ones of
    each, with the entities that lie in it."""
    entities: list[list[np.ndarray]] = []
    same = {(level.name, own.name) for level in SUMMARY_LEVELS.values() for own in whole.geolevels}
    for spine in stretches:
        frame = geography.iloc[spine.block_row].reset_index(drop=True)
        entities.append([])
        for level in SUMMARY_LEVELS.values():
            entity = entities_of(frame, level).block_entity
            entities[-1].append(entity.astype(np.int32))
            for name in [own for of_level, own in same if of_level == level.name]:
                if not _is_same_partition(entity, spine.ancestors(name)):
                    same.remove((level.name, name))
    matched = {name for _, name in same}
    on_spine = {name for name, _ in same}
    found = []
    for spine, of_stretch in zip(stretches, entities, strict=True):
        levels = [
            EntityLevel(level.name, level.name in on_spine, entity, int(entity.max(initial=-1)) + 1)
            for level, entity in zip(SUMMARY_LEVELS.values(), of_stretch, strict=True)
        ]
        geounits = {
            level.name: spine.ancestors(level.name)
            for level in whole.geolevels
            if level.name not in matched and len(level) > 1
        }
        found.append((*levels, *_own_levels(spine, geounits, matched, whole)))
    held = [any(of_all[i].n_entities for of_all in found) for i in range(len(found[0]))]
    return [
        tuple(level for level, is_held in zip(own, held, strict=True) if is_held) for own in found
    ]


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
    return (*levels, *_own_levels(spine, geounits, matched, spine))


def _own_levels(
    spine: Spine, geounits: Mapping[str, np.ndarray], matched: Set[str], whole: Spine
) -> Iterator[EntityLevel]:
    """The geolevels of a spine that are no summary levels, but for a single geounit of all."""
    for name, position in geounits.items():
        if name not in matched and len(whole.geolevel(name)) > 1:
            label = f"{name.replace('_', ' ').lower()}{OF_THE_SPINE}"
            yield EntityLevel(label, True, position, len(spine.geolevel(name)))


def _is_same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two numberings put the same blocks together, and leave none out."""
    if (first < 0).any():
        return False
    partner = np.full(int(first.max(initial=-1)) + 1, -1, dtype=np.int64)
    partner[first] = second
    if (partner[first] != second).any():
        return False
    own = partner[partner >= 0]
    return len(own) == np.count_nonzero(np.bincount(own, minlength=1))
