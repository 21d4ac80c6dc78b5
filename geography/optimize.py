"""Off-spine entity distances, and groups of blocks and of tracts that reduce them.

Algorithm 1 of [Spines2024] computes the distances, Algorithm 2 the groups.

The off-spine entity distance is the smallest number of geounits that must be added to or
subtracted from one another to obtain the entity. With c[u] the distance of the entity's part of
geounit u, c'[u] the distance of the rest of u, and x, y the sums of c and c' over u's children,

    c[u] = min(x, y + 1),    c'[u] = min(y, x + 1),

starting from c = 1, c' = 0 for a block inside and c = 0, c' = 1 for a block outside. A geounit
that the entity does not touch therefore has c = 0 and c' = 1 at every geolevel, so only pairs of a
geounit and an entity that touch are stored, and the others are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import pandas as pd

from .categories import Category
from .hierarchy import cut_groups, group_limit
from .levels import Spine, child_offsets


@dataclass(frozen=True, eq=False)
class Entries:
    """Pairs of a geounit and an entity that touch, geounit by geounit.

    Entries of geounit u are at offsets[u] up to offsets[u + 1]; x and y are as above, with
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
    """(n_entities,) int64 off-spine entity distance of entities, which may overlap.

    `entries` are the entries of the spine's blocks. An entity without a block has distance 0.
    """
    for above, below in zip(spine.geolevels[-2::-1], spine.geolevels[:0:-1], strict=True):
        entries, _ = fold(entries, child_offsets(below.parent, len(above)), n_entities)
    distance = np.zeros(n_entities, dtype=np.int64)
    distance[entries.entity] = entries.inside()
    return distance


def blocks_in_several_entities(entities: np.ndarray) -> Entries:
    """Entries of blocks that belong to n >= 1 entities each, `entities` (n_blocks, n)."""
    n_blocks, n = entities.shape
    return Entries(
        offsets=np.arange(0, n_blocks * n + 1, n, dtype=np.int64),
        entity=entities.astype(np.int32).reshape(-1),
        x=np.ones(n_blocks * n, dtype=np.int32),
        y=np.zeros(n_blocks * n, dtype=np.int32),
    )


def listed_entries(n_blocks: int, block: np.ndarray, entity: np.ndarray) -> Entries:
    """Entries of blocks from distinct pairs (p,) of a block and an entity that contains it."""
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


class _Items(NamedTuple):
    """The items of every parent and their entries, as arrays for compiled code.

    of_parent : (n_parents + 1,) offsets of each parent's items. entries : (n_items + 1,) offsets of
    each item's entries. link : the parent's entry of the same entity. inside, rest : c and c'.
    """

    of_parent: np.ndarray
    entries: np.ndarray
    link: np.ndarray
    inside: np.ndarray
    rest: np.ndarray


class _Chain(NamedTuple):
    """The entries from the parents' geolevel to the root, whose sums a merge changes.

    of_parent : (n_parents + 1,) offsets of each parent's entries, which come first. up : position
    of the entry one geolevel higher, -1 at the root. x, y : sums as in `Entries`.
    """

    of_parent: np.ndarray
    up: np.ndarray
    x: np.ndarray
    y: np.ndarray


class _Groups(NamedTuple):
    """The groups of one parent and their sums for every entity that touches it.

    number : the position that identifies a group. size : its number of items. x, y : sums as in
    `Entries`, (n_groups, n_entities).
    """

    number: np.ndarray
    size: np.ndarray
    x: np.ndarray
    y: np.ndarray


