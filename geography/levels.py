"""The data types of a spine: geolevels of geounits, linked by the position of the parent; bypass.

Algorithm 3 of [Spines2024]: bypass geounits where that costs no query any accuracy.

Bypassing a parent moves the shares of its children one geolevel up: the parent is replaced by one
geounit for each child, whose share is the parent's plus the child's and whose only child is that
child, now with share 0. The depth of the tree and the sum of the shares on each path do not change.

The rule: a parent with one child is always bypassed. Under pure differential privacy a parent
with c >= 2 children is bypassed too if share(child) >= (c - 1) share(parent) / 2 for the child
with the smallest share (Theorem 2), from the county down, so that neither the root nor a state is
ever split, and unless the parent's own parent would get more than `bypass_cutoff` children.
Bottom-up, one pass: a second one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from .rules import GroupRules

GROUPED_KINDS = ("optimized", "dhc")
"""Kinds of spine that form the geounits of their last geolevel but one anew, as groups of areas."""
OF_THE_SPINE = " of the spine"
"""Suffix of the name of geounits that differ from the declared areas of their geolevel."""


def level_names(kind: str, geolevels: Sequence[str]) -> dict[str, str]:
    """Names of a spine's geolevels for readers: a declared geolevel's own name only if its areas
    are the geounits, or parts of them.

    Args:
        kind: the kind of spine.
        geolevels: of the spine, root first.

    Returns:
        By geolevel, its own name, or for a regrouped one `OF_THE_SPINE`.

    >>> level_names("optimized", ("country", "obec", "section"))["obec"]
    'obec of the spine'
    """
    grouped = geolevels[-2:-1] if kind in GROUPED_KINDS else ()
    return {name: name + OF_THE_SPINE * (name in grouped) for name in geolevels}


@dataclass(frozen=True, eq=False)
class Geolevel:
    """All geounits of one geolevel, in the order of their parents.

    Children of one parent are contiguous and sorted by geocode, and `parent` never decreases.
    """

    name: str
    geocode: np.ndarray
    """(n,) object array of str, or `Texts`, which are indexed like one."""
    parent: np.ndarray
    """(n,) int64: position in the geolevel above; [-1] at the root."""
    plb_shares: tuple[Fraction, ...]
    """The distinct shares of the privacy-loss budget at this geolevel, ascending."""
    plb_share_code: np.ndarray
    """(n,) int32: index into `plb_shares`."""
    is_aian: np.ndarray
    """(n,) bool: the geounit is in the AIAN branch."""
    n_blocks: np.ndarray
    """(n,) int64: blocks below the geounit."""

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def bypassed(self) -> np.ndarray:
        """(n,) bool: the share is 0, nothing is measured here."""
        return np.array([share == 0 for share in self.plb_shares])[self.plb_share_code]

    def shares(self) -> np.ndarray:
        """(n,) float64 shares, for display and for variances; never for drawing noise."""
        return np.array([float(share) for share in self.plb_shares])[self.plb_share_code]


@dataclass(frozen=True, eq=False)
class Spine:
    """A tree of geounits with one share of the privacy-loss budget for each.

    Every path from the root to a block passes one geounit of each geolevel, and its shares add
    to exactly 1.
    """

    kind: str
    geolevels: tuple[Geolevel, ...]
    """Root first, "Block" last."""
    block_geocode: np.ndarray
    """(n_blocks,) 16-digit code of each Block geounit, in the Block level's order: an object array
    or `Texts`."""
    block_row: np.ndarray
    """(n_blocks,) int64: row of the geography frame that each Block geounit comes from."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the geolevels, root first."""
        return tuple(level.name for level in self.geolevels)

    @cached_property
    def level_names(self) -> dict[str, str]:
        """Names of the geolevels for readers; see the function of this name."""
        return level_names(self.kind, self.names)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.block_row)

    def geolevel(self, name: str) -> Geolevel:
        """The geolevel of this name; KeyError if it does not exist."""
        return self.geolevels[self._index(name)]

    def children(self, name: str) -> np.ndarray:
        """Offsets (n_parents + 1,): children of geounit i of geolevel `name` are at positions
        offsets[i] up to offsets[i + 1] of the geolevel below. ValueError for the last geolevel.
        """
        index = self._index(name)
        if index + 1 == len(self.geolevels):
            raise ValueError(f"'{name}' is the last geolevel and has no children")
        return child_offsets(self.geolevels[index + 1].parent, len(self.geolevels[index]))

    def blocks_below(self, name: str, start: int, stop: int) -> slice:
        """Positions of the blocks below geounits `start` to `stop` of geolevel `name`; they are
        contiguous.
        """
        for level in self.geolevels[self._index(name) + 1 :]:
            start, stop = np.searchsorted(level.parent, (start, stop))
        return slice(int(start), int(stop))

    def ancestors(self, name: str, blocks: slice = slice(None)) -> np.ndarray:
        """Position at geolevel `name` of the ancestor of each block, or of those in `blocks`."""
        position = np.arange(*blocks.indices(len(self.geolevels[-1])), dtype=np.int64)
        for level in reversed(self.geolevels[self._index(name) + 1 :]):
            position = level.parent[position]
        return position

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"the spine has no geolevel '{name}'; it has {', '.join(self.names)}")
        return self.names.index(name)


