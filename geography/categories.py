"""Off-spine entities: for each category, the entity that every block belongs to.

A category partitions the blocks: its entities and one more, the area outside all of them (codes
9999 and 99999). Codes of places, minor civil divisions, school districts and further columns are
unique within a state, so an entity is a state and a code; AIAN areas are numbered nationwide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .hierarchy import BlockCodes, text_column
from .rules import DEFAULT_CATEGORIES, OUTSIDE_AIAN, GeographyRefused, SpineRules

OUTSIDE_CODES = ("9999", "99999")
OUTSIDE_MCD_CODES = (*OUTSIDE_CODES, "00000")
N_GROUP_QUARTERS_TYPES = 7

GROUP_QUARTERS = "group_quarters"
"""Category of the combinations of facility types in a block: no areas, but properties of blocks."""


@dataclass(frozen=True, eq=False)
class Category:
    """One category of off-spine entities, rows in the order of the geography frame."""

    name: str
    entity: np.ndarray
    """(n_blocks,) int32: the block's entity, 0 <= entity < len(label)."""
    label: np.ndarray
    """(n_entities,) object array of str: the entity's code, or "outside"."""
    outside: int
    """The entity outside all others, or -1 if every block is in one."""

    def __len__(self) -> int:
        return len(self.label)

    def targeted(self) -> np.ndarray:
        """(n_entities,) bool: all entities but the outside one."""
        mask = np.ones(len(self.label), dtype=bool)
        if self.outside >= 0:
            mask[self.outside] = False
        return mask


def is_aian_block(geography: pd.DataFrame, rules: SpineRules) -> np.ndarray:
    """(n_blocks,) bool: the block is in an area whose type forms the AIAN branch."""
    area = text_column(geography, rules.column_of("aian"))
    ranges = [(each.low, each.high) for each in rules.aian_ranges if each.on_spine]
    # There are few areas, so comparing their codes one by one is fastest.
    on_spine = [
        code
        for code in area.unique()
        if code != OUTSIDE_AIAN and any(low <= code <= high for low, high in ranges)
    ]
    return area.isin(on_spine).to_numpy(dtype=bool)


def off_spine_categories(
    geography: pd.DataFrame,
    rules: SpineRules,
    *,
    group_quarters: np.ndarray | None = None,
    kind: str = "optimized",
) -> tuple[Category, ...]:
    """The categories that the rules name, by default the production run's of this kind.

    - aian: each area whose type forms the AIAN branch.
    - group_quarters: each combination of facility types; omitted if `group_quarters` is None.
    - mcd: each minor civil division of the strong-MCD states, outside the AIAN branch.
    - place: each place in the other states, and in every state within the AIAN branch.
    - block_group: each tabulation block group.
    - any other name, such as school_district: its column.

    Args:
        group_quarters: (n_blocks, 7) occupied facilities by type, or None.

    Raises:
        GeographyRefused: a column is absent, has gaps or mixes types, or the facilities do not
            fit the geography.
    """
    codes = BlockCodes(geography)
    categories = []
    for name in DEFAULT_CATEGORIES[kind] if rules.categories is None else rules.categories:
        if name != GROUP_QUARTERS:
            categories.append(_block_category(name, geography, codes, rules))
        elif group_quarters is not None:
            categories.append(group_quarters_category(group_quarters, len(geography)))
    return tuple(categories)


def combine(categories: Sequence[Category], n_blocks: int) -> np.ndarray:
    """(n_blocks,) int64: equal numbers for blocks in the same entity of every category."""
    number = np.zeros(n_blocks, dtype=np.int64)
    for category in categories:
        number = number * len(category) + category.entity
        number = pd.factorize(number)[0]
    return number


