"""Margins of error of topdown's answers, against sums of the exact probabilities."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.ledger.plan import Measure
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.products.budget import margin_of
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.costs import total_for_margin


def budget_of(mechanism: str, total: str) -> Budget:
    return Budget(
        "persons",
        mechanism,
        Fraction(total),
        None if mechanism == DISCRETE_LAPLACE else Fraction(1, 10**10),
        {"State": Fraction(3, 4), "Block": Fraction(1, 4)},
        {
            "State": {"total": Fraction(1, 3), "detailed": Fraction(2, 3)},
            "Block": {"total": Fraction(1)},
        },
    )


def coverage(budget: Budget, parameter: Fraction, margin: int) -> float:
    x = np.arange(-4000, 4001)
    scale = float(parameter)
    weights = np.exp(-np.abs(x) / scale if budget.is_pure else -(x**2) / (2 * scale))
    return weights[np.abs(x) <= margin].sum() / weights.sum()


@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
@pytest.mark.parametrize("total", ["1/50", "1", "37/10"])
def test_margins_are_the_first_that_cover(mechanism: str, total: str) -> None:
    budget = budget_of(mechanism, total)
    for geolevel, queries in budget.query_shares.items():
        for share in queries.values():
            shares = (budget.geolevel_shares[geolevel], share)
            found = margin_of(Measure("", budget.noise(*shares)))
            parameter = budget.noise_parameter(*shares)
            assert coverage(budget, parameter, found) >= 0.95
            assert found == 0 or coverage(budget, parameter, found - 1) < 0.95


@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
@pytest.mark.parametrize("target", [0, 1, 3, 10, 200])
def test_the_total_for_a_margin_is_the_smallest(mechanism: str, target: int) -> None:
    budget = budget_of(mechanism, "1")
    total = total_for_margin(budget, "State", "detailed", target)
    shares = (Fraction(3, 4), Fraction(2, 3))
    assert margin_of(Measure("", replace(budget, total=total).noise(*shares))) <= target
    below = total - Fraction(1, 1000)
    assert (
        below <= 0 or margin_of(Measure("", replace(budget, total=below).noise(*shares))) > target
    )


def test_queries_that_are_not_asked_have_no_margin() -> None:
    with pytest.raises(ValueError, match="not asked"):
        total_for_margin(budget_of(DISCRETE_GAUSSIAN, "1"), "Block", "detailed", 3)
