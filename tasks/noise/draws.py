"""The interface to noise, and the right to draw it.

Every measurement requests noise through `NoiseDraws`. In a private run that is the charge in the
ledger (`tasks.ledger.claims.ChargedNoise`), and it draws the charged noise and nothing else. Runs
that are not private, and studies, draw through `UnchargedNoise`.

Only modules that draw import the sampler, whose kernels take long to load: most modules about noise
do not draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np

from .distributions import RandomSource, noise_variance


@dataclass(frozen=True)
class Noise:
    """A distribution of noise: the mechanism, and its exact sigma^2 or scale."""

    mechanism: str
    parameter: Fraction

    @cached_property
    def variance(self) -> float:
        """Exact variance, as the nearest float."""
        return noise_variance(self.mechanism, self.parameter)


class NoiseDraws(Protocol):
    """Whoever hands out noise for one file of measurements."""

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64; `part` is the level, with query or stage."""
        ...


@dataclass(frozen=True)
class UnchargedNoise:
    """Noise that no ledger knows of, from any source: for studies and runs that are not private."""

    source: RandomSource

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        """Independent draws, shape `(size,)`, int64, for any part."""
        from .sampler import draw_noise

        return draw_noise(noise.mechanism, noise.parameter, size, self.source)


def sum_that_fits(counts: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """counts + noise for counts >= 0; raises OverflowError rather than wrap."""
    total = counts + noise
    if (total < noise).any():
        raise OverflowError("a noisy answer does not fit 64 bits; use a larger share or budget")
    return total
