"""The data types of a spine: geolevels of geounits, linked by the position of the parent.

The error for a geography that cannot be made into a spine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np


class GeographyRefused(ValueError):
    """Geography, shares or spine rules cannot be used; the text is one public sentence.

    Geography is public, so the sentence names codes, columns and geolevels freely. Group-quarters
    facility counts, the only other input, never appear in it.
    """


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
    bypassed: np.ndarray
    """(n,) bool: the share is 0, nothing is measured here."""
    n_blocks: np.ndarray
    """(n,) int64: blocks below the geounit."""

    def __len__(self) -> int:
        return len(self.parent)

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


def nested_geolevels(
    numbers: Mapping[str, np.ndarray],
    shares: Mapping[str, Fraction],
    is_branch: np.ndarray,
    geocodes: Callable[[str, np.ndarray, np.ndarray], np.ndarray],
) -> tuple[tuple[Geolevel, ...], np.ndarray]:
    """Geolevels from numbered geounits, and the rows in the order of the last one.

    Args:
        numbers: by geolevel, (n_rows,) the geounit of each row, numbered through the parents.
        shares: by geolevel, root first.
        is_branch: (n_rows,) bool: the row is in the AIAN branch.
        geocodes: called for one geolevel after the other, root first, with its name, and a row and
            the parent of each geounit; gives the geocodes.
    """
    order = np.argsort(numbers[list(shares)[-1]])
    geolevels: list[Geolevel] = []
    above = np.zeros(len(order), dtype=np.int64)
    for name, share in shares.items():
        number = numbers[name][order]
        first = np.flatnonzero(np.r_[True, number[1:] != number[:-1]])
        parent, row = above[first], order[first]
        geolevels.append(
            Geolevel(
                name=name,
                geocode=geocodes(name, row, parent),
                parent=parent if geolevels else np.array([-1], dtype=np.int64),
                plb_shares=(share,),
                plb_share_code=np.zeros(len(first), dtype=np.int32),
                is_aian=is_branch[row] if geolevels else np.zeros(1, dtype=bool),
                bypassed=np.zeros(len(first), dtype=bool),
                n_blocks=np.diff(np.r_[first, len(order)]),
            )
        )
        above = number
    return tuple(geolevels), order


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
