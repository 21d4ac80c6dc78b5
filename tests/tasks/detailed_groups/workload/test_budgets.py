"""Budgets, margins of error and thresholds: the paper's Tables 6 and 7."""

from __future__ import annotations

from fractions import Fraction

import pytest
from spineflow.tasks.detailed_groups.postprocess.stages import threshold_of
from spineflow.tasks.detailed_groups.workload.budgets import (
    LevelBudget,
    budget_by_formula,
    margin_by_formula,
    target_of,
)
from spineflow.tasks.noise.margins import COVERAGE
from spineflow.tasks.noise.quantiles import margin

GAMMA = Fraction(1, 10)
STABILITY = 9
CHANCE = Fraction("0.9999")

TABLE_6 = [("0.008", 93), ("0.159", 21), ("0.543", 11)]
"""Budget of a level, suppression threshold."""

TABLE_7 = [
    (3, "1.921", "2.134", "3.842", "4.268"),
    (11, "0.143", "0.159", "0.286", "0.318"),
    (50, "0.007", "0.008", "0.014", "0.016"),
]
"""Margin, and loss of the second stage and in all: unbounded, then bounded neighbours."""


def level(loss: str | Fraction) -> LevelBudget:
    return LevelBudget(Fraction(loss), STABILITY, GAMMA)


@pytest.mark.parametrize(("loss", "threshold"), TABLE_6)
def test_table_6(loss: str, threshold: int) -> None:
    assert threshold_of("TRACT", level(loss).second_stage, CHANCE) == threshold


@pytest.mark.parametrize(("target", "second", "total", "bounded_second", "bounded_total"), TABLE_7)
def test_table_7(target, second, total, bounded_second, bounded_total) -> None:
    due = budget_by_formula(level(1), target)
    assert round(due, 3) == Fraction(total)
    assert round(due * (1 - GAMMA), 3) == Fraction(second)
    assert 2 * round(due, 3) == Fraction(bounded_total)
    assert 2 * round(due * (1 - GAMMA), 3) == Fraction(bounded_second)


@pytest.mark.parametrize(
    ("loss", "target", "exact", "by_formula"),
    [("2.134", 3, 3, 3), ("0.159", 11, 11, 10), ("0.008", 50, 49, 49)],
)
def test_margins_of_the_production_budgets(loss, target, exact, by_formula) -> None:
    """The formula's 10 does not cover 95 %; the exact 11 does."""
    assert target_of(level(loss)) == target
    assert margin(level(loss).second_stage, COVERAGE) == exact
    assert margin_by_formula(level(loss)) == by_formula
    assert exact <= target


@pytest.mark.parametrize(
    ("full", "first", "second", "loss"),
    [
        ("562.5", "5625", "625", "0.008"),
        ("2.1087", "21.087", "2.3430", "2.134"),
        ("28.30", "283.02", "31.447", "0.159"),
    ],
)
def test_variances_of_the_production_run(full, first, second, loss) -> None:
    for expected, share in ((full, Fraction(1)), (first, GAMMA), (second, 1 - GAMMA)):
        found = float(level(loss).noise(share).parameter)
        assert found == pytest.approx(float(expected), rel=2e-4)
