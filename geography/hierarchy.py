"""From the geography frame to nested geounits and their spine geocodes.

Everything works on integer codes for whole columns; text is made once per geolevel at the end.

Nested public areas: levels of areas, each in the order of the areas above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .levels import child_offsets
from .rules import GeographyRefused

CONVENTIONAL_DIGITS = {"State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 16}
"""Leading digits of the block geocode that name a geounit of the conventional spine."""


class BlockCodes:
    """The parts of the 16-digit block geocodes, one entry per row of the geography frame.

    geocode : (n,) int64, the 16 digits as a number, strictly ascending.
    state, county_fips : (n,) int64, FIPS code of two and of three digits.
    county, tract, block_group : running numbers of the distinct geocode prefixes, so that equal
        numbers mean the same geounit nationwide.
    """

    def __init__(self, geography: pd.DataFrame) -> None:
        """Split the column `block_geocode` (state 2, county 3, tract 6, block group 1, block 4).

        Raises GeographyRefused for an empty frame, a missing column, a geocode that is not 16
        digits, a repeated block, and rows that are not sorted.
        """
        text = text_column(geography, "block_geocode")
        if len(text) == 0:
            raise GeographyRefused("the geography has no block that can hold anybody")
        wrong = ~text.str.fullmatch("[0-9]{16}").to_numpy(bool)
        if wrong.any():
            raise GeographyRefused(
                f"block geocode '{text.iloc[int(np.argmax(wrong))]}' in the geography does not "
                "have 16 digits (state 2, county 3, tract 6, block group 1, block 4)"
            )
        geocode = text.astype("int64").to_numpy()
        step = np.diff(geocode)
        if (step == 0).any():
            raise GeographyRefused(
                f"block {geocode[int(np.argmax(step == 0))]:016d} is repeated in the geography; "
                "a block belongs to one county, tract and block group"
            )
        if (step < 0).any():
            raise GeographyRefused("the geography must be sorted by block_geocode")
        self.geocode = geocode
        self.state = geocode // 10**14
        self.county = _number_distinct(geocode // 10**11)
        self.county_fips = geocode // 10**11 % 1000
        self.tract = _number_distinct(geocode // 10**5)
        self.block_group = _number_distinct(geocode // 10**4)


def text_column(geography: pd.DataFrame, column: str) -> pd.Series:
    """A column of text without gaps.

    Raises GeographyRefused if the column is absent, has missing values or mixes types.
    """
    if column not in geography.columns:
        present = ", ".join(map(str, geography.columns))
        raise GeographyRefused(
            f"the geography has no column '{column}' of text or numbers (it has {present}); add it "
            "or take it out of the spine settings"
        )
    values = geography[column]
    if values.isna().any():
        raise GeographyRefused(
            f"column '{column}' of the geography has missing values; fill blocks outside any "
            "entity with 9999 or 99999"
        )
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype)
    if values.dtype == object:
        kinds = set(map(type, values))
        if kinds - {str}:
            names = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise GeographyRefused(
                f"column '{column}' of the geography holds {names} values; make them all text"
            )
        return values.astype("str")
    if not isinstance(values.dtype, pd.StringDtype):
        raise GeographyRefused(
            f"column '{column}' of the geography has the type {values.dtype}; make it text, "
            "since codes have leading zeros"
        )
    return values


def _number_distinct(sorted_codes: np.ndarray) -> np.ndarray:
    """(n,) int64: 0 for the first distinct value, 1 for the next, and so on."""
    number = np.zeros(len(sorted_codes), dtype=np.int64)
    np.cumsum(sorted_codes[1:] != sorted_codes[:-1], out=number[1:])
    return number


def group_equally(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two numberings (n,) group the rows equally, and omit none.

    >>> bool(group_equally(np.array([0, 0, 1]), np.array([5, 5, 2])))
    True
    """
    if (first < 0).any():
        return False
    partner = np.full(int(first.max(initial=-1)) + 1, -1, dtype=np.int64)
    partner[first] = second
    if (partner[first] != second).any():
        return False
    own = partner[partner >= 0]
    return len(own) == np.count_nonzero(np.bincount(own, minlength=1))


