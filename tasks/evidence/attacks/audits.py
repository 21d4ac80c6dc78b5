"""A lower bound of a privacy loss from what an attack got right in one run.

m records were put in or left out, or replaced, by coin, and r of them guessed [OneRunAudit2023].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom


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