def nested_spine(
    kind: str,
    numbers: Mapping[str, np.ndarray],
    shares: Mapping[str, Fraction],
    is_branch: np.ndarray,
    geocodes: Callable[[str, np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    block_geocodes: Callable[[np.ndarray], np.ndarray],
    rules: GroupRules,
    is_pure: bool,
) -> Spine:
    """The spine of numbered geounits, after the bypass if the rules have it.

    Args:
        numbers: by geolevel, (n_rows,) the geounit of each row, numbered through the parents.
        shares: by geolevel, root first.
        is_branch: (n_rows,) bool: the row is in the AIAN branch.
        geocodes: called for one geolevel after the other, root first, with its name, a row and the
            parent of each geounit, and the geocodes of the geolevel above; gives the geocodes.
        block_geocodes: gives the geocodes of the blocks of some rows.
    """
    order = np.argsort(numbers[list(shares)[-1]])
    geolevels: list[Geolevel] = []
    above = np.zeros(len(order), dtype=np.int64)
    codes = np.array([""], dtype=object)
    for name, share in shares.items():
        number = numbers[name][order]
        first = np.flatnonzero(np.r_[True, number[1:] != number[:-1]])
        parent, row = above[first], order[first]
        codes = geocodes(name, row, parent, codes)
        geolevels.append(
            Geolevel(
                name=name,
                geocode=codes,
                parent=parent if geolevels else np.array([-1], dtype=np.int64),
                plb_shares=(share,),
                plb_share_code=np.zeros(len(first), dtype=np.int32),
                is_aian=is_branch[row] if geolevels else np.zeros(1, dtype=bool),
                n_blocks=np.diff(np.r_[first, len(order)]),
            )
        )
        above = number
    found = tuple(geolevels)
    if rules.bypass:
        found = bypass(found, rules, is_pure=is_pure)
    if not shares_add_to_one(found):
        raise AssertionError("the shares of a path do not add to 1")
    return Spine(kind, found, block_geocodes(order), order)


def child_offsets(parent: np.ndarray, n_parents: int) -> np.ndarray:
    """Offsets (n_parents + 1,) into children whose `parent` positions never decrease."""
    offsets = np.zeros(n_parents + 1, dtype=np.int64)
    np.cumsum(np.bincount(parent, minlength=n_parents), out=offsets[1:])
    return offsets


def distinct_paths(geolevels: tuple[Geolevel, ...]) -> list[tuple[Fraction, ...]]:
    """The shares along the paths from the root to the blocks, each sequence once.

    Paths are grouped geolevel by geolevel, so that the work is one pass over the geounits.
    """
    paths: list[tuple[Fraction, ...]] = [(share,) for share in geolevels[0].plb_shares]
    code = geolevels[0].plb_share_code.astype(np.int64)
    for level in geolevels[1:]:
        width = len(level.plb_shares)
        pair = code[level.parent] * width + level.plb_share_code
        distinct, code = np.unique(pair, return_inverse=True)
        paths = [(*paths[key // width], level.plb_shares[key % width]) for key in distinct.tolist()]
    return paths


def shares_add_to_one(geolevels: tuple[Geolevel, ...]) -> bool:
    """Whether the shares along every path from the root to a block add to exactly 1."""
    return all(sum(path) == 1 for path in distinct_paths(geolevels))


def bypass(
    geolevels: tuple[Geolevel, ...], rules: GroupRules, *, is_pure: bool
) -> tuple[Geolevel, ...]:
    """Geolevels after Algorithm 3, root first.

    A geounit that takes the place of a parent with one child keeps the parent's geocode; the
    geounits that take the place of a parent with several children get their child's geocode.

    Example: under zCDP the shares (1/2, 1/4, 1/4) on the path of a county, its only tract and
    the tract's blocks become (3/4, 0, 1/4).
    """
    levels = list(geolevels)
    for index in range(len(levels) - 2, -1, -1):
        parents, children = levels[index], levels[index + 1]
        offsets = child_offsets(children.parent, len(parents))
        n_children = np.diff(offsets)
        is_bypassed = n_children == 1
        if is_pure and index > 0 and parents.name not in rules.never_split:
            siblings = np.bincount(parents.parent, minlength=len(levels[index - 1]))
            is_bypassed |= _rule_of_theorem_2(parents, children, offsets, siblings, rules)
        levels[index : index + 2] = _bypass_parents(parents, children, n_children, is_bypassed)
    return tuple(levels)


def _rule_of_theorem_2(
    parents: Geolevel,
    children: Geolevel,
    offsets: np.ndarray,
    n_siblings: np.ndarray,
    rules: GroupRules,
) -> np.ndarray:
    """(n_parents,) bool: parents with two or more children to be bypassed.

    `n_siblings` is the number of children of each parent's own parent, and grows with each parent
    that is bypassed. A parent whose share is 0 stays.
    """
    n_children = np.diff(offsets)
    smallest_child_code = np.minimum.reduceat(children.plb_share_code, offsets[:-1])
    cases = np.stack([parents.plb_share_code, smallest_child_code, n_children], axis=1)
    distinct, case = np.unique(cases, axis=0, return_inverse=True)
    allowed = np.array(
        [
            count >= 2
            and parents.plb_shares[parent] > 0
            and 2 * children.plb_shares[child] >= (count - 1) * parents.plb_shares[parent]
            for parent, child, count in distinct.tolist()
        ]
    )[case.reshape(-1)]
    if rules.bypass_cutoff is not None:
        for position in np.flatnonzero(allowed):
            above = parents.parent[position]
            n_after = n_siblings[above] - 1 + n_children[position]
            if n_after > rules.bypass_cutoff:
                allowed[position] = False
            else:
                n_siblings[above] = n_after
    return allowed


def _bypass_parents(
    parents: Geolevel, children: Geolevel, n_children: np.ndarray, is_bypassed: np.ndarray
) -> tuple[Geolevel, Geolevel]:
    """The two geolevels after the marked parents have been bypassed."""
    is_split = is_bypassed & (n_children > 1)
    n_after = np.where(is_split, n_children, 1)
    source = np.repeat(np.arange(len(parents)), n_after)
    first_child = child_offsets(children.parent, len(parents))[:-1]
    rank = np.arange(len(source)) - np.repeat(np.cumsum(n_after) - n_after, n_after)
    child = first_child[source] + rank
    split, moved = is_split[source], is_bypassed[source]

    width = len(children.plb_shares) + 1
    pair = parents.plb_share_code[source].astype(np.int64) * width
    pair[moved] += children.plb_share_code[child[moved]] + 1
    moves = (Fraction(0), *children.plb_shares)
    sums = [share + moved_up for share in parents.plb_shares for moved_up in moves]
    shares, code = encode_shares(sums, pair)
    geocode = parents.geocode[source]
    geocode[split] = children.geocode[child[split]]
    n_blocks = parents.n_blocks[source]
    n_blocks[split] = children.n_blocks[child[split]]
    parents_after = Geolevel(
        name=parents.name,
        geocode=geocode,
        parent=parents.parent[source],
        plb_shares=shares,
        plb_share_code=code,
        is_aian=np.where(split, children.is_aian[child], parents.is_aian[source]),
        n_blocks=n_blocks,
    )

    child_moved = is_bypassed[children.parent]
    code = np.where(child_moved, len(children.plb_shares), children.plb_share_code)
    shares, code = encode_shares([*children.plb_shares, Fraction(0)], code)
    parent = (np.cumsum(n_after) - n_after)[children.parent]
    parent += np.where(
        is_split[children.parent], np.arange(len(children)) - first_child[children.parent], 0
    )
    children_after = replace(
        children,
        parent=parent,
        plb_shares=shares,
        plb_share_code=code,
    )
    return parents_after, children_after


def encode_shares(
    shares: list[Fraction], code: np.ndarray
) -> tuple[tuple[Fraction, ...], np.ndarray]:
    """Distinct used shares, ascending, and the codes into them.

    Args:
        shares: shares that `code` points into; equal ones may occur several times.
        code: (n,) integer index into `shares`.
    """
    used, place = np.unique(code, return_inverse=True)
    own = [shares[index] for index in used.tolist()]
    distinct = sorted(set(own))
    recode = np.array([distinct.index(share) for share in own], dtype=np.int32)
    return tuple(distinct), recode[place.reshape(-1)]