def greedy_groups(
    items: Entries,
    ancestors: Sequence[np.ndarray],
    n_entities: int,
    fanout_cutoff: float,
    is_area: np.ndarray | None = None,
) -> np.ndarray:
    """Group items by the greedy lexicographic search of Algorithm 2.

    Every item starts in a group with its siblings that touch the same areas, cut as by
    `cut_groups`: from single items the search would fill groups with other items first. Two groups
    of one parent are merged if they fit into `group_limit` and the distances of all entities,
    sorted in descending order, do not become lexicographically larger. Sweeps over all pairs are
    repeated until a sweep changes nothing.

    A merge changes only entities that touch the parent, and two sorted vectors compare like their
    changed entries, since equal entries on both sides do not affect the order. So a merge is judged
    by the change of c and c' in the parent, carried up to the root.

    Args:
        items: entries of the items (tracts or tract subsets).
        ancestors: parents of the items, their parents, and so on up to the root; each is an
            array of non-decreasing positions in the geolevel above.
        n_entities: number of entities, including the areas outside all others.
        fanout_cutoff: see `SpineRules.fanout_cutoff`.
        is_area: (n_entities,) bool, whether an entity is an area, which decides which items start
            together; None if all are.

    Returns:
        (n_items,) int64 group of each item: the position of the group's first item.
    """
    start = cut_groups(ancestors[0], _touched_entities(items, is_area), fanout_cutoff)
    # Members are adjacent, so that groups and items list a parent's entities in the same order.
    order = np.lexsort((start, ancestors[0]))
    items, first = _reorder_entries(items, order), start[order]
    is_first = np.r_[True, first[1:] != first[:-1]]
    groups, _ = fold(items, np.r_[np.flatnonzero(is_first), len(first)], n_entities)
    item_offsets = child_offsets(ancestors[0], int(ancestors[0].max()) + 1)
    above, link = fold(items, item_offsets, n_entities)
    entries, chain = groups, []
    for parent in (ancestors[0][is_first], *ancestors[1:]):
        entries, up = fold(entries, child_offsets(parent, int(parent.max()) + 1), n_entities)
        chain.append((entries, up))
    starts = np.cumsum([0, *(len(entries.entity) for entries, _ in chain)])
    links = [up + begin for (_, up), begin in zip(chain[1:], starts[1:-1], strict=True)]
    up = np.concatenate([*links, np.full(len(chain[-1][0].entity), -1, dtype=np.int64)])
    x = np.concatenate([entries.x for entries, _ in chain])
    y = np.concatenate([entries.y for entries, _ in chain])
    position = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    limit = group_limit(np.diff(item_offsets), fanout_cutoff)
    sums = _Chain(above.offsets, up, x, y)
    members = _Items(item_offsets, items.offsets, link, items.inside(), items.rest())
    while _sweep_all(members, sums, position, limit):
        pass
    group = np.empty(len(order), dtype=np.int64)
    group[order] = position
    smallest = np.full(len(order), len(order))
    np.minimum.at(smallest, position, order)
    return smallest[group]


def _reorder_entries(items: Entries, order: np.ndarray) -> Entries:
    """The entries of the items in another order."""
    size = np.diff(items.offsets)[order]
    offsets = np.r_[0, np.cumsum(size)]
    entry = np.arange(offsets[-1]) + np.repeat(items.offsets[:-1][order] - offsets[:-1], size)
    return Entries(offsets, items.entity[entry], items.x[entry], items.y[entry])


def _touched_entities(items: Entries, is_area: np.ndarray | None) -> np.ndarray:
    """(n_items,) int64: equal numbers for items that touch the same areas."""
    item = np.repeat(np.arange(len(items.offsets) - 1), np.diff(items.offsets))
    kept = np.ones(len(item), dtype=bool) if is_area is None else is_area[items.entity]
    item, entity = item[kept], items.entity[kept]
    entity = entity[np.lexsort((entity, item))]
    offsets = np.searchsorted(item, np.arange(len(items.offsets)))
    bounds = zip(offsets[:-1], offsets[1:], strict=True)
    return pd.factorize(np.array([entity[a:b].tobytes() for a, b in bounds], dtype=object))[0]


@numba.njit(cache=True, nogil=True)
def _sweep_all(items: _Items, chain: _Chain, group: np.ndarray, limit: np.ndarray) -> bool:
    """One sweep over the pairs of groups of every parent; True if any were merged.

    `limit` (n_parents,) is the largest size of a group. The sums of the chain, and the number of
    each item's group, `group` (n_items,), are updated in place.
    """
    any_merged = False
    for parent in range(len(limit)):
        begin, end = items.of_parent[parent], items.of_parent[parent + 1]
        if np.any(group[begin:end] != group[begin]):
            groups = _groups_of(parent, items, chain, group)
            any_merged |= _sweep(parent, items, chain, groups, group, limit[parent])
    return any_merged


