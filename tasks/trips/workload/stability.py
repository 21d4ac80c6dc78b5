"""The stability histogram: discrete Laplace noise on what occurs, and nothing below a threshold.

Only positive leaves get noise, of scale b = s / epsilon, with s the L1 sensitivity, and a leaf is
listed if its noisy count reaches an integer threshold t. Leaves that do not occur are never listed,
so the domain need not be enumerated, and t decides delta.

Let neighbours D, D' differ in one person, call a leaf exclusive to D if it is positive in D alone,
and let q = exp(-1 / b). A leaf of count c is listed with probability
P(c + Z >= t) = q^(t - c) / (1 + q) for t > c.

- Of the outcomes of D, those in which a leaf exclusive to D is listed have together at most
  probability delta_1, the sum of that chance over such leaves. One person's m trips fill them, so
  the sum is largest with m leaves of one trip or, unless trips are distinct, with one leaf of m
  (the chance is convex in c).
- On all other outcomes leaves exclusive to D say nothing. Those exclusive to D' are suppressed in
  D' with probability at least 1 - delta_1, and use up at least 1 of the sensitivity, so that the
  leaves in common have a ratio of at most exp(epsilon - 1 / b). If delta_1 <= 1 - q, the whole
  ratio is at most exp(epsilon).

Hence (epsilon, delta)-differential privacy if delta_1 <= min(delta, 1 - q). The threshold of
[StabilityHistogram2016], which [InfTDA2024] takes, divides delta by two for bounded neighbours; the
second point shows that one side is enough. For the same reason, where neighbours add or remove a
person at (epsilon, delta), changing a person costs (2 epsilon, delta).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ...noise.distributions import exp_minus_bounds
from ...noise.draws import Noise, NoiseDraws
from ...noise.mechanisms import DISCRETE_LAPLACE
from ...noise.quantiles import first_that
from .neighbors import Contribution, l1_sensitivity
from .truth import NodeCounts

PRECISION = 256
"""Bits of the integer bounds on exponentials, far beyond the smallest delta."""


@dataclass(frozen=True)
class StabilityHistogram:
    """Scale of the noise and the smallest count that is listed; `scale` None is no noise."""

    scale: Fraction | None
    threshold: int

    def measure(self, leaves: NodeCounts, draws: NoiseDraws, part: str = "") -> NodeCounts:
        """Noisy counts of the positive leaves that reach the threshold.

        `part` is the level under whose name the noise is charged.
        """
        if self.scale is None:
            return leaves
        noise = draws.draw(part, Noise(DISCRETE_LAPLACE, self.scale), leaves.counts.size)
        noisy = NodeCounts(leaves.keys, leaves.counts + noise)
        return noisy.at(noisy.counts >= self.threshold)


def stability_histogram(
    epsilon: Fraction, delta: Fraction, contribution: Contribution
) -> StabilityHistogram:
    """The histogram that is (epsilon, delta)-differentially private, with the least threshold.

    >>> stability_histogram(Fraction(1), Fraction(1, 10**8), Contribution())
    StabilityHistogram(scale=Fraction(2, 1), threshold=37)
    """
    scale = l1_sensitivity(contribution) / epsilon
    allowed = min(delta, 1 - _exp_minus(1 / scale)[1])
    least = contribution.trips + 1
    above = first_that(lambda k: listing_bound(least + k, scale, contribution) <= allowed)
    return StabilityHistogram(scale, least + above)


def listing_bound(threshold: int, scale: Fraction, contribution: Contribution) -> Fraction:
    """Upper bound on delta_1 at a threshold above m, rounded up."""
    m = contribution.trips
    spread_out = m * _chance_bound(threshold - 1, scale)
    if contribution.are_distinct:
        return spread_out
    return max(spread_out, _chance_bound(threshold - m, scale))


def _chance_bound(k: int, scale: Fraction) -> Fraction:
    """Upper bound on P(Z >= k) = q^k / (1 + q), for k >= 1."""
    return _exp_minus(k / scale)[1] / (1 + _exp_minus(1 / scale)[0])


def _exp_minus(x: Fraction) -> tuple[Fraction, Fraction]:
    """Lower and upper bound on exp(-x)."""
    low, high = exp_minus_bounds(x, PRECISION)
    return Fraction(low, 1 << PRECISION), Fraction(high, 1 << PRECISION)
