"""Expected measurements and release of a run, computed from its settings and public files.

The universe is every region of a type crossed with every iteration that the type's granularity and
a level tabulate: from the copies of the specification files, of `config.json` under the settings,
and from public geography.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..plan import GAUSSIAN, LAPLACE, not_private_reason, variance_of
from ..run_files import UnusableRunFile, encode_texts, positions, read_settings, read_table
from .tables import PERSONS, TENURES, TYPES, Tabulation

REGION_TYPES = (
    *("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH"),
    *("PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE"),
)
STATE_TYPES = ("USA", "STATE", "PR-STATE")
"""Region types with detailed iterations, whose groups are never suppressed."""
LEVELS = (1, 2)
PARAMETERS = Path("parameters")
RACES, ETHNICITIES = "race-characteristic-iterations.txt", "ethnicity-characteristic-iterations.txt"
PAIRS = "race-and-ethnicity-code-to-iteration.txt"
SPECIFICATION = ("race-and-ethnicity-codes.txt", RACES, ETHNICITIES, PAIRS)
CONFIG = "config.json"
GEOGRAPHY = Path("spine") / "geography.parquet"
INVARIANTS = Path("spine") / "invariants.parquet"

NEVER = 2**63 - 1
"""A threshold that no noisy total reaches."""
_SETTINGS = {
    "privacy_defn": "definition",
    "max_race_codes": "max_race_codes",
    "privacy_budget_p_stage_1_fraction": "stage_1_fraction",
    "zero_suppression_chance": "zero_suppression_chance",
    "allow_negative_counts": "allow_negative_counts",
    "run_us": "run_us",
    "run_pr": "run_pr",
}
"""Keys of `config.json` that settings of the mechanism override."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    "STATE": ("TABBLKST",),
    "COUNTY": ("TABBLKST", "TABBLKCOU"),
    "TRACT": ("TABBLKST", "TABBLKCOU", "TABTRACTCE"),
    "PLACE": ("TABBLKST", "PLACEFP"),
    "AIANNH": ("AIANNHCE",),
}
_COLUMNS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "PLACEFP", "AIANNHCE")
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


@dataclass(frozen=True)
class CountNoise:
    """Noise of P(x) proportional to exp(-rate |x|^power); a `rate` of None is no noise."""

    rate: Fraction | None
    power: int

    @property
    def variance(self) -> float:
        """Variance of one count."""
        if self.rate is None:
            return 0.0
        return variance_of(GAUSSIAN if self.power == 2 else LAPLACE, 1 / (self.power * self.rate))


@dataclass(frozen=True, eq=False)
class Level:
    """The groups of a region type and iteration level: all regions with all iterations.

    `budget` is rho, or epsilon if `is_pure`; None without noise. `stage_1`, a part of it, chooses
    the table, by the `thresholds` that the noisy total reaches, except for the iterations at the
    mask `total_only`, which are measured by a total only. The group of region r and iteration i has
    number `first + r * len(iterations) + i` among the groups of its run.
    """

    region_type: str
    level: int
    budget: Fraction | None
    stage_1: Fraction
    is_pure: bool
    thresholds: tuple[int, ...]
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
    def is_total_only(self) -> np.ndarray:
        """Mask of the groups that are measured by a total only, shape (n,)."""
        return np.tile(self.total_only, len(self.regions))

    @property
    def region_pass(self) -> str:
        """The pass of the region type."""
        return pass_of(self.region_type)

    def loss(self, *, is_total_only: bool) -> Fraction | None:
        """Loss of the released counts of a group."""
        if self.budget is None:
            return None
        return self.budget * (1 if is_total_only else 1 - self.stage_1)

    def noise(self, loss: Fraction | None) -> CountNoise:
        """The noise of counts that cost so much of the budget: one person moves as many of them as
        the stability says, by one each."""
        rate = None if loss is None else loss / self.stability
        return CountNoise(rate, 1 if self.is_pure else 2)

    @cached_property
    def _names(self) -> tuple[pa.StringArray, pa.StringArray]:
        """The regions and the iterations."""
        return pa.array(self.regions, pa.string()), pa.array(self.iterations, pa.string())

    def numbers(self, region_id: pa.Array, iteration: pa.Array) -> np.ndarray:
        """The number of each row's group, -1 for groups of other levels."""
        regions, iterations = self._names
        region, code = positions(region_id, regions), positions(iteration, iterations)
        known = (region >= 0) & (code >= 0)
        return np.where(known, self.first + region * len(iterations) + code, -1)

    def describe(self, group: int) -> str:
        """A group in words, by its number in the run."""
        region, iteration = divmod(int(group) - self.first, len(self.iterations))
        return f"{self.region_type} {self.regions[region]}, {self.iterations[iteration]}"


