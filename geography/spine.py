"""Build a spine from the geography: hierarchy, AIAN branch, optimised groups, bypass."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .categories import (
    GROUP_QUARTERS,
    Category,
    aian_category,
    combine,
    is_aian_block,
    mcd_or_place,
    off_spine_categories,
)
from .hierarchy import (
    CONVENTIONAL_DIGITS,
    BlockCodes,
    concatenate,
    cut_groups,
    digits,
    first_rows,
    nest,
    ranks_within,
    text_column,
)
from .levels import Spine, child_offsets, nested_spine
from .optimize import blocks_in_several_entities, fold, greedy_groups
from .rules import GROUPED_GEOLEVEL, GeographyRefused, SpineRules, block_geolevels
from .texts import texts_of

PRIM_COLUMN = "PRIM"
"""Column that names the prim of a block; without it a prim is a county's part of a minor civil
division or place."""


def build_spine(
    geography: pd.DataFrame,
    *,
    geolevel_shares: Mapping[str, Fraction],
    kind: str,
    rules: SpineRules,
    is_pure: bool,
    group_quarters: np.ndarray | None = None,
) -> Spine:
    """Build the spine of one universe.

    The AIAN branch (every kind but "conventional") starts at the first geolevel below the root,
    which is the state in a national run. Where the state is the root itself, as in Puerto Rico,
    it stays one geounit, and its counties are split into their parts inside and outside AIAN
    areas.

    Spine geocodes: a parent's geocode begins its children's, except for the root "0" of a
    national run. Conventional: the leading digits of the block geocode. Otherwise a state is one
    digit (1 in the AIAN branch, 0 outside or at the root) and its FIPS code, a county adds "10",
    three digits and, if one state geounit holds several parts of it, a running number; the
    geolevels below add zero-padded running numbers; a block adds its 16-digit geocode.

    Args:
        geography: one row per inhabitable block, sorted by `block_geocode`.
        geolevel_shares: exact shares by geolevel, root first, "Block" last; they add to 1.
        kind: "conventional", "aian", "optimized" or "dhc".
        rules: AIAN ranges, categories, cut-offs.
        is_pure: whether noise comes from discrete Laplace under pure differential privacy, which
            lets Algorithm 3 of [Spines2024] bypass parents of several children.
        group_quarters: (n_blocks, 7) occupied facilities by type, or None where group quarters
            are not targeted (housing units).

    Raises:
        GeographyRefused: geography, shares or rules cannot be used.
    """
    names = block_geolevels(geolevel_shares, kind)
    codes = _SpineCodes(geography, names, kind, rules)
    numbers = _nested_numbers(geography, codes, rules, group_quarters)
    return nested_spine(
        kind,
        numbers,
        geolevel_shares,
        codes.is_aian,
        codes.geocodes,
        lambda rows: texts_of(digits(codes.geocode[rows], 16)),
        rules,
        is_pure,
    )


def _nested_numbers(
    geography: pd.DataFrame,
    codes: _SpineCodes,
    rules: SpineRules,
    group_quarters: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """For each geolevel, (n_blocks,) running number of each block's geounit, nested in the
    geounits above; rows in the order of the geography frame."""
    names, kind, is_aian = codes.names, codes.kind, codes.is_aian
    branch = is_aian.astype(np.int64)
    keys = {
        "State": (branch, codes.state),
        "County": (codes.county, branch),
        "Tract": (codes.tract, branch),
        "Block_Group": (codes.block_group, branch),
        "Block": (np.arange(len(is_aian)),),
    }
    categories: tuple[Category, ...] = ()
    if kind in ("optimized", "dhc"):
        categories = off_spine_categories(
            geography, rules, group_quarters=group_quarters, kind=kind
        )
        combination = combine(categories, len(is_aian))
    if kind == "dhc":
        if PRIM_COLUMN in geography.columns:
            prim = pd.factorize(text_column(geography, PRIM_COLUMN), sort=True)[0].astype(np.int64)
        else:
            prim = mcd_or_place(geography, rules)
        area = aian_category(geography, rules).entity.astype(np.int64)
        keys["Prim"] = (codes.county, prim, branch)
        keys["Tract_Subset"] = (codes.tract, prim, area)

    above = nest(np.zeros(len(is_aian), dtype=np.int64), codes.state)
    if names[0] == "US":
        above = np.zeros(len(is_aian), dtype=np.int64)
    elif above.max() > 0:
        raise GeographyRefused(
            f"the root geolevel 'State' would have {above.max() + 1} geounits; put 'US' above it "
            "or give the geography of one state"
        )
    numbers = {names[0]: above}
    for name in names[1:]:
        if name in GROUPED_GEOLEVEL:
            item = nest(above, *keys[GROUPED_GEOLEVEL[name]])
            if name == "Tract_Group" or rules.greedy_tract_subset_groups:
                group = _greedy_groups(list(numbers.values()), item, combination, categories, rules)
            else:
                first = first_rows(item, int(item.max()) + 1)
                cutoff, cut = rules.fanout_cutoff, rules.cut
                group = cut_groups(above[first], area[first], cutoff, cut)[item]
            above = nest(above, group)
        elif name == "Block_Group" and kind in ("optimized", "dhc"):
            above = nest(above, cut_groups(above, combination, rules.fanout_cutoff, rules.cut))
        else:
            above = nest(above, *keys[name])
        numbers[name] = above
    return numbers


def _greedy_groups(
    numbers: list[np.ndarray],
    item: np.ndarray,
    combination: np.ndarray,
    categories: tuple[Category, ...],
    rules: SpineRules,
) -> np.ndarray:
    """(n_blocks,) int64: group of each block's item by the greedy search, with the optimised
    block groups below the items in place."""
    block_group = nest(item, cut_groups(item, combination, rules.fanout_cutoff, rules.cut))
    order = np.argsort(block_group, kind="stable")
    n_block_groups = int(block_group.max()) + 1
    n_items = int(item.max()) + 1
    entity_offsets = np.cumsum([0, *map(len, categories)])
    starts = entity_offsets[:-1]
    entities = [own.entity[order] + start for own, start in zip(categories, starts, strict=True)]
    entries = blocks_in_several_entities(np.stack(entities, axis=1))
    ancestors = []
    below = item
    for number in reversed(numbers):
        ancestors.append(number[first_rows(below, int(below.max()) + 1)])
        below = number
    n_entities = int(entity_offsets[-1])
    offsets = child_offsets(block_group[order], n_block_groups)
    entries, _ = fold(entries, offsets, n_entities)
    offsets = child_offsets(item[first_rows(block_group, n_block_groups)], n_items)
    entries, _ = fold(entries, offsets, n_entities)
    are_areas = [category.name != GROUP_QUARTERS for category in categories]
    is_area = np.repeat(are_areas, list(map(len, categories)))
    return greedy_groups(entries, ancestors, n_entities, rules.fanout_cutoff, is_area)[item]


class _SpineCodes(BlockCodes):
    """The codes of blocks, and the geocodes of the geounits of their spine.

    is_aian : (n_blocks,) the blocks of the AIAN branch, if the spine has one.
    """

    def __init__(
        self, geography: pd.DataFrame, names: tuple[str, ...], kind: str, rules: SpineRules
    ) -> None:
        super().__init__(geography)
        self.names, self.kind = names, kind
        self.is_aian = np.zeros(len(geography), dtype=bool)
        if kind != "conventional":
            self.is_aian = is_aian_block(geography, rules)

    def geocodes(
        self, name: str, row: np.ndarray, parent: np.ndarray, above: np.ndarray
    ) -> np.ndarray:
        """The geocodes of a geolevel; see `nested_spine`."""
        if name == "US":
            return np.array(["0"], dtype=object)
        if self.kind == "conventional":
            width = CONVENTIONAL_DIGITS[name]
            return texts_of(digits(self.geocode[row] // 10 ** (16 - width), width))
        if self.names[:2] == ("US", name):
            above = np.array([""], dtype=object)  # The root's code begins no other.
        return texts_of(concatenate(self._parts(name, row, parent, above)))

    def _parts(
        self, name: str, row: np.ndarray, parent: np.ndarray, above: np.ndarray
    ) -> list[pa.StringArray]:
        """Texts whose concatenation is the geocode of a spine that has an AIAN branch."""
        before = pa.array(above, pa.string()).take(pa.array(parent))
        is_branch = self.is_aian[row] & (name != self.names[0])
        state = [digits(is_branch.astype(np.int64), 1), digits(self.state[row], 2)]
        if name == "State":
            return state
        if name == "County":
            run = nest(parent, self.county[row])
            is_split = np.bincount(run)[run] > 1
            part = pc.if_else(pa.array(is_split), digits(ranks_within(run) + 1, 1), "")
            county = [pa.repeat("10", len(row)), digits(self.county_fips[row], 3), part]
            return [*(state if "State" not in self.names else [before]), *county]
        if name == "Block":
            return [before, digits(self.geocode[row], 16)]
        rank = ranks_within(parent) + 1
        return [before, digits(rank, len(str(rank.max())))]
