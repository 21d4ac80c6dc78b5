"""The adaptive mechanism (Algorithms 2 and 3 of [SafeTabP2025]), on all groups at once.

In a level with budget b and stability s, a group that is measured by a total only gets noise from
b. Every other group is measured twice: its total with gamma b, and with (1 - gamma) b the table
that this noisy total chooses. The noise of a stage that spends l of the level's budget is the
discrete Gaussian of sigma^2 = s / (2 l) under zCDP, the two-sided geometric of scale s / l under
pure DP.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...noise.draws import NoiseDraws
from ...products.measurement import with_noise
from ..ingest.counts import GroupCounts
from ..workload.budgets import LevelNoise, StageNoise
from ..workload.parameters import choose_table
from ..workload.tabulations import NOT_MEASURED, SEX_BY_AGE, Tabulation


@dataclass(frozen=True)
class ShardGroups:
    """The groups of a shard: `n_regions` consecutive regions from `start`, each with every
    iteration. A group's position is (region - start) * n_iterations + iteration.

    `total_only` is the mask of the iterations measured by a total only, shape (n_iterations,);
    `counts` are confidential.
    """

    start: int
    n_regions: int
    total_only: np.ndarray
    counts: GroupCounts

    @property
    def is_total_only(self) -> np.ndarray:
        """Mask of the groups measured by a total only, shape (n_groups,)."""
        return np.tile(self.total_only, self.n_regions)

    @property
    def group_of_count(self) -> np.ndarray:
        """Position of the group of each count."""
        region = self.counts.region.astype(np.int64) - self.start
        return region * self.total_only.size + self.counts.iteration


@dataclass(frozen=True)
class MeasuredCounts:
    """Counts of some groups one after the other.

    `table` (n_groups,) int8; `values` holds the cells of that table for each group, for sex by age
    row-major; `offsets` (n_groups + 1,) marks the start of each group's.
    """

    table: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


def measure_totals(groups: ShardGroups, noise: StageNoise, draws: NoiseDraws) -> np.ndarray:
    """Stage 1: noisy totals of the groups that are not measured by a total only, in their order."""
    totals = true_counts(groups, np.zeros(groups.is_total_only.size, dtype=np.int8)).values
    return with_noise(totals[~groups.is_total_only], noise.noise, draws, noise.part)


def tables_by_totals(
    groups: ShardGroups, noisy_totals: np.ndarray, thresholds: tuple[int, ...]
) -> np.ndarray:
    """The table of each group that its noisy total chose, or its total only; (n_groups,), int8.

    `noisy_totals` are the outcome of `measure_totals`.
    """
    table = np.zeros(groups.is_total_only.size, dtype=np.int8)
    table[~groups.is_total_only] = choose_table(noisy_totals, thresholds)
    return table


def measure_tables(
    groups: ShardGroups,
    table: np.ndarray,
    tabulation: Tabulation,
    noise: LevelNoise,
    draws: NoiseDraws,
) -> MeasuredCounts:
    """The table of each group with noise in all cells, empty ones too; `NOT_MEASURED` groups have
    no table.
    """
    true = true_counts(groups, table, tabulation)
    is_total_only = np.repeat(groups.is_total_only, np.diff(true.offsets))
    values = np.empty_like(true.values)
    for mask, stage in ((is_total_only, noise.total_only), (~is_total_only, noise.stage_2)):
        values[mask] = with_noise(true.values[mask], stage.noise, draws, stage.part)
    return replace(true, values=values)


def true_counts(
    groups: ShardGroups, table: np.ndarray, tabulation: Tabulation = SEX_BY_AGE
) -> MeasuredCounts:
    """The counts without noise, of the tables given for each group; confidential.

    Groups of the table `NOT_MEASURED` have no counts.
    """
    offsets = tabulation.offsets(table)
    group = groups.group_of_count
    is_measured = table[group] != NOT_MEASURED
    group, cell = group[is_measured], groups.counts.cell[is_measured]
    values = np.zeros(offsets[-1], dtype=np.int64)
    where = offsets[group] + tabulation.cell_of[table[group], cell]
    np.add.at(values, where, groups.counts.count[is_measured])
    return MeasuredCounts(table, values, offsets)