@dataclass(frozen=True, eq=False)
class Promise:
    """Expectations on a tabulation from settings and public files.

    levels : all population group levels, pass by pass.
    donor_order : region types, the donor's first; None if coterminous regions are left alone.
    coterminous : by region type, the number of the set of coterminous regions that a region is in.
    counterparts : 'alone' iteration code to that in any combination; None if none is suppressed.
    confidence : the probability with which the margins of released counts hold.
    """

    tabulation: Tabulation
    levels: tuple[Level, ...]
    passes: tuple[str, ...]
    is_pure: bool
    allow_negative_counts: bool
    is_private: bool
    zero_suppression_chance: Fraction
    donor_order: tuple[str, ...] | None
    coterminous: Mapping[str, Mapping[str, int]]
    counterparts: Mapping[str, str] | None
    confidence: Fraction

    @property
    def n_groups(self) -> int:
        """Number of groups of all levels."""
        return sum(level.n for level in self.levels)

    def total_of(self, region_pass: str) -> Fraction:
        """The budgets of a pass, which add up."""
        own = (level.budget for level in self.levels if level.region_pass == region_pass)
        return sum((budget for budget in own if budget is not None), Fraction(0))

    def numbers(
        self, region_id: pa.Array, region_type: pa.Array, iteration: pa.Array
    ) -> np.ndarray:
        """The number of each row's group, -1 for groups outside the run."""
        found = np.full(len(region_id), -1, dtype=np.int64)
        kind = encode_texts(region_type)
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


def pass_of(region_type: str) -> str:
    """The pass that tabulates a region type."""
    return "pr" if region_type.startswith("PR-") else "us"


def promises(root: Path) -> tuple[Promise, ...]:
    """Expectations on each tabulation of the run below `root`: of persons, or of households.

    Raises UnusableRunFile for a file of another form.
    """
    settings = read_settings(root)
    own, iterations, pairs = settings["mechanism"], read_iterations(root), read_pairs(root)
    blocks = read_table(root / GEOGRAPHY).to_pandas()
    tabulations = (TYPES, TENURES) if "groups" in settings["input"] else (PERSONS,)
    compared = own.get("suppress_alone_above_combination", False)
    is_coterminous = own.get("coterminous", False)
    sets: Mapping[str, Mapping[str, int]] = {}
    if is_coterminous:
        regions = {kind: region_of_blocks(kind, blocks) for kind in REGION_TYPES}
        sets = identical_regions(regions, inhabitable(root) if own["units_are_invariant"] else None)
    found = []
    for tabulation in tabulations:
        config = read_config(root, settings, tabulation)
        is_of_persons = tabulation is PERSONS
        chance = config.get("zero_suppression_chance", 0) if is_of_persons else 0
        found.append(
            Promise(
                tabulation,
                _levels(config, tabulation, settings, iterations, pairs, blocks),
                tuple(name for name in ("us", "pr") if config[f"run_{name}"]),
                config["privacy_defn"] == "puredp",
                config["allow_negative_counts"],
                not_private_reason(settings) is None,
                Fraction(chance),
                tuple(own["summary_levels"]) if is_coterminous else None,
                sets,
                counterparts(iterations, pairs) if compared else None,
                Fraction(own.get("confidence", "0.95")),
            )
        )
    return tuple(found)


