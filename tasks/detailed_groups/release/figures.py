"""Suppression of a group of a given size, from the distribution of the noise alone.

The two curves follow figures 1 and 2 of [SafeTabP2025]: the probability that a group of
n persons is suppressed, P(n + X <= T), and the expected error of its count if it is released,
E[X | n + X > T], both with sizes as fractions of the threshold T. No data enter.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...noise.distributions import IntegerDistribution
from ...pages.document import Figure
from ...pages.figures import line_chart

LARGEST_SIZE = 2
"""The curves end at this multiple of the threshold."""

_SMALLEST_LOG_WEIGHT = -700.0
_LARGEST_TABLE = 1 << 22


def suppression_probability(
    noise: IntegerDistribution, threshold: int, sizes: np.ndarray
) -> np.ndarray:
    """P(n + X <= T) for each size n, as floats."""
    values, weights = _weights(noise, threshold, sizes)
    up_to = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    return up_to[threshold - sizes - int(values[0]) + 1]


def released_bias(noise: IntegerDistribution, threshold: int, sizes: np.ndarray) -> np.ndarray:
    """E[X | n + X > T] for each size n (the paper's equation 13, without its normal limit)."""
    values, weights = _weights(noise, threshold, sizes)
    above = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    moment = np.append(np.cumsum((weights * values)[::-1])[::-1], 0.0)
    first = threshold - sizes - int(values[0]) + 1
    return moment[first] / above[first]


def suppression_figures(
    levels: Mapping[str, tuple[IntegerDistribution, int]],
) -> tuple[Figure, ...]:
    """The two figures for levels, by label, of noise and threshold.

    Thresholds of 0 and below have no curve: sizes are shown as fractions of them. No figures if no
    level is left.
    """
    suppressed, biased = {}, {}
    for label, (noise, threshold) in levels.items():
        if threshold > 0:
            step = max(1, threshold // 100)
            sizes = np.arange(0, LARGEST_SIZE * threshold + 1, step)
            fraction = sizes / threshold
            suppressed[label] = fraction, suppression_probability(noise, threshold, sizes)
            biased[label] = fraction, released_bias(noise, threshold, sizes) / threshold
    if not suppressed:
        return ()
    x_label = "true size as a fraction of the threshold"
    titles = (
        "Probability that a group is suppressed",
        "Expected error of a released count, as a fraction of the threshold",
    )
    return tuple(
        Figure(
            line_chart(series, title=title, x_label=x_label, y_label=y_label),
            f"{title}, by the true size of the group. From the distribution of the noise alone.",
        )
        for title, y_label, series in zip(
            titles, ("probability", "expected error / threshold"), (suppressed, biased), strict=True
        )
    )


def _weights(
    noise: IntegerDistribution, threshold: int, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values and weights within the range of floats and of the sizes."""
    reach = (-_SMALLEST_LOG_WEIGHT / float(noise.c)) ** (1 / noise.power)
    largest = int(min(reach, _LARGEST_TABLE)) + 1
    largest = max(largest, int(np.abs(threshold - sizes).max()) + 1)
    values = np.arange(-largest, largest + 1)
    return values, np.exp(-float(noise.c) * np.abs(values).astype(float) ** noise.power)
