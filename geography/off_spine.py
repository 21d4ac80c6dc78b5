"""Algorithm 1 of [Spines2024]: how far each off-spine entity is from the spine.

The off-spine entity distance is the smallest number of geounits that must be added to or
subtracted from one another to obtain the entity. With c[u] the distance of the entity's part of
geounit u, c'[u] that of the rest of u, and x, y the sums of c and c' over u's children,

    c[u] = min(x, y + 1),    c'[u] = min(y, x + 1),

starting from c = 1, c' = 0 for a block inside and c = 0, c' = 1 for a block outside. A geounit
that the entity does not touch therefore has c = 0 and c' = 1 at every geolevel, so only touched
pairs of a geounit and an entity are stored, and the others are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from .categories import Category
from .levels import Spine, child_offsets


@dataclass(frozen=True, eq=False)
class Entries:
    """Pairs of a geounit and an entity that touch, geounit by geounit.

    Entries of geounit u stand at offsets[u] up to offsets[u + 1]; x and y are as above, with
    untouched children counted in y.
    """

    offsets: np.ndarray
    entity: np.ndarray
    x: np.ndarray
    y: np.ndarray

    def inside(self) -> np.ndarray:
        """c of each entry: geounits needed for the entity's part of the geounit."""
        return np.minimum(self.x, self.y + 1)

    def rest(self) -> np.ndarray:
        """c' of each entry: geounits needed for the rest of the geounit."""
        return np.minimum(self.y, self.x + 1)


def off_spine_distances(spine: Spine, category: Category) -> np.ndarray:
    """(n_entities,) int64 off-spine entity distance of every entity of the category.

    An entity that no block of the spine belongs to has distance 0; one whose extent equals a
    geounit's has distance 1.
    """
    entries = blocks_in_several_entities(category.entity[spine.block_row, None])
    return distances(spine, entries, len(category))


def distances(spine: Spine, entries: Entries, n_entities: int) -> np.ndarray:
    """(n_entities,) int64 off-spine entity distance of entities, which may overlap, from the
    entries of the spine's blocks; 0 of those without a block.
    """
    for above, below in zip(spine.geolevels[-2::-1], spine.geolevels[:0:-1], strict=True):
        entries, _ = fold(entries, child_offsets(below.parent, len(above)), n_entities)
    distance = np.zeros(n_entities, dtype=np.int64)
    distance[entries.entity] = entries.inside()
    return distance


def blocks_in_several_entities(entities: np.ndarray) -> Entries:
    """Entries of blocks that each belong to one or several entities, `entities` (n_blocks, n)."""
    n_blocks, n = entities.shape
    return Entries(
        offsets=np.arange(0, n_blocks * n + 1, n, dtype=np.int64),
        entity=entities.astype(np.int32).reshape(-1),
        x=np.ones(n_blocks * n, dtype=np.int32),
        y=np.zeros(n_blocks * n, dtype=np.int32),
    )


def listed_entries(n_blocks: int, block: np.ndarray, entity: np.ndarray) -> Entries:
    """Entries of blocks from distinct pairs (p,) of a block and an entity that it belongs to."""
    order = np.lexsort((entity, block))
    ones = np.ones(len(order), dtype=np.int32)
    return Entries(
        offsets=np.searchsorted(block[order], np.arange(n_blocks + 1)).astype(np.int64),
        entity=entity[order].astype(np.int32),
        x=ones,
        y=np.zeros_like(ones),
    )


def fold(children: Entries, offsets: np.ndarray, n_entities: int) -> tuple[Entries, np.ndarray]:
    """Entries one geolevel up.

    Args:
        children: entries of the geolevel below.
        offsets: (n_parents + 1,) children of each parent.
        n_entities: number of entities.

    Returns:
        The parents' entries, and for each entry of a child the position of the parent's entry of
        the same entity.
    """
    *arrays, link = _fold(
        offsets,
        children.offsets,
        children.entity,
        children.inside(),
        children.rest(),
        n_entities,
    )
    return Entries(*arrays), link


@numba.njit(cache=True, nogil=True)
def _fold(
    offsets: np.ndarray,
    entry_offsets: np.ndarray,
    entity: np.ndarray,
    inside: np.ndarray,
    rest: np.ndarray,
    n_entities: int,
) -> tuple[np.ndarray, ...]:
    n_parents = len(offsets) - 1
    n_entries = len(entity)
    slot = np.full(n_entities, -1, dtype=np.int64)
    link = np.empty(n_entries, dtype=np.int64)
    parent_offsets = np.zeros(n_parents + 1, dtype=np.int64)
    parent_entity = np.empty(n_entries, dtype=np.int32)
    x = np.zeros(n_entries, dtype=np.int32)
    y = np.zeros(n_entries, dtype=np.int32)
    n_touched = np.zeros(n_entries, dtype=np.int32)
    end = 0
    for parent in range(n_parents):
        start = end
        for entry in range(entry_offsets[offsets[parent]], entry_offsets[offsets[parent + 1]]):
            k = entity[entry]
            if slot[k] < start:
                slot[k] = end
                parent_entity[end] = k
                end += 1
            position = slot[k]
            link[entry] = position
            x[position] += inside[entry]
            y[position] += rest[entry]
            n_touched[position] += 1
        n_children = offsets[parent + 1] - offsets[parent]
        for position in range(start, end):
            y[position] += n_children - n_touched[position]
        parent_offsets[parent + 1] = end
    return (
        parent_offsets,
        parent_entity[:end].copy(),
        x[:end].copy(),
        y[:end].copy(),
        link,
    )
