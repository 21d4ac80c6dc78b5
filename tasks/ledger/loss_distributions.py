"""Epsilon at some delta of counts with noise, from the distribution of the privacy loss itself.

One person added changes k counts by one each. Noise of P(x) proportional to exp(-c |x|^power) has,
for the draw x, the privacy loss log P(x) / P(x - 1):

- discrete Gaussian: c (1 - 2 x), and c (k - 2 S) for k counts, S being the sum of their draws;
- discrete Laplace: c if x <= 0, else -c, which is randomised response; c (2 B - k) for k counts,
  with B binomial of the chance 1 / (1 + exp(-c)).

Losses of counts of several kinds of noise add up, and with L their sum

    delta(epsilon) = E max(0, 1 - exp(epsilon - L)),

exactly, for the neighbours that differ in these counts and no others; removing the person gives the
same, as the noise is symmetric. Losses of a kind are rounded up to a grid before they are added, so
that what comes out is never too small, and too large by one step for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from ..noise.distributions import IntegerDistribution
from ..noise.sums import probabilities_of_sum

GRID = 1 << 17
"""Points of the grid of losses: more would add more rounding errors of the transform to tails."""

NEGLIGIBLE = 1e-18
"""Probability of losses that are left out at either end, far below any delta that is asked for."""

SMALLEST_DELTA = Fraction(1, 10**11)
"""Probabilities are worked out in floats, with errors that add up to some 1e-12."""


def epsilon_of_changed_counts(changed: Mapping[IntegerDistribution, int], delta: Fraction) -> float:
    """The least epsilon, rounded up, for which (epsilon, delta) holds of changes by one.

    `changed` tells how many counts with noise of each distribution one person changes by one.
    Raises ValueError for a delta below 1e-11 or of 1 and above.

    >>> one = {IntegerDistribution(Fraction(1, 2), power=1): 1}
    >>> round(epsilon_of_changed_counts(one, Fraction(1, 10**10)), 3)
    0.5
    """
    if not SMALLEST_DELTA <= delta < 1:
        raise ValueError(f"a delta of {delta} is not from 1e-11 to 1")
    return _epsilon_of(tuple((noise, count) for noise, count in changed.items() if count), delta)


@lru_cache(maxsize=256)
def _epsilon_of(changed: tuple[tuple[IntegerDistribution, int], ...], delta: Fraction) -> float:
    parts = [_losses(noise, count) for noise, count in changed]
    if not parts:
        return 0.0
    low = sum(float(loss[0]) for loss, _ in parts)
    high = sum(float(loss[-1]) for loss, _ in parts)
    step = max(high - low, 1e-12) / (GRID - 4 * len(parts))
    spectrum: np.ndarray | float = 1.0
    for loss, probability in parts:
        place = np.ceil((loss - loss[0]) / step - 1e-9).astype(int)
        spectrum = spectrum * np.fft.rfft(np.bincount(place, probability, GRID))
    whole = np.maximum(np.fft.irfft(spectrum, GRID), 0.0)
    return _least_epsilon(low + step * np.arange(GRID), whole, float(delta))


def _losses(noise: IntegerDistribution, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses in ascending order and their probabilities, of so many counts of one kind."""
    c = float(noise.c)
    if noise.power == 1:
        successes = np.arange(count + 1)
        loss = c * (2 * successes - count)
        probability = binom.pmf(successes, count, 1 / (1 + math.exp(-c)))
    else:
        of_sum = probabilities_of_sum(noise, count)
        reach = len(of_sum) // 2
        loss = c * (count + 2 * np.arange(-reach, reach + 1))
        probability = of_sum
    kept = np.flatnonzero(probability > NEGLIGIBLE)
    inside = slice(kept[0], kept[-1] + 1)
    return loss[inside], probability[inside]


def _least_epsilon(losses: np.ndarray, probability: np.ndarray, delta: float) -> float:
    """Where delta(epsilon), which falls, reaches delta: between grid points it is convex."""
    weight = probability * np.exp(-np.maximum(losses, -700.0))
    above = np.cumsum(probability[::-1])[::-1]
    above_weight = np.cumsum(weight[::-1])[::-1]
    # At epsilon = losses[i]: the losses from i on count.
    at = above - np.exp(np.minimum(losses, 700.0)) * above_weight
    place = int(np.argmax(at <= delta))
    if place == 0:
        return max(0.0, float(losses[0]))
    # Between losses[place - 1] and losses[place] the same losses count: solve for epsilon.
    return max(0.0, math.log((above[place] - delta) / above_weight[place]))
