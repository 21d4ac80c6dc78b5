"""The mechanisms that noise comes from, by the names that settings and files use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

DISCRETE_GAUSSIAN: Final = "discrete_gaussian"
DISCRETE_LAPLACE: Final = "discrete_laplace"


def noise_deviation(query: Mapping[str, str | None]) -> float:
    """Standard deviation of the noise in each answer to a query of `budget_report`.

    That of the continuous distribution: sigma, or sqrt(2) times the scale.
    """
    sigma_squared = query["sigma_squared"]
    if sigma_squared is not None:
        return math.sqrt(Fraction(sigma_squared))
    scale = query["scale"]
    if scale is None:
        raise ValueError("the query has neither a sigma_squared nor a scale")
    return math.sqrt(2) * float(Fraction(scale))
