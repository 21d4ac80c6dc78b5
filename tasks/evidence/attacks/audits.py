"""Lower bounds of a privacy loss from what attacks got right: audits of many runs, and of one.

Many runs: a test told n_in runs with a record from n_out runs without it. One run
[OneRunAudit2023]: m records were put in or left out by coin, and r of them were guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, norm

from .membership import clopper_pearson


@dataclass(frozen=True)
class Verdicts:
    """Runs with the record, and of how many the test said so; runs without it, likewise."""

    inside: int
    true_positives: int
    outside: int
    false_positives: int

    def bounds(self, alpha: float) -> tuple[float, float]:
        """The least true and the greatest false positive rate, each with error alpha / 2."""
        true = clopper_pearson(self.true_positives, self.inside, alpha)
        false = clopper_pearson(self.false_positives, self.outside, alpha)
        return true.low, false.high


def epsilon_bound(verdicts: Verdicts, *, delta: float = 0.0, alpha: float = 0.05) -> float:
    """epsilon >= ln((TPR_low - delta) / FPR_up) with confidence 1 - alpha; 0 if that is less.

    A perfect attack on 1,000 runs each shows 5.60 and no more.
    """
    true, false = verdicts.bounds(alpha)
    return max(0.0, math.log((true - delta) / false)) if true > delta else 0.0


def mu_bound(verdicts: Verdicts, *, alpha: float = 0.05) -> float:
    """mu >= z(TPR_low) - z(FPR_up) with confidence 1 - alpha, and rho = mu^2 / 2; 0 if less."""
    true, false = verdicts.bounds(alpha)
    return max(0.0, float(norm.ppf(true) - norm.ppf(false)))


def one_run_p_value(
    right: int, guesses: int, epsilon: float, *, delta: float = 0.0, canaries: int = 0
) -> float:
    """Chance, at most, of so many right guesses in one run of an (epsilon, delta) mechanism.

    P[B >= v] + 2 m delta max over i of P[v > B >= v - i] / i, where B is binomial with r guesses
    and chance e^epsilon / (1 + e^epsilon), m the canaries [OneRunAudit2023].
    """
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return tail
    lacking = np.arange(1, right + 1)
    between = np.cumsum(binom.pmf(right - lacking, guesses, chance))
    return min(1.0, tail + 2 * canaries * delta * float((between / lacking).max()))


def one_run_epsilon_bound(
    right: int,
    guesses: int,
    *,
    delta: float = 0.0,
    canaries: int = 0,
    alpha: float = 0.05,
) -> float:
    """The greatest epsilon that the right guesses refute with confidence 1 - alpha; 0 if none."""

    def excess(epsilon: float) -> float:
        return one_run_p_value(right, guesses, epsilon, delta=delta, canaries=canaries) - alpha

    if excess(0.0) >= 0:
        return 0.0
    top = 1.0
    while excess(top) < 0:
        top *= 2
    return float(brentq(excess, 0.0, top, xtol=1e-9))
