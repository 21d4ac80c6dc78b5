"""Exact discrete Gaussian and discrete Laplace noise, vectorised.

Both distributions are sampled exactly, not to within floating-point error, for any positive
rational parameter, with randomness from a `RandomSource`:

- at small and moderate scales by inversion of a certain table (`inversion`), which takes the
  system's random bits two bytes a draw;
- at large scales by a tabulated coarse part, fine bits and exact rejection (`rejection`).

The argument for exactness is in those two modules: every comparison is between integers whose
bounds are rigorous, and where 64 bits do not decide, more bits of the same uniform are drawn
until they do. The reference is [DiscreteGaussian2020], whose rejection sampler has the same
distribution.

The kernels release the GIL. No state survives a call except immutable tables, so calls are safe
in any mixture of threads, processes and forks. The time of a call depends on the values drawn,
slightly and for a whole vector at a time.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from .distributions import IntegerDistribution
from .inversion import InversionTable, build_table
from .mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from .randomness import RandomSource
from .rejection import CoarseFineSampler, build_coarse_fine

LARGEST_TABLE_SIGMA_SQUARED = 1 << 20
LARGEST_TABLE_SCALE = 1 << 8
"""Parameters up to which all thresholds are tabulated; beyond, `rejection` is faster."""


def draw_noise(mechanism: str, parameter: Fraction, size: int, source: RandomSource) -> np.ndarray:
    """Draws of a mechanism with sigma^2 or the scale as parameter, shape `(size,)`, int64.

    P(x) is proportional to exp(-x^2 / (2 sigma^2)) of the discrete Gaussian, and to
    exp(-|x| / scale) of the discrete Laplace. Raises TypeError for a parameter that is not an exact
    fraction, ValueError for one that is not positive (a query with a share of zero is not
    measured), OverflowError for a draw beyond 64 bits.

    >>> from spineflow.tasks.noise.randomness import SystemRandom
    >>> draw_noise(DISCRETE_GAUSSIAN, Fraction(10), 3, SystemRandom()).shape
    (3,)
    """
    return _sampler(mechanism, _positive(parameter)).draw(size, source)


@lru_cache(maxsize=256)
def _sampler(mechanism: str, parameter: Fraction) -> InversionTable | CoarseFineSampler:
    if mechanism == DISCRETE_GAUSSIAN:
        distribution = IntegerDistribution(1 / (2 * parameter), 2)
        if parameter <= LARGEST_TABLE_SIGMA_SQUARED:
            return build_table(distribution)
        return build_coarse_fine(distribution, parameter)
    if mechanism != DISCRETE_LAPLACE:
        raise ValueError(f"there is no mechanism {mechanism!r}")
    distribution = IntegerDistribution(1 / parameter, 1)
    if parameter <= LARGEST_TABLE_SCALE:
        return build_table(distribution)
    return build_coarse_fine(distribution, parameter**2)


def _positive(parameter: Fraction) -> Fraction:
    if isinstance(parameter, bool) or not isinstance(parameter, int | Fraction):
        raise TypeError(f"noise needs an exact Fraction, not {type(parameter).__name__}")
    if parameter <= 0:
        raise ValueError("noise must be positive; a query with a share of 0 is not measured")
    return Fraction(parameter)
