"""The adaptive mechanism: exact without noise, and with the right noise in each stage."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.detailed_groups.ingest.counts import CELLS, GroupCounts
from spineflow.tasks.detailed_groups.measurement import (
    MeasuredCounts,
    ShardGroups,
    measure_tables,
    measure_totals,
    tables_by_totals,
)
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget, LevelNoise, level_noise
from spineflow.tasks.detailed_groups.workload.parameters import NEVER
from spineflow.tasks.detailed_groups.workload.tabulations import N_CELLS, SEX_BY_AGE, cells_of_table
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import SeededRandom

STABILITY = 9
GAMMA = Fraction(1, 10)
BUDGET = Fraction("0.159")
EMPTY = GroupCounts(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


def noise_of(definition: str, *, infinite: bool = False) -> LevelNoise:
    budget = LevelBudget(BUDGET, STABILITY, GAMMA, definition == "puredp")
    return level_noise(budget, SEX_BY_AGE, ("TRACT", 2), BUDGET, infinite=infinite)


def measured_by(groups, totals, thresholds, noise, draws) -> MeasuredCounts:
    """The tables that noisy totals choose, measured."""
    table = tables_by_totals(groups, totals, thresholds)
    return measure_tables(groups, table, SEX_BY_AGE, noise, draws)


def empty_groups(n_regions: int, total_only: list[bool]) -> ShardGroups:
    return ShardGroups(0, n_regions, np.array(total_only), EMPTY)


def random_groups(n_regions: int = 5, n_iterations: int = 7, n_counts: int = 600) -> ShardGroups:
    random = np.random.default_rng(5)
    key = random.choice(n_regions * n_iterations * CELLS, n_counts, replace=False)
    key.sort()
    group, cell = np.divmod(key, CELLS)
    region, iteration = np.divmod(group, n_iterations)
    count = random.integers(1, 9, n_counts)
    return ShardGroups(
        3,
        n_regions,
        np.arange(n_iterations) % 3 == 1,
        GroupCounts(region + 3, iteration, cell, count),
    )


def variance_of(definition: str, loss: Fraction) -> float:
    """Of the continuous Gaussian, or of the two-sided geometric."""
    if definition == "zcdp":
        return float(STABILITY / (2 * loss))
    ratio = math.exp(-float(loss) / STABILITY)
    return 2 * ratio / (1 - ratio) ** 2


def is_of_variance(sample: np.ndarray, variance: float) -> bool:
    """Whether the second moment fits, within five of its own standard errors."""
    squares = sample.astype(float) ** 2
    error = squares.std() / math.sqrt(sample.size)
    return abs(squares.mean() - variance) < 5 * error


def assert_variance(sample: np.ndarray, variance: float) -> None:
    """The right variance is accepted; one that is 10 % off is not."""
    assert is_of_variance(sample, variance)
    assert not is_of_variance(sample, 1.1 * variance)
    assert not is_of_variance(sample, 0.9 * variance)
    assert abs(sample.mean()) < 5 * math.sqrt(variance / sample.size)


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_noise_of_stage_1_is_that_of_its_share(definition: str) -> None:
    groups = empty_groups(40_000, [False, True, False])
    noise = noise_of(definition).stage_1
    totals = measure_totals(groups, noise, UnchargedNoise(SeededRandom(1)))
    assert totals.size == 80_000
    assert_variance(totals, variance_of(definition, BUDGET * GAMMA))
    assert noise.variance == pytest.approx(variance_of(definition, BUDGET * GAMMA), 1e-6)
    assert Fraction(noise.part_of(BUDGET)) == BUDGET * GAMMA


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
@pytest.mark.parametrize("table", [0, 1, 2, 3])
def test_noise_of_stage_2_is_that_of_its_share_in_every_table(definition: str, table: int) -> None:
    n = 120_000 // N_CELLS[table]
    groups = empty_groups(n, [False])
    noise = noise_of(definition)
    thresholds = tuple([-NEVER] * table + [NEVER] * (3 - table))
    measured = measured_by(
        groups, np.zeros(n, int), thresholds, noise, UnchargedNoise(SeededRandom(2))
    )
    assert (measured.table == table).all()
    assert measured.values.size == n * N_CELLS[table]
    assert_variance(measured.values, variance_of(definition, BUDGET * (1 - GAMMA)))
    variance = variance_of(definition, BUDGET * (1 - GAMMA))
    assert noise.stage_2.variance == pytest.approx(variance, 1e-6)


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_noise_of_groups_by_a_total_only_is_that_of_the_whole_budget(definition: str) -> None:
    groups = empty_groups(60_000, [True, False])
    measured = measured_by(
        groups,
        np.full(60_000, 25),
        (10, 20, 30),
        noise_of(definition),
        UnchargedNoise(SeededRandom(3)),
    )
    assert measured.table.tolist() == [0, 2] * 60_000
    own = measured.values[measured.offsets[:-1][groups.is_total_only]]
    assert_variance(own, variance_of(definition, BUDGET))


def test_gaussian_and_geometric_noise_are_told_apart() -> None:
    """Fourth moments: 3 for the Gaussian, 6 for the geometric."""
    groups = empty_groups(80_000, [False])
    for definition, kurtosis in (("zcdp", 3), ("puredp", 6)):
        noise = noise_of(definition).stage_1
        sample = measure_totals(groups, noise, UnchargedNoise(SeededRandom(4))).astype(float)
        found = (sample**4).mean() / (sample**2).mean() ** 2
        assert abs(found - kurtosis) < 0.5


def test_stages_have_independent_noise() -> None:
    n = 50_000
    groups, noise = empty_groups(n, [False]), noise_of("zcdp")
    first = measure_totals(groups, noise.stage_1, UnchargedNoise(SeededRandom(5, "1")))
    second = measured_by(
        groups, first, (NEVER,) * 3, noise, UnchargedNoise(SeededRandom(5, "2"))
    ).values
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(n)


def test_tables_follow_the_noisy_totals_alone() -> None:
    groups = random_groups()
    n = int((~groups.is_total_only).sum())
    totals = np.random.default_rng(1).integers(-5, 45, n)
    for noise in (noise_of("zcdp"), noise_of("zcdp", infinite=True)):
        table = measured_by(
            groups, totals, (10, 20, 30), noise, UnchargedNoise(SeededRandom(6))
        ).table
        expected = np.digitize(totals, [10, 20, 30])
        assert table[~groups.is_total_only].tolist() == expected.tolist()
        assert not table[groups.is_total_only].any()


def test_without_noise_counts_are_exact() -> None:
    groups = random_groups()
    noise = noise_of("zcdp", infinite=True)
    dense = np.zeros((groups.is_total_only.size, CELLS), dtype=np.int64)
    np.add.at(dense, (groups.group_of_count, groups.counts.cell), groups.counts.count)
    totals = measure_totals(groups, noise.stage_1, UnchargedNoise(SeededRandom(7)))
    assert totals.tolist() == dense.sum(axis=1)[~groups.is_total_only].tolist()
    measured = measured_by(groups, totals, (20, 80, 110), noise, UnchargedNoise(SeededRandom(7)))
    assert len(set(measured.table)) > 2
    for position, table in enumerate(measured.table):
        own = measured.values[measured.offsets[position] : measured.offsets[position + 1]]
        expected = np.zeros(N_CELLS[table], dtype=np.int64)
        np.add.at(expected, cells_of_table(table), dense[position])
        assert own.tolist() == expected.tolist()
    assert (noise.stage_2.variance, noise.stage_2.part_of(BUDGET)) == (0.0, "inf")
