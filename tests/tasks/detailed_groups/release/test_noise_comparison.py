"""Gaussian against geometric noise at the margins of the production run."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from spineflow.tasks.detailed_groups.release.figures import compare_noise, narrowest
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget
from spineflow.tasks.noise.quantiles import margin

COVERAGE, GAMMA = Fraction(95, 100), Fraction(1, 10)
PRODUCTION = [
    LevelBudget(Fraction(budget), 9, GAMMA)
    for budget in (*["2.134"] * 2, *["0.159"] * 4, *["0.008"] * 5)
]


@pytest.mark.parametrize("is_pure", [False, True])
@pytest.mark.parametrize("due", [3, 10, 49, 146])
def test_noise_of_a_margin_is_the_narrowest(due: int, is_pure: bool) -> None:
    noise = narrowest(due, COVERAGE, is_pure=is_pure)
    assert margin(noise, COVERAGE) == due
    if is_pure:
        # P(|X| > m) = 2 r^(m + 1) / (1 + r), r = exp(-c).
        r = math.exp(-float(noise.c))
        assert 2 * r ** (due + 1) / (1 + r) == pytest.approx(0.05, rel=1e-3)


def test_the_production_run_gains_a_quarter_and_a_level_alone_may_lose() -> None:
    """[SafeTabP2025] speaks of some 7 %, without the delta, the levels or the neighbours."""
    whole, changed = compare_noise(PRODUCTION, COVERAGE)
    assert (whole["neighbors"], changed["neighbors"]) == ("unbounded", "bounded")
    assert whole["gained"] == pytest.approx(0.246, abs=0.002)
    assert changed["gained"] == pytest.approx(0.317, abs=0.002)
    alone, alone_changed = compare_noise(PRODUCTION[:1], COVERAGE)
    assert alone["gained"] == pytest.approx(-0.20, abs=0.01)
    assert alone_changed["gained"] == pytest.approx(0.10, abs=0.01)
    at_6, _ = compare_noise(PRODUCTION[:1], COVERAGE, Fraction(1, 10**6))
    assert at_6["gained"] == pytest.approx(0.079, abs=0.005)
