"""A spine whose geounits of equal structure are taken together, and the areas that are asked about.

Before any noise is drawn, the variances of estimates depend on how often and how precisely things
are measured, and not on counts. Two geounits whose subtrees can have the same cells and are
measured alike, child for child, have equal variances: they form one *class*. From the blocks up, a
class of geounits is told by what is measured of them and by how many children of each class they
have. The same holds for the part of an area that lies in a geounit: its class is told by the
geounit's and by those of the parts in the children.

Under the discrete Gaussian mechanism a geounit is measured with the shares of one or more geolevels
and the query shares of its own (`MeasurementKind`), for the bypass gives a parent with one child
the share of the child. What is measured of an only child's parent is measured of the child, since
their counts are the same; here the child is given all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import sparse

from ....geography.levels import Spine, child_offsets

NOT_MEASURED = 0
"""Number of the information of geounits of which nothing is measured."""


@dataclass(frozen=True)
class MeasurementKind:
    """Geounits of geolevel `depth` that are measured with the shares of the geolevels `shares`."""

    depth: int
    shares: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class UnitClasses:
    """Classes of a geolevel's geounits, or of the states that these are parts of.

    cells : (C, n) bool, core cells that the geounits can have.
    information : (C,) row of `ClassedSpine.information`.
    children : (C, classes below) how many children of each class; None of blocks.
    is_exact : whether the totals are known exactly.
    """

    cells: np.ndarray
    information: np.ndarray
    children: sparse.csr_array | None
    is_exact: bool

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, eq=False)
class PartClasses:
    """Classes of parts of areas in the geounits of some `UnitClasses`.

    owner : (E,) class of the geounit.
    parts : (E, classes below) how many parts of each class the children have; None where the parts
        are whole blocks.
    weight : (E,) how many areas' parts are of the class.
    """

    owner: np.ndarray
    parts: sparse.csr_array | None
    weight: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassedAreas:
    """The parts of areas in the geounits of every rung, and how many areas there are."""

    rungs: tuple[PartClasses, ...]
    n_areas: int


@dataclass(frozen=True, eq=False)
class ClassedSpine:
    """Classes of a spine's geounits.

    kinds : the ways in which geounits are measured.
    information : (n, kinds) how often each kind is measured of a geounit of that information.
    rungs : blocks first, root last; rungs of exact totals stand above those they are of.
    codes : of each rung, the class of every geounit.
    parents : of each rung but the last, every geounit's parent on the next.
    """

    kinds: tuple[MeasurementKind, ...]
    information: sparse.csr_array
    rungs: tuple[UnitClasses, ...]
    codes: tuple[np.ndarray, ...]
    parents: tuple[np.ndarray, ...]

    @classmethod
    def build(
        cls,
        spine: Spine,
        geolevel_shares: Mapping[str, Fraction],
        cells: np.ndarray,
        *,
        blocks_exact: bool = False,
        state: np.ndarray | None = None,
    ) -> ClassedSpine:
        """The classes of a spine under the discrete Gaussian mechanism.

        Args:
            geolevel_shares: those that the spine was built with.
            cells: (n_blocks, n) bool, core cells that each block can have.
            blocks_exact: whether the total of every block is known exactly.
            state: (n,) state of each geounit of the geolevel "State", whose totals are known
                exactly; None where they are not.

        Raises ValueError if the spine's shares are not those that the bypass leaves.
        """
        kinds, information, measured = _measured(spine, geolevel_shares)
        rungs: list[UnitClasses] = []
        codes: list[np.ndarray] = []
        parents: list[np.ndarray] = []

        def add(parent: np.ndarray, known: np.ndarray, is_exact: bool) -> None:
            """Add the geounits above the last rung, `parent` being those of its geounits."""
            n = int(parent.max()) + 1
            offsets = child_offsets(np.sort(parent), n)
            order = np.argsort(parent, kind="stable")
            below = codes[-1][order]
            code, first = _grouped(known, offsets, below)
            children = _counted(offsets, below, first, len(rungs[-1]))
            can_have = (children @ rungs[-1].cells.astype(np.int64)) > 0
            rungs.append(UnitClasses(can_have, known[first], children, is_exact))
            parents.append(parent)
            codes.append(code)

        last = len(spine.geolevels) - 1
        patterns, pattern = np.unique(cells, axis=0, return_inverse=True)
        pairs, code = np.unique(
            measured[last] * len(patterns) + pattern.reshape(-1), return_inverse=True
        )
        rungs.append(
            UnitClasses(patterns[pairs % len(patterns)], pairs // len(patterns), None, False)
        )
        codes.append(code.reshape(-1))
        if blocks_exact:
            each = np.arange(spine.n_blocks)
            add(each, np.full(spine.n_blocks, NOT_MEASURED), True)
        for depth in range(last, -1, -1):
            level = spine.geolevels[depth]
            above = level.parent
            if level.name == "State" and state is not None:
                n_states = int(state.max()) + 1
                add(state, np.full(n_states, NOT_MEASURED), True)
                above = np.zeros(n_states, dtype=np.int64)
                above[state] = level.parent
            if depth:
                add(above, measured[depth - 1], False)
        return cls(kinds, information, tuple(rungs), tuple(codes), tuple(parents))

    def areas(self, area: np.ndarray) -> ClassedAreas:
        """Areas of blocks, by the area (n_blocks,) of each block, -1 for none."""
        unit = np.flatnonzero(area >= 0)
        names, area = np.unique(area[unit], return_inverse=True)
        area = area.reshape(-1)
        part = self.codes[0][unit]
        found: list[tuple[np.ndarray, sparse.csr_array | None]]
        found = [(np.arange(len(self.rungs[0])), None)]
        for rung, parent in enumerate(self.parents, 1):
            above = parent[unit]
            order = np.lexsort((part, area, above))
            above, area, part = above[order], area[order], part[order]
            starts = np.flatnonzero(np.diff(above, prepend=-1) | np.diff(area, prepend=-1))
            offsets = np.append(starts, len(part))
            unit, area = above[starts], area[starts]
            owner = self.codes[rung][unit]
            code, first = _grouped(owner, offsets, part)
            found.append((owner[first], _counted(offsets, part, first, len(found[-1][0]))))
            part = code
        return _weighted(found, np.bincount(part), len(names))


def _measured(
    spine: Spine, geolevel_shares: Mapping[str, Fraction]
) -> tuple[tuple[MeasurementKind, ...], sparse.csr_array, list[np.ndarray]]:
    """The kinds, the information matrix, and the row of it of each geounit of every geolevel."""
    shares = [geolevel_shares[name] for name in spine.names]
    masks = [np.full(len(level), 1 << depth) for depth, level in enumerate(spine.geolevels)]
    is_single = [
        np.bincount(children.parent, minlength=len(level))[children.parent] == 1
        for level, children in zip(spine.geolevels, spine.geolevels[1:], strict=False)
    ]
    # A geolevel without a share is not bypassed, but not measured.
    if any(
        share and level.bypassed.any() for share, level in zip(shares, spine.geolevels, strict=True)
    ):
        for depth in range(len(spine.geolevels) - 1, 0, -1):
            single = is_single[depth - 1]
            masks[depth - 1][spine.geolevels[depth].parent[single]] |= masks[depth][single]
            masks[depth][single] = 0
    kinds: list[MeasurementKind] = []
    rows: list[tuple[int, ...]] = [()]
    codes = []
    for depth, (level, mask) in enumerate(zip(spine.geolevels, masks, strict=True)):
        pairs = np.unique(np.stack([mask, level.plb_share_code]), axis=1).T.tolist()
        code = np.zeros(len(level), dtype=np.int64)
        for bits, share in pairs:
            own = tuple(place for place in range(len(shares)) if bits >> place & 1)
            if level.plb_shares[share] != sum((shares[place] for place in own), Fraction(0)):
                raise ValueError(f"shares of {level.name} are not those that a bypass leaves")
            if own:
                code[mask == bits] = len(rows)
                rows.append((len(kinds),))
                kinds.append(MeasurementKind(depth, own))
        codes.append(code)
    for depth, level in enumerate(spine.geolevels[1:], 1):
        single = is_single[depth - 1]
        pairs, place = np.unique(
            np.stack([codes[depth - 1][level.parent[single]], codes[depth][single]]),
            axis=1,
            return_inverse=True,
        )
        joined = np.empty(pairs.shape[1], dtype=np.int64)
        for number, (above, own) in enumerate(pairs.T.tolist()):
            row = rows[above] + rows[own]
            if row not in rows:
                rows.append(row)
            joined[number] = rows.index(row)
        codes[depth][single] = joined[place.reshape(-1)]
        codes[depth - 1][level.parent[single]] = NOT_MEASURED
    information = np.zeros((len(rows), len(kinds)))
    for number, row in enumerate(rows):
        np.add.at(information[number], list(row), 1.0)
    return tuple(kinds), sparse.csr_array(information), codes


def _grouped(
    known: np.ndarray, offsets: np.ndarray, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Class of each of n things, and the first of each class, by what is `known` (n,) of them and
    the multiset of `below[offsets[i]:offsets[i + 1]]`."""
    n = len(known)
    owner = np.repeat(np.arange(n), np.diff(offsets))
    ordered = np.ascontiguousarray(below[np.lexsort((below, owner))], dtype=np.int64)
    classes: dict[tuple[int, bytes], int] = {}
    code = np.empty(n, dtype=np.int64)
    first: list[int] = []
    data, width = ordered.tobytes(), ordered.itemsize
    ends = (offsets * width).tolist()
    for number, of_own in enumerate(known.tolist()):
        key = (of_own, data[ends[number] : ends[number + 1]])
        found = classes.setdefault(key, len(classes))
        if found == len(first):
            first.append(number)
        code[number] = found
    return code, np.array(first)


def _counted(
    offsets: np.ndarray, below: np.ndarray, chosen: np.ndarray, n_below: int
) -> sparse.csr_array:
    """(chosen, n_below) how many of each class stand below the chosen things."""
    sizes = offsets[chosen + 1] - offsets[chosen]
    row = np.repeat(np.arange(len(chosen)), sizes)
    before = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.repeat(offsets[chosen], sizes) + np.arange(len(row)) - before
    counted = sparse.coo_array(
        (np.ones(len(row)), (row, below[place])), shape=(len(chosen), n_below)
    )
    return sparse.csr_array(counted)


def _weighted(
    found: list[tuple[np.ndarray, sparse.csr_array | None]],
    at_root: np.ndarray,
    n_areas: int,
) -> ClassedAreas:
    """Parts with their weights, those at the root being given."""
    weight = at_root.astype(np.float64)
    rungs = []
    for owner, parts in reversed(found):
        rungs.append(PartClasses(owner, parts, weight))
        if parts is not None:
            weight = parts.T @ weight
    return ClassedAreas(tuple(reversed(rungs)), n_areas)
