"""What one household moves, by brute force over every neighbour, and the noise of its counts."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from spineflow.tasks.detailed_groups.ingest.counts import CountedPersons, count_groups
from spineflow.tasks.detailed_groups.measurement import ShardGroups, measure_tables, true_counts
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget, level_noise
from spineflow.tasks.detailed_groups.workload.specification import (
    NONE,
    CharacteristicIteration,
    Specification,
    exact_stability,
    iteration_universe,
    stability,
)
from spineflow.tasks.detailed_groups.workload.tabulations import (
    HOUSEHOLD_TABULATIONS,
    N_FINEST,
    NOT_MEASURED,
)
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import SeededRandom

CODES = ("1000", "1001", "1002", "1003", "9000", "9001")
ITERATIONS = (
    CharacteristicIteration("0001", "a alone", 1, True),
    CharacteristicIteration("0002", "a", 1, False),
    CharacteristicIteration("0003", "b", 1, False),
    CharacteristicIteration("0004", "c alone", 1, True, detailed_only=True),
    CharacteristicIteration("0005", "c", 1, False),
    CharacteristicIteration("0006", "e", 1, None),
)
PAIRS = (
    *(("0001", code) for code in ("1000", "1001")),
    *(("0002", "1000"), ("0003", "1001")),
    *(("0004", "1002"), ("0005", "1002"), ("0006", "9000")),
)
SPECIFICATION = Specification(
    {code: code for code in CODES}, {one.code: one for one in ITERATIONS}, PAIRS
)
UNIVERSE = iteration_universe(SPECIFICATION, "detailed", 1)
MOST_CODES = 3
RACES = [races for n in range(1, MOST_CODES + 1) for races in combinations(range(4), n)]
"""Combinations of race codes by their numbers, as sets."""
N_AREAS = 2
REGION_OF_AREA = np.array([0, 1])
HOUSEHOLDS = [
    (area, races, ethnicity, cell)
    for area, races, ethnicity, cell in product(range(N_AREAS), RACES, (4, 5), range(N_FINEST))
]
"""Every household that there can be."""
DATABASE = HOUSEHOLDS[::37]


def counts_of(households, table: np.ndarray, name: str) -> np.ndarray:
    """All counts of a tabulation, of some households."""
    combos = sorted({(races, ethnicity) for _, races, ethnicity, _ in households})
    padded = [[*races, *[NONE] * (MOST_CODES - len(races))] for races, _ in combos]
    rows = sorted((area, combos.index((r, e)), cell) for area, r, e, cell in households)
    area, combination, cell = np.array(rows).T
    persons = CountedPersons(
        np.array(padded),
        np.array([e for _, e in combos]),
        area,
        combination,
        cell,
        np.ones(len(rows), dtype=np.int64),
    )
    (counts,) = count_groups(persons, REGION_OF_AREA, UNIVERSE)
    groups = ShardGroups(0, N_AREAS, np.zeros(len(UNIVERSE), dtype=bool), counts)
    return true_counts(groups, table, HOUSEHOLD_TABULATIONS[name]).values


def chosen(name: str) -> np.ndarray:
    """Tables of all kinds, and groups without one."""
    n_tables = len(HOUSEHOLD_TABULATIONS[name].names)
    n = N_AREAS * len(UNIVERSE)
    table = (np.arange(n) % (n_tables + 1) - 1).astype(np.int8)
    assert set(table.tolist()) == {NOT_MEASURED, *range(n_tables)}
    return table


@pytest.mark.parametrize("name", HOUSEHOLD_TABULATIONS)
def test_one_household_moves_no_more_than_its_groups(name: str) -> None:
    """Of every household that may be added: each group's counts move by one, in one cell.

    Threat model: a household that moves more counts than charged.
    """
    most = exact_stability(UNIVERSE, MOST_CODES)
    assert most == 4 <= stability(UNIVERSE, MOST_CODES)
    n_tables = len(HOUSEHOLD_TABULATIONS[name].names)
    for table in (
        chosen(name),
        np.full(N_AREAS * len(UNIVERSE), n_tables - 1, dtype=np.int8),
        np.zeros(N_AREAS * len(UNIVERSE), dtype=np.int8),
    ):
        before = counts_of(DATABASE, table, name)
        reached = 0
        for household in HOUSEHOLDS:
            moved = counts_of([*DATABASE, household], table, name) - before
            assert set(moved.tolist()) <= {0, 1}
            reached = max(reached, int((moved**2).sum()))
        assert reached <= most
        if (table != NOT_MEASURED).all():
            assert reached == most


@pytest.mark.parametrize("name", HOUSEHOLD_TABULATIONS)
def test_changed_households_move_what_is_charged_and_stated(name: str) -> None:
    """One that is changed into any other moves 2 s in squared L2, two that move together 8 s.

    Threat model: a household that moves more counts than charged.
    """
    most = exact_stability(UNIVERSE, MOST_CODES)
    table = np.full(N_AREAS * len(UNIVERSE), 1, dtype=np.int8)
    rest = DATABASE[1:]
    alone = counts_of(rest, table, name)
    moves = np.unique(
        np.stack([counts_of([*rest, one], table, name) - alone for one in HOUSEHOLDS]), axis=0
    )
    changes = moves[:, None, :] - moves[None, :, :]
    norms = (changes**2).sum(axis=2)
    assert norms.max() == 2 * most
    worst = changes[np.unravel_index(norms.argmax(), norms.shape)]
    assert ((2 * worst) ** 2).sum() == 8 * most
    together = ((worst + changes.reshape(-1, worst.size)) ** 2).sum(axis=1)
    assert together.max() == 8 * most


@pytest.mark.parametrize("is_pure", [False, True])
def test_the_noise_has_its_variance_and_no_other(is_pure: bool) -> None:
    """Every cell of every chosen table has noise of s / (2 b), or its geometric; a tenth less or
    more is told apart, and groups without a table have none.
    """
    name, s, budget = "t3", 9, Fraction("0.142869")
    tabulation = HOUSEHOLD_TABULATIONS[name]
    n_regions = 6000
    table = np.tile(chosen(name), n_regions // N_AREAS)
    counts = next(iter(count_groups(_one_household(), REGION_OF_AREA, UNIVERSE)))
    groups = ShardGroups(0, n_regions, np.zeros(len(UNIVERSE), dtype=bool), counts)
    own = LevelBudget(budget, s, Fraction(0), is_pure)
    of_level = level_noise(own, tabulation, ("TRACT", 2), budget)
    (noise,) = of_level.stages
    draws = UnchargedNoise(SeededRandom(4, "households"))
    measured = measure_tables(groups, table, tabulation, of_level, draws)
    drawn = measured.values - true_counts(groups, table, tabulation).values
    assert drawn.size == tabulation.n_cells[table[table >= 0]].sum() > 60_000
    rate = float(budget) / s
    due = s / (2 * float(budget)) if not is_pure else 1 / (2 * math.sinh(rate / 2) ** 2)
    assert noise.variance == pytest.approx(due, rel=1e-6)
    squares = drawn.astype(float) ** 2
    error = squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - due) < 5 * error
    for wrong in (0.9 * due, 1.1 * due):
        assert abs(squares.mean() - wrong) > 5 * error


def _one_household() -> CountedPersons:
    """A single one, in the second region."""
    one = np.zeros(1, dtype=np.int64)
    return CountedPersons(np.array([[0, NONE, NONE]]), np.array([4]), one, one, one, one + 1)
