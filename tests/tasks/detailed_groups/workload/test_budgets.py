"""Budgets, margins of error and thresholds: the paper's Table 6."""

from __future__ import annotations

from fractions import Fraction

import pytest
from spineflow.tasks.detailed_groups.postprocess import threshold_of
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget
from spineflow.tasks.noise.quantiles import COVERAGE, margin

GAMMA = Fraction(1, 10)
STABILITY = 9
CHANCE = Fraction("0.9999")

TABLE_6 = [("0.008", 93), ("0.159", 21), ("0.543", 11)]
"""Budget of a level, suppression threshold."""


def level(loss: str | Fraction) -> LevelBudget:
    return LevelBudget(Fraction(loss), STABILITY, GAMMA)


@pytest.mark.parametrize(("loss", "threshold"), TABLE_6)
def test_table_6(loss: str, threshold: int) -> None:
    assert threshold_of("TRACT", level(loss).second_stage, CHANCE) == threshold


@pytest.mark.parametrize(("loss", "due"), [("2.134", 3), ("0.159", 11), ("0.008", 49)])
def test_margins_of_the_production_budgets(loss: str, due: int) -> None:
    assert margin(level(loss).second_stage, COVERAGE) == due


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
