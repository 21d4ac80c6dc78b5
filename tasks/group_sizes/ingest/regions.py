"""Region hierarchies, from a file of regions, a geography frame, and as a run stores them.

A hierarchy is public, so that messages may name its regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ....geography.hierarchy import AreaHierarchy, AreaLevel
from ....validation.rules import SIZE_RULES
from ...census.invariants import NATION, codes_of_level
from ...runs.errors import InputRefused
from ...runs.stamps import write_parquet
from ...tables.area_lists import area_levels, read_area_rows
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally


@dataclass(frozen=True, eq=False)
class RegionHierarchy(AreaHierarchy):
    """All levels of regions, the root first."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels, root first."""
        return tuple(level.name for level in self.levels)

    @property
    def n_regions(self) -> tuple[int, ...]:
        """Number of regions of each level, root first."""
        return tuple(len(level) for level in self.levels)

    @property
    def n_leaves(self) -> int:
        """Number of regions of the finest level."""
        return len(self.levels[-1])

    @cached_property
    def leaves(self) -> tuple[np.ndarray, ...]:
        """For each level offsets (n + 1,): the finest regions below each region, contiguous too."""
        offsets = [np.arange(self.n_leaves + 1, dtype=np.int64)]
        for depth in range(len(self.levels) - 2, -1, -1):
            offsets.append(offsets[-1][self.children(depth)])
        return tuple(reversed(offsets))

    def restricted(self, depths: Sequence[int]) -> RegionHierarchy:
        """The hierarchy of some of the levels, ascending positions, of which the first is a root.

        >>> names = [["US"], ["GA", "NY"], ["1", "2", "3"]]
        >>> parents = [[-1], [0, 0], [0, 1, 1]]
        >>> levels = (AreaLevel("", np.array(n), np.array(p)) for n, p in zip(names, parents))
        >>> RegionHierarchy(tuple(levels)).restricted([0, 2]).levels[1].parent.tolist()
        [0, 0, 0]
        """
        parents = [np.array([-1]), *map(self.ancestors, depths, depths[1:])]
        kept = zip((self.levels[depth] for depth in depths), parents, strict=True)
        return RegionHierarchy(tuple(AreaLevel(own.name, own.codes, up) for own, up in kept))

    def sum_up(self, finest: np.ndarray) -> list[np.ndarray]:
        """Sums of a table (n_leaves, ...) of the finest level over the regions of every level."""
        return [np.add.reduceat(finest, offsets[:-1], axis=0) for offsets in self.leaves[:-1]] + [
            finest
        ]


COLUMNS = ("level", "region", "parent")


def read_hierarchy(file: InputFile, tally: ValueTally) -> RegionHierarchy | None:
    """The hierarchy of a file with columns level, region (or area), parent; None if it breaks a
    rule.

    Rows may be in any order. Raises UnreadableInput for a file that cannot be read.
    """
    return hierarchy_of_rows(read_area_rows(file, "region"), tally)


def hierarchy_of_rows(rows: pd.DataFrame, tally: ValueTally) -> RegionHierarchy | None:
    """The hierarchy of rows level, region, parent, texts all; None if they break a rule."""
    plain, one_root = SIZE_RULES.of("regions")
    named = rows[rows["level"] != ""]
    tally.look_at(plain, dict.fromkeys(named["level"], 1))
    of_root = named["level"].isin(named["level"][named["parent"] == ""])
    tally.count(one_root, len(named[of_root].drop_duplicates(["level", "region"])) != 1)
    levels = area_levels(rows, "regions", tally)
    if levels is None or not tally.are_met((plain, one_root)):
        return None
    return sorted_hierarchy(rows, [level for level, _ in levels])


def hierarchy_of_geography(
    geography: pd.DataFrame, names: Sequence[str], file: str = "geography"
) -> tuple[RegionHierarchy, np.ndarray]:
    """The hierarchy of levels of a geography frame, and the finest region of every block.

    A level is as of `codes_of_level`. Regions have the codes of their level; where a code occurs in
    several regions of the level above, all of the level have that region's code and a hyphen before
    their own.

    Raises InputRefused as `codes_of_level`, and unless the first level has one region.
    """
    above = pd.Series("", index=geography.index)
    rows = []
    for name in names:
        code = codes_of_level(geography, name, file)
        own = pd.DataFrame({"level": name, "region": code, "parent": above})
        links = own.drop_duplicates()
        if links["region"].duplicated().any():
            own["region"] = own["parent"] + "-" + own["region"]
            links = own.drop_duplicates()
        rows.append(links)
        above = own["region"]
    if len(rows[0]) != 1:
        raise InputRefused(
            f"{file}: {names[0]} has {len(rows[0])} regions; begin geography.levels with {NATION}."
        )
    hierarchy = sorted_hierarchy(pd.concat(rows), list(names))
    return hierarchy, pd.Index(hierarchy.levels[-1].codes).get_indexer(above)


def write_hierarchy(path: Path, hierarchy: RegionHierarchy) -> None:
    """Write the hierarchy as Parquet: level, region, parent, in its order."""
    parents = [np.array([""], dtype=object)] + [
        above.codes[level.parent]
        for above, level in zip(hierarchy.levels, hierarchy.levels[1:], strict=False)
    ]
    table = pa.table(
        {
            "level": np.repeat(np.array(hierarchy.names, dtype=object), hierarchy.n_regions),
            "region": np.concatenate([level.codes for level in hierarchy.levels]),
            "parent": np.concatenate(parents),
        },
        schema=pa.schema([(column, pa.string()) for column in COLUMNS]),
    )
    write_parquet(path, table)


def sorted_hierarchy(rows: pd.DataFrame, order: Sequence[str]) -> RegionHierarchy:
    """Levels in the given order, regions by parent and then by name."""
    of_level = dict(tuple(rows.groupby("level", sort=False)))
    levels = [AreaLevel.root(of_level[order[0]]["region"].iloc[0], str(order[0]))]
    for name in order[1:]:
        own = of_level[name]
        levels.append(levels[-1].below(str(name), own["region"].to_numpy(), own["parent"]))
    return RegionHierarchy(tuple(levels))