def group_quarters_category(group_quarters: np.ndarray, n_blocks: int) -> Category:
    """Blocks by their combination of facility types; blocks without any are outside."""
    group_quarters = np.asarray(group_quarters)
    if group_quarters.shape != (n_blocks, N_GROUP_QUARTERS_TYPES):
        raise GeographyRefused(
            f"group-quarters facilities have the shape {group_quarters.shape}; give one row per "
            f"block of the geography ({n_blocks}) and {N_GROUP_QUARTERS_TYPES} types"
        )
    combination = np.packbits(group_quarters > 0, axis=1, bitorder="little")[:, 0]
    distinct, entity = np.unique(combination, return_inverse=True)
    label = [
        "+".join(str(kind + 1) for kind in range(N_GROUP_QUARTERS_TYPES) if value >> kind & 1)
        or "outside"
        for value in distinct.tolist()
    ]
    return _category(GROUP_QUARTERS, entity, label, has_outside=bool((distinct == 0).any()))


def mcd_or_place(geography: pd.DataFrame, rules: SpineRules) -> np.ndarray:
    """(n_blocks,) int64: equal numbers for blocks of the same minor civil division or place,
    depending on the block's state.
    """
    codes = BlockCodes(geography)
    pair = [_block_category(name, geography, codes, rules) for name in ("mcd", "place")]
    return combine(pair, len(geography))


def aian_category(geography: pd.DataFrame, rules: SpineRules) -> Category:
    """Blocks by their area of the AIAN branch."""
    area, everywhere = text_column(geography, rules.column_of("aian")), np.zeros(1, np.int64)
    within = is_aian_block(geography, rules)
    return coded_category("aian", area, everywhere, within, (), lambda _, code: code)


def _block_category(
    name: str, geography: pd.DataFrame, codes: BlockCodes, rules: SpineRules
) -> Category:
    """A category of blocks, but group quarters, by its name."""
    if name == "aian":
        return aian_category(geography, rules)
    if name == "block_group":
        first = np.flatnonzero(np.r_[True, np.diff(codes.block_group) != 0])
        label = [f"{code:012d}" for code in (codes.geocode[first] // 10**4).tolist()]
        return _category(name, codes.block_group, label)
    prefix, width = codes.state, 2
    within = np.ones(len(geography), dtype=bool)
    if name in ("mcd", "place"):
        strong = [int(state) for state in rules.strong_mcd_states]
        is_mcd = np.isin(codes.state, strong) & ~is_aian_block(geography, rules)
        within = is_mcd if name == "mcd" else ~is_mcd
    if name == "mcd":
        prefix, width = prefix * 1000 + codes.county_fips, 5
    outside = OUTSIDE_MCD_CODES if name == "mcd" else OUTSIDE_CODES
    values = text_column(geography, rules.column_of(name))
    label_of = f"{{:0{width}d}}{{}}".format
    return coded_category(name, values, prefix, within, outside, label_of)


def coded_category(
    name: str,
    values: pd.Series,
    prefix: np.ndarray,
    within: np.ndarray,
    outside_codes: tuple[str, ...],
    label_of: Callable[[int, str], str],
) -> Category:
    """Entities by a prefix, 0 or more, and a code, for the blocks of `within`; `label_of` both
    returns an entity's label.
    """
    code, distinct_values = pd.factorize(values)
    in_entity = within & ~np.isin(code, np.flatnonzero(distinct_values.isin(outside_codes)))
    width = len(distinct_values)
    key = np.where(in_entity, prefix * width + code, -1)
    distinct, entity = np.unique(key, return_inverse=True)
    label = [
        "outside" if value < 0 else label_of(value // width, distinct_values[value % width])
        for value in distinct.tolist()
    ]
    return _category(name, entity, label, has_outside=bool((distinct < 0).any()))


def _category(
    name: str, entity: np.ndarray, label: list[str], *, has_outside: bool = False
) -> Category:
    """A category whose first entity is the outside one, if any."""
    labels = np.array(label, dtype=object)
    return Category(name, entity.astype(np.int32), labels, 0 if has_outside else -1)
