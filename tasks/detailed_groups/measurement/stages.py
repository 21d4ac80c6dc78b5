"""The adaptive mechanism (Algorithms 2 and 3 of [SafeTabP2025]), on all groups at once.

In a level with budget b and stability s, a group that is measured by a total only gets noise from
b. Every other group is measured twice: its total with gamma b, and with (1 - gamma) b the table
that this noisy total chooses. The noise of a stage that spends l of the level's budget is the
discrete Gaussian of sigma^2 = s / (2 l) under zCDP, the two-sided geometric of scale s / l under
pure DP.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...ledger.plan import Measure
from ...noise.draws import Noise, NoiseDraws
from ...noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ..ingest.counts import GroupCounts
from ..workload.parameters import MechanismParameters, choose_table
from ..workload.tabulations import NOT_MEASURED, SEX_BY_AGE, Tabulation

Level = tuple[str, int]
"""Region type and iteration level of a population group level."""


@dataclass(frozen=True)
class StageNoise:
    """Noise of the counts of one stage.

    `loss` is the part of the level's budget that the stage spends, None for no noise at all;
    `stability` the number of groups among which one person may spread it; `part` the name under
    which it is charged.
    """

    loss: Fraction | None
    stability: int
    is_pure: bool
    part: str = ""

    @property
    def noise(self) -> Noise:
        """The noise as it is charged and drawn; raises ValueError without noise."""
        if self.loss is None:
            raise ValueError("counts without noise have no noise parameter")
        if self.is_pure:
            return Noise(DISCRETE_LAPLACE, self.stability / self.loss)
        return Noise(DISCRETE_GAUSSIAN, self.stability / (2 * self.loss))

    @property
    def variance(self) -> float:
        """Exact variance of the noise, 0 for none."""
        return 0.0 if self.loss is None else self.noise.variance

    @property
    def plb(self) -> str:
        """The loss as `p/q`, `inf` for no noise."""
        return "inf" if self.loss is None else str(self.loss)

    def measure(self, total: Fraction, n_answers: int | None = None) -> Measure:
        """The counts of the stage in a plan of a total loss; raises ValueError without noise."""
        if self.loss is None:
            raise ValueError("counts without noise cost nothing")
        level, _, query = self.part.rpartition("/")
        share = self.loss / total
        return Measure(
            self.part, self.noise, share, level, query, moved=self.stability, answers=n_answers
        )

    def draw(self, size: int, draws: NoiseDraws) -> np.ndarray:
        """Independent draws, shape (size,), int64."""
        if self.loss is None or size == 0:
            return np.zeros(size, dtype=np.int64)
        return draws.draw(self.part, self.noise, size)


@dataclass(frozen=True)
class LevelNoise:
    """The noise of a population group level: of groups by a total only, and of the two stages.

    Where tables are chosen by totals known before, all noise is `stage_2`.
    """

    total_only: StageNoise
    stage_1: StageNoise
    stage_2: StageNoise

    @property
    def stages(self) -> tuple[StageNoise, ...]:
        """All three noises, or the only one."""
        return tuple(dict.fromkeys((self.total_only, self.stage_1, self.stage_2)))


def level_noise(
    parameters: MechanismParameters, tabulation: Tabulation, level: Level, stability: int
) -> LevelNoise:
    """Noise of a level, charged under its name; no noise if it is switched off."""
    name = "/".join(map(str, level))

    def noise(part: str, share: Fraction) -> StageNoise:
        loss = None if parameters.infinite else parameters.budgets[level] * share
        return StageNoise(loss, stability, parameters.is_pure, part)

    if not tabulation.of_persons:
        one = noise(f"{tabulation.name}/{name}", Fraction(1))
        return LevelNoise(one, one, one)
    gamma = parameters.stage_1_fraction
    shares = {"total only": Fraction(1), "stage 1": gamma, "stage 2": 1 - gamma}
    return LevelNoise(*(noise(f"{name}/{stage}", share) for stage, share in shares.items()))


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
    totals = totals[~groups.is_total_only]
    return totals + noise.draw(totals.size, draws)


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
    drawn = np.empty(true.values.size, dtype=np.int64)
    for mask, stage in ((is_total_only, noise.total_only), (~is_total_only, noise.stage_2)):
        drawn[mask] = stage.draw(int(mask.sum()), draws)
    return MeasuredCounts(table, true.values + drawn, true.offsets)


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
