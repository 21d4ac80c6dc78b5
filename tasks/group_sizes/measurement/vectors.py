"""The vectors that group-size mechanisms measure, and their noisy values.

What each vector is, and its sensitivity, stands in `tasks.group_sizes.workload.mechanisms`.
"""

from __future__ import annotations

import numpy as np

from ...noise.draws import Noise, NoiseDraws, sum_that_fits
from ..workload.mechanisms import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
)


def true_vector(vector: str, counts: np.ndarray) -> np.ndarray:
    """A vector at one level, (n, n_sizes), from the counts of its regions and sizes, (n, n_sizes).

    >>> counts = np.array([[2, 1], [0, 3]])
    >>> true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, counts).tolist()
    [[2, 3], [2, 6]]
    """
    if vector == GROUP_SIZES:
        return counts
    if vector == CUMULATIVE_GROUP_SIZES:
        return np.cumsum(counts, axis=1)
    if vector == CHAINED_CUMULATIVE_GROUP_SIZES:
        chain = np.cumsum(counts.T.reshape(-1))
        return np.ascontiguousarray(chain.reshape(counts.shape[::-1]).T)
    raise ValueError(f"unknown vector {vector!r}")


def noisy_vector(
    vector: str, counts: np.ndarray, noise: Noise | None, draws: NoiseDraws, part: str = ""
) -> np.ndarray:
    """The vector with independent noise on every value; without noise if it is None.

    `part` is the level, under whose name the noise is charged.

    Raises OverflowError if a value does not fit 64 bits.
    """
    values = true_vector(vector, counts)
    if noise is None:
        return values
    return sum_that_fits(values, draws.draw(part, noise, values.size).reshape(values.shape))
