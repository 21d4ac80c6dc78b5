"""Trade-offs between errors of tests, against the most powerful test of all outcomes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.plan import Measure
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.products.budget import margin_of
from spineflow.tasks.products.privacy_curves import (
    FALSE_POSITIVES,
    curve_points,
    trade_off,
    trade_offs,
)
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.exact_loss import exact_curve
from spineflow.tasks.topdown.workload.privacy_curve import OTHERS, QUESTION, privacy_curve

BUDGET = Budget(
    "persons",
    DISCRETE_GAUSSIAN,
    Fraction(1, 5),
    Fraction(1, 10**6),
    {"Block": Fraction(1)},
    {"Block": {"total": Fraction(1)}},
)


def most_powerful(sigma_squared: float) -> np.ndarray:
    """False negatives of the best test of two counts that move: Neyman and Pearson's lemma."""
    x = np.arange(-40, 41)

    def masses(mean: int) -> np.ndarray:
        weights = np.exp(-((x - mean) ** 2) / (2 * sigma_squared))
        return weights / weights.sum()

    null = np.outer(masses(0), masses(0)).ravel()
    other = np.outer(masses(1), masses(1)).ravel()
    # The likelihood ratio grows with the sum of the outcomes.
    order = np.argsort(-np.add.outer(x, x).ravel(), kind="stable")
    positives = np.concatenate([[0], np.cumsum(null[order])])
    return np.interp(FALSE_POSITIVES, positives, 1 - np.concatenate([[0], np.cumsum(other[order])]))


def test_no_test_is_better_than_the_trade_off_and_the_best_is_near() -> None:
    found = trade_off(exact_curve(BUDGET)).false_negatives
    best = most_powerful(float(1 / BUDGET.total))
    assert (found <= best + 1e-9).all()
    assert (best - found).max() < 0.05
    assert found[0] > 0.99 and found[-1] == 0


def test_no_guess_of_two_records_is_right_more_often_and_the_best_is_as_often() -> None:
    """Whoever guesses the likelier one is right with the mean of both largest probabilities."""
    sigma_squared = float(1 / BUDGET.total)
    x = np.arange(-60, 61)
    masses = np.exp(-(x**2) / (2 * sigma_squared))
    here = np.outer(masses, masses) / masses.sum() ** 2
    there = np.roll(here, (1, 1), axis=(0, 1))
    right = np.maximum(here, there).sum() / 2
    assert trade_off(exact_curve(BUDGET)).told_apart == pytest.approx(right, abs=1e-9)


def test_a_trade_off_is_told_of_every_universe_with_noise() -> None:
    assert exact_curve(replace(BUDGET, infinite=True)) is None
    curve = exact_curve(BUDGET, [BUDGET.geolevel_shares])
    told_apart, suspicions, figure = trade_offs({"persons": curve}, OTHERS, QUESTION)
    percent = math.ceil(100 * trade_off(exact_curve(BUDGET)).told_apart)
    assert f"a probability of at most {percent} % for persons;" in told_apart
    assert "for persons" in suspicions and "by guessing" in figure.svg


def test_points_are_those_of_the_curve_between_its_bounds_and_below_the_conversion() -> None:
    curve = exact_curve(BUDGET)
    points = curve_points(curve, deltas=[1e-9, 1e-3])
    for epsilon, upper, lower, delta in zip(
        points.epsilon, points.upper, points.lower, points.conversion, strict=True
    ):
        assert epsilon == epsilon_tight(BUDGET.total, delta)
        assert upper == pytest.approx(curve.delta_upper(epsilon), rel=1e-3)
        assert curve.delta_lower(epsilon) <= upper < delta
        assert 0.9 * upper < lower <= upper


def test_both_bounds_of_the_exact_curve_are_drawn_beside_the_conversion() -> None:
    svg = privacy_curve([BUDGET], {"persons": exact_curve(BUDGET)}).svg
    for label in ("persons, by rho 0.2", "persons, exactly, at most", "persons, exactly, at least"):
        assert label in svg
    assert "exactly" not in privacy_curve([BUDGET]).svg
    assert privacy_curve([replace(BUDGET, infinite=True)]) is None


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
            parameter = budget.noise(*shares).parameter
            assert coverage(budget, parameter, found) >= 0.95
            assert found == 0 or coverage(budget, parameter, found - 1) < 0.95
