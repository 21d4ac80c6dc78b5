"""Margins of error of noise, and the loss that a margin needs."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction

from .distributions import IntegerDistribution
from .draws import Noise
from .mechanisms import DISCRETE_LAPLACE
from .quantiles import is_too_wide, margin

COVERAGE = Fraction(95, 100)
"""Default probability of margins of error."""

DIGITS = 4
"""Significant digits of a computed loss."""


def distribution_of(noise: Noise) -> IntegerDistribution:
    """The distribution of noise, P(x) proportional to exp(-c |x|^power)."""
    if noise.mechanism == DISCRETE_LAPLACE:
        return IntegerDistribution(1 / noise.parameter, power=1)
    return IntegerDistribution(1 / (2 * noise.parameter), power=2)


def loss_for_margin(
    noise: Noise,
    loss: Fraction,
    target: int,
    unit: Fraction | None = None,
    coverage: Fraction = COVERAGE,
) -> Fraction:
    """The smallest loss, in whole units or else to four significant digits, whose noise stays
    within a margin.

    Sigma^2 and scale are in proportion to one over the loss (rho or epsilon), so that `noise` at
    `loss` determines those at any other. The margin holds with the probability `coverage` at least,
    by exact quantiles; noise that is too wide for these counts as beyond it. Raises ValueError for
    a negative target.

    >>> from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN
    >>> loss_for_margin(Noise(DISCRETE_GAUSSIAN, Fraction(625)), Fraction(1), 49)
    Fraction(49, 50)
    """
    if target < 0:
        raise ValueError("a margin of error cannot be negative")

    def meets(tried: Fraction) -> bool:
        at = Noise(noise.mechanism, noise.parameter * loss / tried)
        distribution = distribution_of(at)
        return not is_too_wide(distribution) and margin(distribution, coverage) <= target

    # Chebyshev's inequality: a standard deviation of a fifth of the target is surely enough.
    high = _round_up(loss * _enough(noise, Fraction(max(2 * target, 1), 2)))
    while not meets(high):
        high *= 2
    while high > (unit or 0) and meets(high / 2):
        high /= 2
    unit = unit or Fraction(10) ** (_exponent(high) - DIGITS)
    first, last = max(int(high / 2 / unit), 1), -(-high // unit)
    found = bisect_left(range(first, last), True, key=lambda n: meets(n * unit)) + first
    return found * unit


def _enough(noise: Noise, target: Fraction) -> Fraction:
    """Factor of the loss at which the noise has a deviation of at most a fifth of the target."""
    if noise.mechanism == DISCRETE_LAPLACE:
        return noise.parameter * 8 / target
    return noise.parameter * 25 / target**2


def _round_up(value: Fraction) -> Fraction:
    unit = Fraction(10) ** (_exponent(value) - DIGITS)
    return -(-value // unit) * unit


def _exponent(value: Fraction) -> int:
    """The least e with value <= 10^e."""
    exponent = len(str(value.numerator)) - len(str(value.denominator))
    while value > Fraction(10) ** exponent:
        exponent += 1
    while value <= Fraction(10) ** (exponent - 1):
        exponent -= 1
    return exponent