@numba.njit(cache=True, nogil=True)
def _groups_of(parent: int, items: _Items, chain: _Chain, group: np.ndarray) -> _Groups:
    """The groups of one parent, in the order of their numbers."""
    begin, end = items.of_parent[parent], items.of_parent[parent + 1]
    base = chain.of_parent[parent]
    n_entities = chain.of_parent[parent + 1] - base
    number = np.unique(group[begin:end])
    position = np.empty(end - begin, dtype=np.int64)
    for index in range(len(number)):
        position[number[index] - begin] = index
    size = np.zeros(len(number), dtype=np.int64)
    x = np.zeros((len(number), n_entities), dtype=np.int64)
    y = np.zeros((len(number), n_entities), dtype=np.int64)
    for item in range(begin, end):
        index = position[group[item] - begin]
        size[index] += 1
        for k in range(n_entities):
            y[index, k] += 1
        for entry in range(items.entries[item], items.entries[item + 1]):
            k = items.link[entry] - base
            x[index, k] += items.inside[entry]
            y[index, k] += items.rest[entry] - 1
    return _Groups(number, size, x, y)


@numba.njit(cache=True, nogil=True)
def _sweep(
    parent: int, items: _Items, chain: _Chain, groups: _Groups, group: np.ndarray, limit: int
) -> bool:
    """One sweep over the pairs of groups of one parent; True if any were merged.

    For each pair the changes of the distances at the root are computed first, and applied only if
    the pair is merged.
    """
    base = chain.of_parent[parent]
    x, y, size = groups.x, groups.y, groups.size
    n_groups, n_entities = x.shape
    step_x = np.empty(n_entities, dtype=np.int64)
    step_y = np.empty(n_entities, dtype=np.int64)
    old = np.empty(n_entities, dtype=np.int64)
    new = np.empty(n_entities, dtype=np.int64)
    is_alive = np.ones(n_groups, dtype=np.bool_)
    any_merged = False
    for u in range(n_groups):
        if not is_alive[u]:
            continue
        for v in range(u + 1, n_groups):
            if not is_alive[v] or size[u] + size[v] > limit:
                continue
            n_changed = 0
            for k in range(n_entities):
                x_u, y_u = x[u, k], y[u, k]
                x_v, y_v = x[v, k], y[v, k]
                x_m, y_m = x_u + x_v, y_u + y_v
                step_x[k] = min(x_m, y_m + 1) - min(x_u, y_u + 1) - min(x_v, y_v + 1)
                step_y[k] = min(y_m, x_m + 1) - min(y_u, x_u + 1) - min(y_v, x_v + 1)
                before, after = _root_change(base + k, step_x[k], step_y[k], chain, False)
                if before != after:
                    old[n_changed] = before
                    new[n_changed] = after
                    n_changed += 1
            if not _is_no_larger(new[:n_changed], old[:n_changed]):
                continue
            for k in range(n_entities):
                _root_change(base + k, step_x[k], step_y[k], chain, True)
                x[u, k] += x[v, k]
                y[u, k] += y[v, k]
            size[u] += size[v]
            is_alive[v] = False
            for item in range(items.of_parent[parent], items.of_parent[parent + 1]):
                if group[item] == groups.number[v]:
                    group[item] = groups.number[u]
            any_merged = True
    return any_merged


@numba.njit(cache=True, nogil=True)
def _root_change(
    entry: int, step_x: int, step_y: int, chain: _Chain, is_made: bool
) -> tuple[int, int]:
    """Distance of an entity before and after x and y of one of its entries change by the steps, and
    those of the entries above accordingly, which `is_made` there.

    (0, 0) if the change does not reach the root.
    """
    while True:
        x, y = chain.x[entry], chain.y[entry]
        before_c, before_rest = min(x, y + 1), min(y, x + 1)
        x, y = x + step_x, y + step_y
        after_c, after_rest = min(x, y + 1), min(y, x + 1)
        if is_made:
            chain.x[entry], chain.y[entry] = x, y
        if chain.up[entry] < 0:
            return before_c, after_c
        step_x, step_y = after_c - before_c, after_rest - before_rest
        if step_x == 0 and step_y == 0:
            return 0, 0
        entry = chain.up[entry]


@numba.njit(cache=True, nogil=True)
def _is_no_larger(new: np.ndarray, old: np.ndarray) -> bool:
    """Whether `new`, sorted in descending order, is lexicographically at most `old`."""
    new = np.sort(new)
    old = np.sort(old)
    for index in range(len(new) - 1, -1, -1):
        if new[index] != old[index]:
            return new[index] < old[index]
    return True
