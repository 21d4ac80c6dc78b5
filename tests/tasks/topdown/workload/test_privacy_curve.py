"""Trade-offs between errors of tests, against the most powerful test of all outcomes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.privacy_curve import FALSE_POSITIVES, trade_off, trade_offs

BUDGET = Budget(
    "persons",
    DISCRETE_GAUSSIAN,
    Fraction(1, 5),
    Fraction(1, 10**6),
    {"Block": Fraction(1)},
    {"Block": {"total": Fraction(1)}},
)

PATHS = dict.fromkeys(("persons", "units"), [BUDGET.geolevel_shares])


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
    found, best = trade_off(BUDGET), most_powerful(float(1 / BUDGET.total))
    assert (found <= best + 1e-9).all()
    assert (best - found).max() < 0.05
    assert found[0] > 0.99 and found[-1] == 0


def test_without_noise_there_is_no_trade_off() -> None:
    bare = replace(BUDGET, universe="units", infinite=True)
    assert trade_off(bare) is None and trade_offs([bare], PATHS) is None
    sentence, figure = trade_offs([BUDGET, bare], PATHS)
    assert "for persons" in sentence and "by guessing" in figure.svg
