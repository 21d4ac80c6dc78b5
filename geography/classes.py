"""A spine, and areas on it, with geounits of equal structure merged into classes.

Variances of estimates depend on how often and how precisely things are measured, and not on counts.
Two geounits whose subtrees can have the same cells and are measured alike, child for child, have
equal variances: they form one *class*. From the blocks up, a class of geounits is identified by
their measurements and their number of children of each class. The class of an area's part within a
geounit is identified by the geounit's class and the classes of the parts in its children. A state
of 18,000 blocks has some 300 classes; `geography.variance` computes with these.

Classes of children are compared by the sum of two random numbers of 64 bits a child: two different
multisets would be taken for one with a probability of 2^-128.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .levels import Spine, child_offsets

NOT_MEASURED = 0
"""Row of the information of unmeasured geounits."""


@dataclass(frozen=True, eq=False)
class GeounitClasses:
    """Classes of a geolevel's geounits, or of the sums of some of them that are known.

    information : (C,) rows of `ClassedSpine.information`.
    children : (C, classes below) number of children of each class; None for blocks.
    is_exact : whether the totals are known exactly.
    """

    information: np.ndarray
    children: sparse.csr_array | None
    is_exact: bool

    def __len__(self) -> int:
        return len(self.information)


@dataclass(frozen=True, eq=False)
class PartClasses:
    """Classes of parts of areas in the geounits of some `GeounitClasses`.

    owner : (E,) class of the geounit.
    parts : (E, classes below) number of the children's parts of each class; None where the parts
        are whole blocks.
    weight : (E,) number of areas with a part of the class.
    """

    owner: np.ndarray
    parts: sparse.csr_array | None
    weight: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassedAreas:
    """The parts of areas in the geounits of every rung.

    area : (n_areas,) the areas that have blocks, ascending. code : (n_areas,) class of each at the
    root.
    """

    rungs: tuple[PartClasses, ...]
    area: np.ndarray
    code: np.ndarray

    @property
    def n_areas(self) -> int:
        """Number of areas with blocks."""
        return len(self.area)


@dataclass(frozen=True, eq=False)
class ClassedSpine:
    """Classes of a spine's geounits.

    cells : (classes of blocks, n) bool, the cells that a block can have.
    information : (rows, kinds) how often each kind is measured of a geounit of that row.
    rungs : blocks first, root last; a rung of exact totals is above the rung of its geounits.
    codes : of each rung, the class of every geounit.
    parents : of each rung but the last, every geounit's parent on the next.
    """

    cells: np.ndarray
    information: sparse.csr_array
    rungs: tuple[GeounitClasses, ...]
    codes: tuple[np.ndarray, ...]
    parents: tuple[np.ndarray, ...]

    @classmethod
    def build(
        cls,
        spine: Spine,
        kinds: Sequence[np.ndarray],
        cells: np.ndarray,
        *,
        known: Mapping[str, np.ndarray] | None = None,
        is_part: bool = False,
    ) -> ClassedSpine:
        """The classes of a spine.

        Measurements of an only child's parent also measure the child, since their counts are equal;
        here all are assigned to the child.

        Args:
            kinds: by geolevel, root first, (n,) the kind in which each geounit is measured, -1 for
                none. Numbers of kinds go through all geolevels.
            cells: (n_blocks, n) bool, cells that each block can have.
            known: by geolevel, a number for each of its geounits: the sum of the totals of all
                geounits of one number, which share a parent, is known exactly.
            is_part: the root has children outside the spine; see
                `geography.variance.Covariances.of`.

        Raises ValueError for a known sum of geounits of several parents.
        """
        known = known or {}
        information, measured = _propagate_measurements(spine, kinds, is_part=is_part)
        packed = np.packbits(cells, axis=1)
        padded = np.zeros((len(cells), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : packed.shape[1]] = packed
        code, first = _alike((measured[-1], *padded.view(np.uint64).T))
        rungs = [GeounitClasses(measured[-1][first], None, False)]
        codes, parents = [code], []

        def add(parent: np.ndarray, row: np.ndarray, is_exact: bool) -> None:
            """Add the geounits above the last rung; `parent` maps the last rung's geounits to
            them.
            """
            order = np.argsort(parent, kind="stable")
            offsets = child_offsets(parent[order], len(row))
            below = codes[-1][order]
            code, first = _group_equal(row, offsets, below)
            children = _count_classes(offsets, below, first, len(rungs[-1]))
            rungs.append(GeounitClasses(row[first], children, is_exact))
            parents.append(parent)
            codes.append(code)

        for depth in range(len(spine.geolevels) - 1, -1, -1):
            level = spine.geolevels[depth]
            above = level.parent
            if level.name in known:
                number, above = _sums_and_parents(known[level.name], above)
                add(number, np.full(len(above), NOT_MEASURED), True)
            if depth:
                add(above, measured[depth - 1], False)
        return cls(cells[first], information, tuple(rungs), tuple(codes), tuple(parents))

    def areas(self, area: np.ndarray) -> ClassedAreas:
        """Areas of blocks, by the area (n_blocks,) of each block, -1 for none."""
        unit = np.flatnonzero(area >= 0)
        area = area[unit]
        part = self.codes[0][unit]
        found: list[tuple[np.ndarray, sparse.csr_array | None]]
        found = [(np.arange(len(self.rungs[0])), None)]
        for rung, parent in enumerate(self.parents, 1):
            above = parent[unit]
            order = np.lexsort((area, above))
            above, area, part = above[order], area[order], part[order]
            is_new = np.diff(above, prepend=-1) != 0
            starts = np.flatnonzero(is_new | (np.diff(area, prepend=-1) != 0))
            offsets = np.append(starts, len(part))
            unit, area = above[starts], area[starts]
            owner = self.codes[rung][unit]
            code, first = _group_equal(owner, offsets, part)
            found.append((owner[first], _count_classes(offsets, part, first, len(found[-1][0]))))
            part = code
        order = np.argsort(area, kind="stable")
        weight = np.bincount(part, minlength=len(found[-1][0])).astype(np.float64)
        rungs = []
        for owner, parts in reversed(found):
            rungs.append(PartClasses(owner, parts, weight))
            if parts is not None:
                weight = parts.T @ weight
        return ClassedAreas(tuple(reversed(rungs)), area[order], part[order])


def _sums_and_parents(number: np.ndarray, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum that each geounit is in, counted from 0, and the one parent of each sum."""
    _, first, place = np.unique(number, return_index=True, return_inverse=True)
    place, above = place.reshape(-1), parent[first]
    if (above[place] != parent).any():
        raise ValueError("a sum that is known is one of geounits of several parents")
    return place, above


