"""What a run over detailed groups must have measured and released, worked out from its inputs.

The universe follows from the specification, the configuration and public geography: every region
of a type crossed with every iteration that the type's granularity and a level tabulate. It is
recomputed here from the rows of the specification, apart from the code that enumerates the groups
to be measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from ..run_files import encoded, positions

STATE_TYPES = ("USA", "STATE", "PR-STATE")
"""Region types with detailed iterations, whose groups are never suppressed."""

_PARTS: Mapping[str, tuple[str, ...]] = {
    "STATE": ("TABBLKST",),
    "COUNTY": ("TABBLKST", "TABBLKCOU"),
    "TRACT": ("TABBLKST", "TABBLKCOU", "TABTRACTCE"),
    "PLACE": ("TABBLKST", "PLACEFP"),
    "AIANNH": ("AIANNHCE",),
}
_OUTSIDE = {"PLACEFP": "99999", "AIANNHCE": "9999"}
"""Codes of blocks outside every place and area."""


@dataclass(frozen=True)
class Iteration:
    """A characteristic iteration: its level, and which region types tabulate it.

    `is_alone` is None for an ethnicity, of which everybody has one.
    """

    level: int
    is_alone: bool | None
    detailed_only: bool
    coarse_only: bool

    def is_tabulated(self, region_type: str) -> bool:
        """Whether groups of this region type have the iteration."""
        return not (self.coarse_only if region_type in STATE_TYPES else self.detailed_only)


@dataclass(frozen=True, eq=False)
class MeasuredLevel:
    """A region type and iteration level that is measured, its budget and its tables' thresholds.

    `budget` is rho or epsilon, None for a run without noise.
    """

    region_type: str
    level: int
    budget: Fraction | None
    thresholds: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ExpectedLevel(MeasuredLevel):
    """The groups of a measured level: all regions with all iterations.

    `total_only` marks the iterations that are measured by a total only; of the others, the noisy
    total of the first stage chooses the table by the `thresholds` that it reaches. The group of
    region r and iteration i has number `first + r * len(iterations) + i` among the groups of its
    run.
    """

    stability: int
    regions: tuple[str, ...]
    iterations: tuple[str, ...]
    total_only: np.ndarray
    first: int

    @property
    def n(self) -> int:
        """Number of groups."""
        return len(self.regions) * len(self.iterations)

    @property
    def rows(self) -> slice:
        """The numbers of the groups."""
        return slice(self.first, self.first + self.n)

    @property
    def is_state(self) -> bool:
        """Whether the region type is the nation or a state, where nothing is suppressed."""
        return self.region_type in STATE_TYPES

    @cached_property
    def _names(self) -> tuple[pa.StringArray, pa.StringArray]:
        """The regions and the iterations."""
        return pa.array(self.regions, pa.string()), pa.array(self.iterations, pa.string())

    def numbers(self, region_id: pa.Array, iteration: pa.Array) -> np.ndarray:
        """The number of each row's group, -1 where it is none of the level's."""
        regions, iterations = self._names
        region, code = positions(region_id, regions), positions(iteration, iterations)
        known = (region >= 0) & (code >= 0)
        return np.where(known, self.first + region * len(iterations) + code, -1)

    def describe(self, group: int) -> str:
        """A group in words, by its number in the run."""
        region, iteration = divmod(int(group) - self.first, len(self.iterations))
        return f"{self.region_type} {self.regions[region]}, {self.iterations[iteration]}"


@dataclass(frozen=True, eq=False)
class ExpectedRun:
    """What the settings and inputs of a run promise.

    levels : all population group levels, pass by pass; `passes[region_type]` is the pass of a type.
    donor_order : region types, the donor's first; None if coterminous regions are left alone.
    coterminous : by region type, the number of the set of coterminous regions that a region is in.
    counterparts : 'alone' iteration code to that in any combination; None if none is suppressed.
    compares_cells : whether these are compared in the cells too that both show.
    confidence : the probability with which the margins of released counts hold.
    """

    levels: tuple[ExpectedLevel, ...]
    passes: Mapping[str, str]
    is_pure: bool
    stage_1_fraction: Fraction
    allow_negative_counts: bool
    is_private: bool
    zero_suppression_chance: Fraction | None = None
    donor_order: tuple[str, ...] | None = None
    coterminous: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counterparts: Mapping[str, str] | None = None
    compares_cells: bool = False
    confidence: Fraction = Fraction(95, 100)

    @property
    def n_groups(self) -> int:
        """Number of groups of all levels."""
        return sum(level.n for level in self.levels)

    def numbers(
        self, region_id: pa.Array, region_type: pa.Array, iteration: pa.Array
    ) -> np.ndarray:
        """The number of each row's group, -1 where it is none of the run's."""
        found = np.full(len(region_id), -1, dtype=np.int64)
        kind = encoded(region_type)
        names, kind_code = kind.dictionary.to_pylist(), kind.indices.to_numpy()
        for level in self.levels:
            if level.region_type in names:
                rows = np.flatnonzero(kind_code == names.index(level.region_type))
                at = pa.array(rows)
                number = level.numbers(region_id.take(at), iteration.take(at))
                found[rows[number >= 0]] = number[number >= 0]
        return found

    def describe(self, group: int) -> str:
        """A group in words, by its number."""
        own = next(level for level in self.levels if level.first <= group < level.rows.stop)
        return own.describe(group)


def expected_levels(
    measured: Sequence[MeasuredLevel],
    iterations: Mapping[str, Iteration],
    pairs: Sequence[tuple[str, str]],
    max_race_codes: int,
    blocks: Mapping[str, pd.DataFrame],
) -> tuple[ExpectedLevel, ...]:
    """The population group levels of every pass, in the order of `measured`.

    `iterations` are those of the specification by code, `pairs` its pairs of an iteration's code
    and a race or ethnicity code; `blocks` has each pass's geography frame. A level's stability is
    the production program's h_r max(2, max_race_codes) + h_e, h_r and h_e being the most 'alone'
    race iterations and ethnicity iterations of one code, or more where a person can be in more
    groups.
    """
    levels: list[ExpectedLevel] = []
    first = 0
    for item in measured:
        region_pass = "pr" if item.region_type.startswith("PR-") else "us"
        kept = {
            code: iteration
            for code, iteration in iterations.items()
            if iteration.level == item.level and iteration.is_tabulated(item.region_type)
        }
        codes = sorted(kept)
        regions = {
            region
            for region in region_of_blocks(item.region_type, blocks[region_pass])
            if region is not None
        }
        level = ExpectedLevel(
            **vars(item),
            stability=_stability(pairs, kept, max_race_codes),
            regions=tuple(sorted(regions)),
            iterations=tuple(codes),
            total_only=np.array([kept[code].detailed_only for code in codes], dtype=bool),
            first=first,
        )
        levels.append(level)
        first += level.n
    return tuple(levels)


def region_of_blocks(region_type: str, blocks: pd.DataFrame) -> list[str | None]:
    """The region id of each block, None where it is in no region of the type."""
    kind = region_type.removeprefix("PR-")
    if kind == "USA":
        return ["1"] * len(blocks)
    parts = _PARTS[kind]
    columns = [blocks[name].tolist() for name in parts]
    outside = _OUTSIDE.get(parts[-1])
    return [
        None if codes[-1] == outside else "".join(codes) for codes in zip(*columns, strict=True)
    ]


def identical_regions(
    regions: Mapping[str, Sequence[str | None]], inhabitable: Sequence[bool] | None
) -> dict[str, dict[str, int]]:
    """Numbers of the sets of regions that cover the same blocks, by region type and id.

    With `inhabitable`, only those blocks count, for regions that have any.
    """
    found: dict[tuple[bool, bytes], list[tuple[str, str]]] = {}
    for region_type, ids in regions.items():
        members: dict[str, list[int]] = {}
        for block, region in enumerate(ids):
            if region is not None:
                members.setdefault(region, []).append(block)
        for region, blocks in members.items():
            held = [] if inhabitable is None else [b for b in blocks if inhabitable[b]]
            key = bool(held), np.array(held or blocks, dtype=np.int64).tobytes()
            found.setdefault(key, []).append((region_type, region))
    sets: dict[str, dict[str, int]] = {region_type: {} for region_type in regions}
    for number, same in enumerate(same for same in found.values() if len(same) > 1):
        for region_type, region in same:
            sets[region_type][region] = number
    return sets


def _stability(
    pairs: Sequence[tuple[str, str]], kept: Mapping[str, Iteration], max_race_codes: int
) -> int:
    """The larger of the production program's bound and of what a person can reach, at least 1."""

    def codes_of(kind: bool | None) -> list[tuple[str, str]]:
        return [(i, code) for i, code in pairs if i in kept and kept[i].is_alone is kind]

    alone, combined, ethnic = codes_of(True), codes_of(False), codes_of(None)

    def most(found: list[tuple[str, str]]) -> int:
        return max(Counter(code for _, code in found).values(), default=0)

    def reachable(codes: set[str] | None) -> int:
        """Combination iterations of as many codes, among some, as a person can have."""
        groups = {i for i, code in combined if codes is None or code in codes}
        return min(max_race_codes, len(groups))

    same_alone: dict[str, set[str]] = {}
    for iteration, code in alone:
        same_alone.setdefault(iteration, set()).add(code)
    races = max([reachable(None), *(1 + reachable(codes) for codes in same_alone.values())])
    bound = most(alone) * max(2, max_race_codes) + most(ethnic)
    return max(1, races + bool(ethnic), bound)
