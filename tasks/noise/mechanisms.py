"""The mechanisms that noise comes from, by the names that settings and files use."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

DISCRETE_GAUSSIAN: Final = "discrete_gaussian"
DISCRETE_LAPLACE: Final = "discrete_laplace"

EXACT_VARIANCE_SIGMA_SQUARED = 8
"""From here the variance is sigma^2 to within exp(-2 pi^2 8), far below a float's resolution."""


@lru_cache(maxsize=1024)
def noise_variance(mechanism: str, parameter: Fraction) -> float:
    """Exact variance of the noise, as the nearest float up to rounding in the last digits.

    The discrete Gaussian's is sum x^2 w(x) / sum w(x), which falls visibly short of sigma^2 only
    below sigma^2 of about 2; the discrete Laplace's is 1 / (cosh(1 / scale) - 1).
    """
    if mechanism == DISCRETE_LAPLACE:
        half_inverse = float(1 / (2 * parameter))
        return 1 / (2 * math.sinh(half_inverse) ** 2) if half_inverse < 350 else 0.0
    if parameter >= EXACT_VARIANCE_SIGMA_SQUARED:
        return float(parameter)
    # Quotients of integers are rounded as a fraction is, and cost a tenth.
    above, below = parameter.denominator, 2 * parameter.numerator
    weights = [math.exp(-(x * x * above / below)) for x in range(1, 200)]
    second_moment = math.fsum(x * x * w for x, w in enumerate(weights, 1))
    return 2 * second_moment / (1 + 2 * math.fsum(weights))