def nest(parent: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Number the distinct combinations of parent and keys in ascending order.

    Args:
        parent: (n,) int64 position of each row's parent geounit.
        keys: (n,) non-negative integers, major key first.

    Returns:
        (n,) int64 running numbers; rows of one parent get consecutive numbers.
    """
    number = parent
    for key in keys:
        width = int(key.max(initial=0)) + 1
        combined = number * width
        combined += key
        if (combined[1:] >= combined[:-1]).all():
            number = _number_distinct(combined)
        else:
            number = np.unique(combined, return_inverse=True)[1]
    return number


def first_rows(number: np.ndarray, n: int) -> np.ndarray:
    """(n,) int64: the first row that carries each of the numbers 0 .. n - 1."""
    first = np.empty(n, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    return first


def ranks_within(parent: np.ndarray) -> np.ndarray:
    """(n,) int64: 0, 1, ... within each run of equal, non-decreasing parents."""
    starts = np.flatnonzero(np.r_[True, parent[1:] != parent[:-1]])
    lengths = np.diff(np.r_[starts, len(parent)])
    return np.arange(len(parent)) - np.repeat(starts, lengths)


def group_limit(n: np.ndarray, fanout_cutoff: float) -> np.ndarray:
    """Largest size of a group, floor(sqrt(n) + fanout_cutoff), at least 1.

    Args:
        n: candidates under each parent.
    """
    return np.maximum(np.floor(np.sqrt(n) + fanout_cutoff).astype(np.int64), 1)


def cut_groups(
    parent: np.ndarray, combination: np.ndarray, fanout_cutoff: float, cut: str = "even"
) -> np.ndarray:
    """Group the items of a parent that have equal combinations of entities.

    Items of one parent and combination are cut in their order. "even": into the smallest number
    of groups that respects `group_limit`, of sizes that differ by at most one. "production": as in
    the 2020 production runs, into runs of `group_limit` + 1 items, the remainder last; they bring
    targeted entities a little closer, and block groups of the tabulation spine less so.

    Args:
        parent: (n_items,) int64 parent of each item.
        combination: (n_items,) int64; equal numbers mean equal combinations.
        fanout_cutoff: see `SpineRules.fanout_cutoff`.
        cut: "even" or "production".

    Returns:
        (n_items,) int64 group of each item: the position of the group's first item.

    Example: five items of one parent with the combinations (0, 0, 1, 0, 0) and a cut-off of 0
    have at most two members in a group: the groups are (0, 0, 2, 3, 3). Cut as in production they
    have at most three: (0, 0, 2, 0, 4).
    """
    limit = group_limit(np.bincount(parent), fanout_cutoff)[parent]
    cell = nest(parent, pd.factorize(combination)[0])
    order = np.argsort(cell, kind="stable")
    size = np.bincount(cell)
    start = np.cumsum(size) - size
    rank = np.empty(len(parent), dtype=np.int64)
    rank[order] = np.arange(len(parent)) - start[cell[order]]
    size = size[cell]
    if cut == "production":
        return order[start[cell] + rank - rank % (limit + 1)]
    n_pieces = -(-size // limit)
    piece = rank * n_pieces // size
    return order[start[cell] - (-piece * size // n_pieces)]


def digits(values: np.ndarray, width: int) -> pa.StringArray:
    """(n,) texts of zero-padded decimal digits, `width` of them per value."""
    return pc.utf8_lpad(pa.array(values, pa.int64()).cast(pa.string()), width, "0")


def concatenate(parts: Sequence[pa.StringArray]) -> pa.StringArray:
    """(n,) the concatenation of texts, element by element."""
    return pc.binary_join_element_wise(*parts, "")


@dataclass(frozen=True, eq=False)
class AreaLevel:
    """The areas of one level, in the order of their parents.

    `codes` (n,) object array of str; `parent` (n,) int64 position in the level above, which never
    decreases; [-1] at the root.
    """

    name: str
    codes: np.ndarray
    parent: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def root(cls, code: str, name: str = "root") -> AreaLevel:
        """A level of one area."""
        return cls(name, np.array([code], dtype=object), np.array([-1], dtype=np.int64))

    def below(self, name: str, codes: np.ndarray, parents: Iterable[str]) -> AreaLevel:
        """The level below this one, from areas with their parents' codes, sorted by code within
        their parent, so that the result does not depend on their order; raises KeyError for other
        parents.
        """
        place = {code: i for i, code in enumerate(self.codes)}
        parent = np.array([place[code] for code in parents], dtype=np.int64)
        codes = np.asarray(codes, dtype=object)
        order = np.lexsort((codes.astype(str), parent))
        return AreaLevel(name, codes[order], parent[order])


@dataclass(frozen=True, eq=False)
class AreaHierarchy:
    """All levels, the root first; children of one area are contiguous in the level below.

    >>> levels = AreaLevel.root("US", "nation"), AreaLevel("state", ["GA", "NY"], np.array([0, 0]))
    >>> AreaHierarchy(levels).children(0).tolist()
    [0, 2]
    """

    levels: tuple[AreaLevel, ...]

    def children(self, depth: int) -> np.ndarray:
        """Offsets (n + 1,): area i of level `depth` has the children at positions offsets[i] up to
        offsets[i + 1] of the level below.
        """
        return child_offsets(self.levels[depth + 1].parent, len(self.levels[depth]))

    def ancestors(self, depth: int, below: int = -1) -> np.ndarray:
        """Position at level `depth` of the ancestor of every area of the level `below`, by default
        the finest.
        """
        position = np.arange(len(self.levels[below]))
        for level in self.levels[below:depth:-1]:
            position = level.parent[position]
        return position