def _propagate_measurements(
    spine: Spine, kinds: Sequence[np.ndarray], *, is_part: bool
) -> tuple[sparse.csr_array, list[np.ndarray]]:
    """How often each kind is measured, (rows, kinds), and each geounit's row; measurements of an
    only child's parent are assigned to the child.
    """
    n_kinds = 1 + max(int(own.max(initial=-1)) for own in kinds)
    rows: dict[tuple[int, ...], int] = {(): NOT_MEASURED}
    of_row: list[tuple[int, ...]] = [()]

    def row_of(measured: tuple[int, ...]) -> int:
        if measured not in rows:
            rows[measured] = len(of_row)
            of_row.append(measured)
        return rows[measured]

    lookup = np.array([row_of((kind,)) for kind in range(n_kinds)] + [NOT_MEASURED])
    codes = [lookup[own] for own in kinds]
    for depth, level in enumerate(spine.geolevels[1:], 1):
        if depth == 1 and is_part:
            continue
        n_children = np.bincount(level.parent, minlength=len(codes[depth - 1]))
        single = np.flatnonzero(n_children[level.parent] == 1)
        above = level.parent[single]
        n_rows = len(of_row)
        pairs, place = np.unique(
            codes[depth - 1][above] * n_rows + codes[depth][single], return_inverse=True
        )
        joined = np.array(
            [row_of(of_row[p // n_rows] + of_row[p % n_rows]) for p in pairs.tolist()]
        )
        if len(joined):
            codes[depth][single] = joined[place.reshape(-1)]
        codes[depth - 1][above] = NOT_MEASURED
    sizes = [len(measured) for measured in of_row]
    column = np.array([kind for measured in of_row for kind in measured], dtype=np.int64)
    where = np.repeat(np.arange(len(of_row)), sizes), column
    counted = sparse.coo_array((np.ones(len(column)), where), shape=(len(of_row), n_kinds))
    return sparse.csr_array(counted), codes


def _group_equal(
    known: np.ndarray, offsets: np.ndarray, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Class of each of n things, and the first of each class, by their `known` (n,) properties and
    the multiset of `below[offsets[i]:offsets[i + 1]]`, which is not empty.
    """
    if not len(known):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    names = np.random.default_rng(0).integers(0, 1 << 64, (2, below.max() + 1), dtype=np.uint64)
    return _alike((known, *(np.add.reduceat(own[below], offsets[:-1]) for own in names)))


def _alike(keys: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number of each thing, equal for things with all keys (n,) equal, and the first thing of each
    number.
    """
    order = np.lexsort(keys)
    is_new = np.zeros(len(order), dtype=bool)
    is_new[0] = True
    for own in keys:
        ordered = own[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    code = np.empty(len(order), dtype=np.int64)
    code[order] = np.cumsum(is_new) - 1
    return code, order[is_new]


def _count_classes(
    offsets: np.ndarray, below: np.ndarray, chosen: np.ndarray, n_below: int
) -> sparse.csr_array:
    """(chosen, n_below) number of each class below each chosen thing."""
    shape = len(offsets) - 1, n_below
    counted = sparse.csr_array((np.ones(len(below)), below, offsets), shape=shape)[chosen]
    counted.sum_duplicates()
    return counted
