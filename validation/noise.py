"""Variances of discrete noise, summed up in floating point, apart from the code that draws it."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

_LARGE = 100
"""Above this sigma^2 the variance of the discrete Gaussian differs from it by less than a float: by
Poisson's summation formula by less than exp(-2 pi^2 sigma^2)."""


@lru_cache(maxsize=1 << 12)
def gaussian_variance(sigma_squared: Fraction | float) -> float:
    """Variance of the discrete Gaussian, P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers.

    >>> round(gaussian_variance(Fraction(1, 4)), 4)
    0.2132
    """
    wide = float(sigma_squared)
    if wide > _LARGE:
        return wide
    weights = [math.exp(-(x**2) / (2 * wide)) for x in range(1, 1000)]
    return 2 * math.fsum(x**2 * w for x, w in enumerate(weights, 1)) / (1 + 2 * math.fsum(weights))


def laplace_variance(scale: Fraction | float) -> float:
    """Variance of the discrete Laplace, P(x) ~ exp(-|x| / scale) on the integers."""
    rate = 1 / float(scale)
    return 2 * math.exp(-rate) / math.expm1(-rate) ** 2