def read_config(root: Path, settings: Mapping[str, Any], tabulation: Tabulation) -> dict[str, Any]:
    """The keys of `config.json`, if the run has one, under its settings; decimals are exact.

    Raises UnusableRunFile.
    """
    path, own, config = root / PARAMETERS / CONFIG, settings["mechanism"], {}
    if path.exists():
        try:
            config = json.loads(path.read_text(encoding="utf-8"), parse_float=Fraction)
        except ValueError:
            raise UnusableRunFile(f"{CONFIG} cannot be read") from None
    config |= {key: own[name] for key, name in _SETTINGS.items() if name in own}
    of_tables = [own.get(name, {}) for name in ("budgets", "thresholds")]
    if tabulation is not PERSONS:
        of_tables = [of.get(tabulation.key.removeprefix("h_"), {}) for of in of_tables]
    budgets, thresholds = of_tables
    for region_type, levels in budgets.items():
        for level, budget in levels.items():
            config[_budget_key(tabulation, region_type, level)] = budget
    name = f"thresholds_{tabulation.key}"
    config[name] = config.get(name, {}) | {
        f"({region_type}, {level})": values
        for region_type, levels in thresholds.items()
        for level, values in levels.items()
    }
    return config


def _budget_key(tabulation: Tabulation, region_type: str, level: int | str) -> str:
    kind = region_type.lower().replace("-", "_")
    return f"privacy_budget_{tabulation.key}_level_{level}_{kind}"


def _levels(
    config: Mapping[str, Any],
    tabulation: Tabulation,
    settings: Mapping[str, Any],
    iterations: Mapping[str, Iteration],
    pairs: Sequence[tuple[str, str]],
    blocks: pd.DataFrame,
) -> tuple[Level, ...]:
    """The levels of the passes that are run which have a budget.

    A level's stability is the production program's h_r max(2, max_race_codes) + h_e, h_r and h_e
    being the most 'alone' race iterations and ethnicity iterations of one code, or more where a
    person can be in more groups.
    """
    found: list[Level] = []
    first, is_of_persons = 0, tabulation is PERSONS
    stage_1 = Fraction(config["privacy_budget_p_stage_1_fraction"] if is_of_persons else 0)
    areas = blocks[list(_COLUMNS)].drop_duplicates()
    for region_type in REGION_TYPES:
        regions = region_of_blocks(region_type, areas).dropna().unique()
        for number in LEVELS if config[f"run_{pass_of(region_type)}"] else ():
            budget = config[_budget_key(tabulation, region_type, number)]
            if budget != math.inf and not Fraction(budget):
                continue
            kept = {
                code: own
                for code, own in iterations.items()
                if own.level == number and own.is_tabulated(region_type)
            }
            codes = tuple(sorted(kept))
            thresholds = config[f"thresholds_{tabulation.key}"][f"({region_type}, {number})"]
            level = Level(
                region_type,
                number,
                None if settings["privacy"]["infinite"] else Fraction(budget),
                stage_1,
                config["privacy_defn"] == "puredp",
                tuple(map(_bound, thresholds)),
                stability(pairs, kept, config["max_race_codes"]),
                tuple(sorted(regions)),
                codes,
                np.array([is_of_persons and kept[code].detailed_only for code in codes], bool),
                first,
            )
            found.append(level)
            first += level.n
    return tuple(found)


def _bound(threshold: Any) -> int:
    """The smallest whole total that reaches a threshold."""
    if threshold == math.inf:
        return NEVER
    return max(-NEVER, min(NEVER, math.ceil(Fraction(threshold))))


def read_iterations(root: Path) -> dict[str, Iteration]:
    """The characteristic iterations of a run's specification, by code."""
    return {
        row["ITERATION_CODE"]: Iteration(
            int(row["LEVEL"]),
            row["ALONE"] == "True" if name == RACES else None,
            row["DETAILED_ONLY"] == "True",
            row["COARSE_ONLY"] == "True",
        )
        for name in (RACES, ETHNICITIES)
        for row in _rows(root, name)
    }


