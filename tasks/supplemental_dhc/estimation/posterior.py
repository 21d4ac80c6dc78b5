"""Posteriors of counts and of averages under a flat prior on what is possible.

A noisy count y = n + X of discrete Gaussian noise, P(X = x) proportional to exp(-x^2 / 2 sigma^2),
tells of the true count n under a flat prior on n >= 0

    P(n | y) proportional to exp(-(y - n)^2 / 2 sigma^2),    n = 0, 1, 2, ...

which is summed term by term. The sum of k cells is one count of noise k sigma^2, with a flat prior
of its own: flat priors on all cells would together say that the sum is large.

An average r = a / d of persons a, of w in the whole, and of households d has a prior that is flat
on all a, w - a >= 0 and d >= 1 with smallest <= w / d <= largest. With f the posterior densities of
the parts alone, and F the distribution function of w - a, its density is

    p(r) proportional to  sum over d of  d f(d) f(r d) (F((largest - r) d) - F((smallest - r) d)),

where w = a leaves out the last factor. Counts are taken as continuous there: the noise is many
persons wide. Every interval is the shortest with its probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

LEVEL = 0.9
"""Probability of the intervals."""

REACH = 9.0
"""Standard deviations of noise beyond which a posterior is 0: their probability is below 1e-18."""

POINTS, NODES = 512, 192
"""Points of an average at which its density is computed, and numbers of households over which it is
summed at each."""

WELL_KNOWN = 15.0
"""Standard deviations of a number of households from which on an average is about normal."""

ONE_AVERAGE = 1e-9
"""Averages that differ by less are not told apart."""

LOWER_TAILS = np.linspace(0.0, 1.0, 201)
"""Shares of the probability outside an interval that may lie below it."""


@dataclass(frozen=True)
class Estimate:
    """A posterior mean with the shortest interval of probability `LEVEL`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of a count: that of `first`, `first` + 1, ... as `probability`."""

    first: int
    probability: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """The counts, `(n,)` float."""
        return self.first + np.arange(len(self.probability), dtype=float)

    @cached_property
    def cumulated(self) -> np.ndarray:
        """P(count <= n)."""
        return np.cumsum(self.probability)

    @cached_property
    def mean(self) -> float:
        """The posterior mean."""
        return float(self.counts @ self.probability)

    @cached_property
    def deviation(self) -> float:
        """The posterior standard deviation."""
        return float(np.sqrt(max((self.counts - self.mean) ** 2 @ self.probability, 0.0)))

    def density(self, at: np.ndarray) -> np.ndarray:
        """The density, counts being taken as continuous."""
        return np.interp(at, self.counts, self.probability, left=0.0, right=0.0)

    def below(self, at: np.ndarray) -> np.ndarray:
        """The probability of what lies below, counts being taken as continuous."""
        edges = np.append(self.first - 0.5, self.counts + 0.5)
        return np.interp(at, edges, np.append(0.0, self.cumulated), left=0.0, right=1.0)

    def estimate(self) -> Estimate:
        """The mean, and the shortest interval of counts with probability `LEVEL` at least."""
        before = np.append(0.0, self.cumulated[:-1])
        total = self.cumulated[-1]
        wanted = before + LEVEL * total
        starts = np.flatnonzero(wanted <= total)
        ends = np.searchsorted(self.cumulated, wanted[starts] * (1 - 1e-12))
        ends = np.minimum(ends, len(self.probability) - 1)
        best = int(np.argmin(ends - starts))
        low, high = self.first + int(starts[best]), self.first + int(ends[best])
        return Estimate(self.mean, float(low), float(high))


def count_posterior(noisy: int, sigma_squared: float) -> Posterior:
    """The posterior of a count from its noisy value.

    >>> posterior = count_posterior(-3, 4.0)
    >>> posterior.first, round(posterior.mean, 3)
    (0, 0.625)
    """
    mode = max(noisy, 0)
    reach = int(np.ceil(REACH * np.sqrt(sigma_squared))) + 1
    first = max(0, mode - reach)
    beyond = np.arange(first, mode + reach + 1, dtype=float) - mode
    # (n - y)^2 - (mode - y)^2, whose largest exponential is 1.
    excess = beyond * (beyond + 2.0 * (mode - noisy))
    weight = np.exp(-excess / (2.0 * sigma_squared))
    return Posterior(first, weight / weight.sum())


def average_estimate(
    counted: Posterior,
    households: Posterior,
    bounds: tuple[float, float],
    rest: Posterior | None = None,
) -> Estimate:
    """The posterior mean and interval of persons a household.

    Args:
        counted: of the persons that are averaged.
        households: of the number of households, which is at least 1.
        bounds: the least and the largest average of all persons of these households.
        rest: of those persons who are not averaged; None if there are none.
    """
    step = -(-len(households.probability) // NODES)
    nodes, weight = households.counts[::step], households.probability[::step]
    smallest, largest = bounds
    least = smallest if rest is None else 0.0
    points = _points(counted, households, least, largest)
    persons = points[:, None] * nodes
    mass = weight * nodes * counted.density(persons)
    if rest is not None:
        mass = mass * (
            rest.below(largest * nodes - persons) - rest.below(smallest * nodes - persons)
        )
    density = mass.sum(axis=1)
    if not density.sum() > 0 or points[-1] - points[0] < ONE_AVERAGE:
        # Noise lies so far from what is possible that the nearest possible average is all there is.
        nearest = float(np.clip(counted.mean / max(households.mean, 1.0), least, largest))
        return Estimate(nearest, nearest, nearest)
    return _estimate_of(points, density)


def _points(counted: Posterior, households: Posterior, least: float, largest: float) -> np.ndarray:
    """Averages at which the density is computed: all that are possible, or those about the mean.

    Where the number of households is known well, the average is about normal, with the deviation
    that follows from those of both counts.
    """
    number = households.mean
    low, high = least, largest
    if number > WELL_KNOWN * households.deviation:
        mean = counted.mean / number
        reach = REACH * float(np.hypot(counted.deviation, mean * households.deviation)) / number
        # Where noise led out of what is possible, the posterior lies at the limit.
        mean = float(np.clip(mean, least, largest))
        low, high = max(least, mean - reach), min(largest, mean + reach)
    return np.linspace(low, high, POINTS)


def _estimate_of(points: np.ndarray, density: np.ndarray) -> Estimate:
    """Mean and shortest interval of a density that is known at equidistant points."""
    step = points[1] - points[0]
    # Densities near the smallest float would vanish in sums; a power of two changes no digit.
    density = np.ldexp(density, -np.frexp(density.max())[1])
    area = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2.0)) * step
    total = area[-1]
    moments = density * points
    mean = ((moments[1:] + moments[:-1]) / 2.0).sum() * step / total
    tails = LOWER_TAILS * (1.0 - LEVEL) * total
    low = np.interp(tails, area, points)
    high = np.interp(tails + LEVEL * total, area, points)
    best = int(np.argmin(high - low))
    # Nearly all may lie between two points, where mean and interval are not known exactly.
    mean = float(np.clip(mean, low[best], high[best]))
    return Estimate(mean, float(low[best]), float(high[best]))
