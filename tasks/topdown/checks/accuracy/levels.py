"""The geographic entities of the accuracy report, and which of them lie on the spine.

They are the entities of the summary levels of the redistricting tables, and the geounits of every
geolevel of the spine that is not one of those. Blocks that can hold nobody take no part; they are
on no spine, and nothing about them is uncertain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pandas as pd
from scipy import sparse

from .....geography.levels import Spine
from ....census.areas import entities
from ....census.cef_2020 import CENSUS
from ....census.census import Census
from ....census.queries import incidence
from ...release.tabulations.levels import SUMMARY_LEVELS, entities_of

OF_THE_SPINE = " of the spine"
"""Ends the names of levels whose entities are a spine's own geounits."""


@dataclass(frozen=True, eq=False)
class EntityLevel:
    """Entities of one kind, each a set of the spine's blocks."""

    name: str
    geolevels: frozenset[str]
    """The geolevels of the spine whose geounits they are."""
    entity: np.ndarray
    """(n_blocks,) integers: each block's entity, in the order of the spine's blocks; -1 for
    none."""
    n_entities: int

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(n_entities, n) sums of the blocks' `values` (n_blocks, n)."""
        return self._incidence @ values

    @cached_property
    def _incidence(self) -> sparse.csr_array:
        return incidence(self.entity, self.n_entities)


def own_level(geolevel: str) -> str:
    """The name of the level whose entities are the geounits of a geolevel, where these are the
    entities of no other level.

    >>> own_level("Block_Group")
    'block group of the spine'
    """
    return geolevel.replace("_", " ").lower() + OF_THE_SPINE


def own_geolevels(spine: Spine) -> list[str]:
    """The geolevels of which a spine has more than one geounit, the only ones with own levels."""
    return [level.name for level in spine.geolevels if len(level) > 1]


def entity_levels(
    spine: Spine, geography: pd.DataFrame, census: Census = CENSUS
) -> tuple[EntityLevel, ...]:
    """All levels, from large to small entities within each of the two kinds.

    They are the summary levels of a census, or else its geolevels and the columns of areas that its
    tables are by; and the geounits of the spine that are none of these. `geography` is the
    geography frame of the spine's blocks, in the order of its rows.
    """
    if census.summary_levels:
        frame = geography.iloc[spine.block_row].reset_index(drop=True)
        return tuple(level for level in levels_of_subspine(spine, frame, spine) if level.n_entities)
    columns = [level for table in census.tables for level in table.levels]
    named = [name for name in (*census.geolevels, *columns) if name in geography.columns]
    found = {}
    for name in dict.fromkeys([census.geolevels[0], *named]):
        number, codes = entities(geography, census.geolevels, name)
        found[name] = number[spine.block_row], len(codes)
    return _levels(found, spine, spine)


def levels_of_subspine(
    spine: Spine, geography: pd.DataFrame, whole: Spine
) -> tuple[EntityLevel, ...]:
    """The summary levels of a subspine of a `whole` spine, as `entity_levels` has them of a spine,
    and levels without entities in it. `geography` has the rows of its blocks in their order."""
    found = {}
    for level in SUMMARY_LEVELS.values():
        entity = entities_of(geography, level).block_entity.astype(np.int32)
        found[level.name] = entity, int(entity.max(initial=-1)) + 1
    return _levels(found, spine, whole)


def _levels(
    found: Mapping[str, tuple[np.ndarray, int]], spine: Spine, whole: Spine
) -> tuple[EntityLevel, ...]:
    """Levels by name, with each block's entity and the number of entities; then the own levels of
    those geolevels of the whole spine whose geounits are the entities of none of these."""
    geounits = {name: spine.ancestors(name) for name in spine.names}
    levels = []
    for name, (entity, n_entities) in found.items():
        same = (own for own, geounit in geounits.items() if _is_same_partition(entity, geounit))
        levels.append(EntityLevel(name, frozenset(same), entity, n_entities))
    matched = set(chain(*(level.geolevels for level in levels)))
    for name in own_geolevels(whole):
        if name not in matched:
            n_entities = len(spine.geolevel(name))
            levels.append(
                EntityLevel(own_level(name), frozenset([name]), geounits[name], n_entities)
            )
    return tuple(levels)


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