def read_pairs(root: Path) -> list[tuple[str, str]]:
    """The pairs of an iteration's code and a race or ethnicity code."""
    return [(row["ITERATION_CODE"], row["RACE_ETH_CODE"]) for row in _rows(root, PAIRS)]


def _rows(root: Path, name: str) -> list[dict[str, str]]:
    try:
        text = (root / PARAMETERS / name).read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        raise UnusableRunFile(f"{name} cannot be read") from None
    header, *lines = (line.rstrip("\r").split("|") for line in text.split("\n") if line)
    return [dict(zip(header, line, strict=True)) for line in lines]


def region_of_blocks(region_type: str, blocks: pd.DataFrame) -> pd.Series:
    """The region id of each block, missing where it is in no region of the type."""
    is_here = (blocks["TABBLKST"] == "72") == (pass_of(region_type) == "pr")
    kind = region_type.removeprefix("PR-")
    if kind == "USA":
        return pd.Series("1", blocks.index).where(is_here)
    *_, last = parts = list(_PARTS[kind])
    codes = blocks[parts[0]].str.cat(blocks[parts[1:]])
    return codes.where(is_here & (blocks[last] != _OUTSIDE.get(last, "")))


def inhabitable(root: Path) -> np.ndarray:
    """Whether each block has a housing unit or a facility, by the declared invariants."""
    table = read_table(root / INVARIANTS).drop_columns(["block_geocode"])
    return table.to_pandas().any(axis=1).to_numpy()


def identical_regions(
    regions: Mapping[str, pd.Series], inhabitable: np.ndarray | None
) -> dict[str, dict[str, int]]:
    """Numbers of the sets of regions that cover the same blocks, by region type and id.

    With `inhabitable`, only those blocks count, for regions that have any.
    """
    found: dict[tuple[bool, bytes], list[tuple[str, str]]] = {}
    for region_type, ids in regions.items():
        for region, blocks in ids.groupby(ids).indices.items():
            held = blocks[:0] if inhabitable is None else blocks[inhabitable[blocks]]
            key = bool(held.size), (held if held.size else blocks).tobytes()
            found.setdefault(key, []).append((region_type, str(region)))
    sets: dict[str, dict[str, int]] = {region_type: {} for region_type in regions}
    for number, same in enumerate(same for same in found.values() if len(same) > 1):
        for region_type, region in same:
            sets[region_type][region] = number
    return sets


def counterparts(
    iterations: Mapping[str, Iteration], pairs: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """For 'alone' iterations, the smallest 'in any combination' one of the level that has all of
    their codes."""
    codes = _sets(pairs)
    races = [(code, iterations[code]) for code in codes]
    found = {}
    for code, own in races:
        holding = [
            other
            for other, its in races
            if own.is_alone
            and its.is_alone is False
            and its.level == own.level
            and codes[code] <= codes[other]
        ]
        if holding:
            found[code] = min(holding, key=lambda other: (len(codes[other]), other))
    return found


def stability(
    pairs: Sequence[tuple[str, str]], kept: Mapping[str, Iteration], max_race_codes: int
) -> int:
    """The larger of the production program's bound and the number of groups that a person can
    reach, at least 1."""
    alone, combined, ethnic = (
        [(code, i) for i, code in pairs if i in kept and kept[i].is_alone is kind]
        for kind in (True, False, None)
    )

    def most(found: list[tuple[str, str]]) -> int:
        return max(Counter(code for code, _ in found).values(), default=0)

    groups_of = _sets(combined)

    def reachable(codes: Iterable[str]) -> int:
        """Combination iterations of as many codes, among some, as a person can have."""
        return min(max_race_codes, len(set().union(*(groups_of.get(c, set()) for c in codes))))

    same_alone = _sets((iteration, code) for code, iteration in alone)
    races = max([reachable(groups_of), *(1 + reachable(own) for own in same_alone.values())])
    bound = most(alone) * max(2, max_race_codes) + most(ethnic)
    return max(1, races + bool(ethnic), bound)


def _sets(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The second texts of the pairs by the first."""
    found: dict[str, set[str]] = {}
    for first, second in pairs:
        found.setdefault(first, set()).add(second)
    return found
