"""The mechanisms that noise comes from, by the names that settings and files use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

DISCRETE_GAUSSIAN = "discrete_gaussian"
DISCRETE_LAPLACE = "discrete_laplace"


def noise_deviation(query: Mapping[str, str | None]) -> float:
    """Standard deviation of the noise in each answer to a query of `budget_report`.

    That of the continuous distribution: sigma, or sqrt(2) times the scale.
    """
    if query["sigma_squared"] is not None:
        return math.sqrt(Fraction(query["sigma_squared"]))
    return math.sqrt(2) * float(Fraction(query["scale"]))
