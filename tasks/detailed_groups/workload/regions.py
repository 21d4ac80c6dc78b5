"""Region types of population groups, and the regions that each block belongs to.

The United States and Puerto Rico are tabulated in separate passes, with their own budgets. Names of
region types and forms of region ids follow the production program: `1` for the nation, two digits
for a state, five for a county, eleven for a tract, state and place code (seven) for a place, and
the four digits of AIANNHCE for an American Indian, Alaska Native or Native Hawaiian area, which may
lie in several states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

US, PR = "us", "pr"
PUERTO_RICO = "72"

DETAILED, COARSE = "detailed", "coarse"
"""Granularities: the nation and the states have the detailed iterations, all else the coarse."""

NATION = "1"
NO_REGION = -1

BLOCK_COLUMNS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "PLACEFP", "AIANNHCE")
"""Columns that determine a block's regions."""

PARTS: Mapping[str, tuple[str, ...]] = {
    "STATE": BLOCK_COLUMNS[:1],
    "COUNTY": BLOCK_COLUMNS[:2],
    "TRACT": BLOCK_COLUMNS[:3],
    "PLACE": ("TABBLKST", "PLACEFP"),
    "AIANNH": ("AIANNHCE",),
}
"""Columns whose codes make a region id."""
OUTSIDE = {"PLACE": "99999", "AIANNH": "9999"}
"""The last of these codes for blocks in no region of a type."""


@dataclass(frozen=True)
class RegionType:
    """A summary level of a pass: its name, its pass and the granularity of its iterations."""

    name: str
    region_pass: str
    granularity: str


REGION_TYPES: dict[str, RegionType] = {
    name: RegionType(name, region_pass, granularity)
    for name, region_pass, granularity in (
        ("USA", US, DETAILED),
        ("STATE", US, DETAILED),
        ("COUNTY", US, COARSE),
        ("TRACT", US, COARSE),
        ("PLACE", US, COARSE),
        ("AIANNH", US, COARSE),
        ("PR-STATE", PR, DETAILED),
        ("PR-COUNTY", PR, COARSE),
        ("PR-TRACT", PR, COARSE),
        ("PR-PLACE", PR, COARSE),
    )
}
"""All region types by name, highest summary level of each pass first."""


def region_types(region_pass: str) -> tuple[RegionType, ...]:
    """The region types of a pass, highest summary level first."""
    return tuple(kind for kind in REGION_TYPES.values() if kind.region_pass == region_pass)


def region_ids(region_type: str, blocks: pd.DataFrame) -> pd.Series:
    """Region id of every block, None where a block is in no region of the type.

    `blocks` has the string columns `BLOCK_COLUMNS`, of the blocks of the type's pass.

    >>> blocks = pd.DataFrame([["44", "001", "030100", "99999", "2415"]], columns=BLOCK_COLUMNS)
    >>> region_ids("TRACT", blocks)[0], region_ids("PLACE", blocks)[0]
    ('44001030100', None)
    """
    kind = region_type.removeprefix("PR-")
    if kind == "USA":
        return pd.Series(NATION, index=blocks.index, dtype=object)
    parts = [blocks[name].astype(object) for name in PARTS[kind]]
    return sum(parts[1:], parts[0]).where(parts[-1] != OUTSIDE.get(kind), None)


@dataclass(frozen=True)
class RegionDomain:
    """The regions of one type.

    `ids` are the distinct region ids of the geography, ascending, inhabited or not, shape
    (n_regions,), object. `region_of_area` is the position of each area's region, `NO_REGION` for no
    region, shape (n_areas,), int32.
    """

    ids: np.ndarray
    region_of_area: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def areas_of(blocks: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """The areas whose blocks are in the same regions of every type.

    `blocks` has the string columns `BLOCK_COLUMNS`. Returns the area of each block, shape
    (n_blocks,), int32, and the areas by the same columns, in ascending order.
    """
    columns = list(BLOCK_COLUMNS)
    areas = blocks[columns].drop_duplicates().sort_values(columns, ignore_index=True)
    return blocks.groupby(columns, dropna=False).ngroup().to_numpy(np.int32), areas


def is_in_pass(blocks: pd.DataFrame, region_pass: str) -> np.ndarray:
    """Mask of the blocks or areas of a pass, shape (n_blocks,)."""
    return ((blocks["TABBLKST"] == PUERTO_RICO) == (region_pass == PR)).to_numpy()


def region_domain(region_type: str, areas: pd.DataFrame) -> RegionDomain:
    """The regions of a type among the areas of all passes."""
    in_pass = is_in_pass(areas, REGION_TYPES[region_type].region_pass)
    codes, ids = pd.factorize(region_ids(region_type, areas).where(in_pass, None), sort=True)
    return RegionDomain(np.asarray(ids, dtype=object), codes.astype(np.int32))
