"""Margins of noisy counts and their sums, and thresholds of suppression, in floating point.

Apart from the code that releases them, from the noise that a count's loss implies: its
probabilities are tabulated, and convolved by a Fourier transform.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from .universe import CountNoise

_ROUNDING = 1e-9
"""Tolerance of probabilities: either of two margins is accepted where the coverage is as near to
the threshold of one."""


@lru_cache(maxsize=1024)
def margins_of_sum(noise: CountNoise, n: int, coverage: Fraction) -> tuple[int, int]:
    """The least and the largest number that may be the margin of a sum of n noisy counts.

    They are equal but for rounding.
    """
    if noise.rate is None:
        return 0, 0
    rate = float(noise.rate)
    # The probability beyond this is less than 1e-12, for one count and for the sum.
    reach = (0.6 * n + 60) / rate if noise.power == 1 else math.sqrt(30 * n / rate)
    x = np.arange(math.ceil(reach) + 3)
    weights = np.exp(-rate * x.astype(float) ** noise.power)
    wrapped = np.concatenate([weights, weights[:0:-1]])
    of_sum = np.fft.irfft(np.fft.rfft(wrapped / wrapped.sum()) ** n, wrapped.size)
    within = 2 * np.cumsum(of_sum[: x.size]) - of_sum[0]
    bounds = [float(coverage) - _ROUNDING, float(coverage) + _ROUNDING]
    least, largest = np.searchsorted(within, bounds)
    return int(least), int(largest)


@lru_cache(maxsize=1024)
def margins_of_cut_sum(noise: CountNoise, n: int, coverage: Fraction) -> tuple[int, int]:
    """The least and the largest number that may be the margin of a sum of n noisy counts that were
    cut at 0, for any counts.

    The error of such a sum is at least the sum of the draws and at most the sum of their positive
    parts, so that either tail is the tail of one of these.
    """
    if noise.rate is None:
        return 0, 0
    rate = float(noise.rate)
    reach = (3 * n + 60) / rate if noise.power == 1 else math.sqrt(n * (n + 30) / rate)
    reach = math.ceil(reach) + 2
    x = np.arange(-reach, reach)
    weights = np.exp(-rate * np.abs(x).astype(float) ** noise.power)
    weights /= weights.sum()
    cut = np.concatenate([np.zeros(reach), [weights[: reach + 1].sum()], weights[reach + 1 :]])
    tails = []
    for own in (weights, cut):
        of_sum = np.fft.irfft(np.fft.rfft(np.roll(own, -reach)) ** n, 2 * reach)[:reach]
        tails.append(np.cumsum(of_sum[::-1])[::-1])
    missed = np.append(tails[0] + tails[1], 0.0)[1:]
    bounds = [1 - float(coverage) + _ROUNDING, 1 - float(coverage) - _ROUNDING]
    least, largest = (int(np.argmax(missed <= bound)) for bound in bounds)
    return least, largest


def threshold_of(noise: CountNoise, chance: Fraction) -> int:
    """The smallest k with P(X <= k) >= chance; 0 without noise."""
    if noise.rate is None:
        return 0
    rate = float(noise.rate)
    reach = int((60 / rate) ** (1 / noise.power)) + 2
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-rate * np.abs(values).astype(float) ** noise.power)
    due = float(chance) * math.fsum(weights)
    # From the nearer end, where partial sums are accurate.
    if chance <= Fraction(1, 2):
        return int(values[np.searchsorted(np.cumsum(weights), due)])
    above = np.cumsum(weights[::-1])[::-1] - weights
    return int(values[np.argmax(above <= float(1 - chance) * math.fsum(weights))])
