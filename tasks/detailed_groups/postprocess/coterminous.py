"""Coterminous geographies: one set of counts for regions that cover the same blocks.

A state that is one county, a county with a single tract: the same people live in both, and their
groups were measured with independent noise. Algorithm 4 of [SafeTabP2025] gives all regions
of such a set the counts of the highest summary level that is not suppressed.

Sets of regions follow from public geography alone. Where a block's housing units
and group-quarters facilities are declared invariants, blocks without either are empty by
declaration, and regions that agree in all other blocks belong together as well. The places where
people were counted have no influence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from .groups import codes_of, mask_of, with_mask

DONATED = ("table", "value", "variance", "measured_at", "total", "male", "female")
"""Columns that a group copies from the donor of its set."""

NO_SET = -1


@dataclass(frozen=True)
class CoterminousSets:
    """Sets of two or more coterminous regions, at most one of each region type in a set.

    `number[region_type]` maps region ids to the number of their set.
    """

    number: Mapping[str, Mapping[str, int]]

    def of_rows(self, table: pa.Table) -> np.ndarray:
        """The set of each group's region, `NO_SET` if it is in no set; shape (n,), int64."""
        types, type_names = codes_of(table, "region_type")
        regions, region_names = codes_of(table, "region_id")
        sets = np.full(table.num_rows, NO_SET, dtype=np.int64)
        for code, name in enumerate(type_names):
            known = self.number.get(name, {})
            if known:
                of_region = np.array([known.get(r, NO_SET) for r in region_names], dtype=np.int64)
                here = types == code
                sets[here] = of_region[regions[here]]
        return sets


def coterminous_sets(
    regions: Mapping[str, Sequence[str | None] | np.ndarray], inhabitable: np.ndarray | None = None
) -> CoterminousSets:
    """The coterminous regions among the blocks' regions.

    Args:
        regions: for each region type, highest summary level first, the region id of every block,
            shape (n_blocks,); None where a block is in no region of that type.
        inhabitable: mask of the blocks inhabitable by declared invariants, shape
            (n_blocks,); None if no invariants are declared, and then only regions with identical
            blocks are coterminous. A region without any such block is compared by all its blocks.

    Regions of one type are disjoint, so that a set has at most one of each.
    """
    found: dict[tuple[bool, bytes], list[tuple[str, str]]] = {}
    for name, of_block in regions.items():
        codes, names = pd.factorize(pd.Series(of_block, dtype=object))
        order = np.argsort(codes, kind="stable").astype(np.int32)
        ends = np.cumsum(np.bincount(codes + 1, minlength=len(names) + 1))
        for region, blocks in zip(names, np.split(order, ends)[1:], strict=False):
            held = blocks[:0] if inhabitable is None else blocks[inhabitable[blocks]]
            # Digests take less memory than the numbers of all blocks of a nation, type by type.
            blocks = held if held.size else blocks
            key = bool(held.size), hashlib.blake2b(blocks.tobytes()).digest()
            found.setdefault(key, []).append((name, str(region)))
    sets: dict[str, dict[str, int]] = {name: {} for name in regions}
    for number, same in enumerate(same for same in found.values() if len(same) > 1):
        for name, region in same:
            sets[name][region] = number
    return CoterminousSets(sets)


def copy_coterminous(groups: pa.Table, sets: np.ndarray, order: Sequence[str]) -> pa.Table:
    """Algorithm 4: every group of a set takes the counts of the set's donor.

    The donor is, for each set and iteration, the first group in the order of summary levels
    that is not suppressed; where all are, all remain so. Groups measured in no region of the set
    are not added.

    Args:
        groups: columns `COUNTED`.
        sets: set of each group's region, shape (n,), from `CoterminousSets.of_rows`.
        order: region types, the donor's first; all types of groups in sets must be among them.

    Raises ValueError for a region type outside the order.
    """
    inside = np.flatnonzero(sets != NO_SET)
    if not inside.size:
        return groups
    hidden = mask_of(groups, "is_suppressed")[inside]
    iteration, _ = codes_of(groups, "iteration_code")
    members = pd.DataFrame(
        {
            "set": sets[inside],
            "iteration": iteration[inside],
            "hidden": hidden,
            "rank": _rank(groups, order)[inside],
            "place": np.arange(inside.size),
        }
    ).sort_values(["hidden", "rank"], kind="stable")
    first = members.groupby(["set", "iteration"])["place"].transform("first")
    donor = first.sort_index().to_numpy()
    donor = np.where(hidden[donor], np.arange(inside.size), donor)
    source = np.arange(groups.num_rows)
    source[inside] = inside[donor]
    taken = groups.select(DONATED).take(pa.array(source))
    for name in DONATED:
        groups = groups.set_column(groups.schema.get_field_index(name), name, taken[name])
    shown = mask_of(groups, "is_suppressed")[source]
    return with_mask(groups, "is_suppressed", shown)


def _rank(groups: pa.Table, order: Sequence[str]) -> np.ndarray:
    codes, names = codes_of(groups, "region_type")
    missing = sorted(set(names) - set(order))
    if missing:
        raise ValueError(f"{missing[0]} is not in the order of summary levels")
    return np.array([order.index(name) for name in names], dtype=np.int64)[codes]
