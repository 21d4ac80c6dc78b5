"""Measured vectors: what they hold, and the distribution of their noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
)
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import DISCRETE_LAPLACE, Noise, SeededRandom
from spineflow.tasks.products.measurement import with_noise

COUNTS = np.array([[1, 2, 0], [4, 0, 3]])


def test_vectors_are_sums_of_counts() -> None:
    assert true_vector(GROUP_SIZES, COUNTS).tolist() == [[1, 2, 0], [4, 0, 3]]
    assert true_vector(CUMULATIVE_GROUP_SIZES, COUNTS).tolist() == [[1, 3, 3], [4, 4, 7]]
    assert true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, COUNTS).tolist() == [[1, 7, 7], [5, 7, 10]]
    with pytest.raises(ValueError, match="unknown vector"):
        true_vector("sums", COUNTS)


def test_without_a_scale_there_is_no_noise() -> None:
    draws = UnchargedNoise(SeededRandom(1))
    assert (with_noise(true_vector(GROUP_SIZES, COUNTS), None, draws) == COUNTS).all()


@pytest.mark.parametrize("vector", [CUMULATIVE_GROUP_SIZES, CHAINED_CUMULATIVE_GROUP_SIZES])
def test_noise_is_discrete_laplace_of_the_scale_and_of_no_other(vector: str) -> None:
    counts = np.arange(60_000).reshape(60, 1000) % 7
    truth, laplace = true_vector(vector, counts), Noise(DISCRETE_LAPLACE, Fraction(3))
    noise = with_noise(truth, laplace, UnchargedNoise(SeededRandom(5))) - truth
    values = np.arange(-12, 13)
    observed = [np.sum(noise < -12), *(np.sum(noise == v) for v in values), np.sum(noise > 12)]

    def p_value(scale: float) -> float:
        inside = stats.dlaplace.pmf(values, 1 / scale)
        tail = stats.dlaplace.cdf(-13, 1 / scale)
        expected = np.array([tail, *inside, tail])
        return stats.chisquare(observed, expected / expected.sum() * noise.size).pvalue

    assert p_value(3) > 1e-3
    assert p_value(3.1) < 1e-9
    assert abs(np.corrcoef(noise[:, :-1].reshape(-1), noise[:, 1:].reshape(-1))[0, 1]) < 0.02


def test_counts_that_would_wrap_are_refused() -> None:
    with pytest.raises(OverflowError):
        with_noise(
            true_vector(GROUP_SIZES, np.full((1, 50), (1 << 63) - 1)),
            Noise(DISCRETE_LAPLACE, Fraction(5)),
            UnchargedNoise(SeededRandom(1)),
        )
