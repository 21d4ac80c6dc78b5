"""Margins of error that set budgets: rho of a count whose noise has a given margin.

A count that moves by at most s has with rho the variance sigma^2 = s^2 / (2 rho), and noise of that
variance is within a margin m with the probability of confidence, if m = z sigma; so
rho = s^2 z^2 / (2 m^2). As in production, z has three decimals (1.645 for 90 %), and rho six.
"""

from __future__ import annotations

from fractions import Fraction
from statistics import NormalDist

CONFIDENCE = Fraction(9, 10)
Z_DECIMALS, RHO_DECIMALS = 1000, 1_000_000


def quantile(confidence: Fraction) -> Fraction:
    """z, to three decimals, with which a normal deviation is within z with that probability.

    >>> quantile(Fraction(9, 10))
    Fraction(329, 200)
    """
    z = NormalDist().inv_cdf((1 + float(confidence)) / 2)
    return Fraction(round(z * Z_DECIMALS), Z_DECIMALS)


def rho_for_margin(stability: int, margin: int, confidence: Fraction = CONFIDENCE) -> Fraction:
    """rho, to six decimals, at which a count of some stability has a margin of error.

    Raises ValueError where that is 0: the margin is too wide to be a budget.

    >>> rho_for_margin(22, 68)
    Fraction(70811, 500000)
    """
    exact = Fraction(stability**2) * quantile(confidence) ** 2 / (2 * margin**2)
    rho = Fraction(round(exact * RHO_DECIMALS), RHO_DECIMALS)
    if rho == 0:
        raise ValueError(f"a margin of {margin} is wider than any budget makes it")
    return rho


def margin_of(variance: float, confidence: Fraction = CONFIDENCE) -> float:
    """The margin of error of noise of some variance."""
    return float(quantile(confidence)) * variance**0.5
