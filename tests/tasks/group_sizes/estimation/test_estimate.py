"""What every mechanism promises, whatever the noise."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.group_sizes.estimation.estimate import estimate_sizes
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import VECTOR_OF


def noisy_instance(reference, mechanism: str, seed: int, *, scale: float, n_sizes: int = 15):
    rng = np.random.default_rng(seed)
    hierarchy = reference.hierarchy_of([3], [4, 1, 6])
    truth = rng.poisson(np.outer(rng.lognormal(2, 1, 11), 0.7 ** np.arange(n_sizes)))
    noisy = [
        true_vector(VECTOR_OF[mechanism], level)
        + np.rint(rng.laplace(0, scale, level.shape)).astype(np.int64)
        for level in hierarchy.sum_up(truth)
    ]
    return hierarchy, truth, noisy


@pytest.mark.parametrize("mechanism", list(VECTOR_OF))
@pytest.mark.parametrize("scale", [0.3, 3, 300])
def test_counts_are_consistent_valid_and_faithful(reference, mechanism, scale) -> None:
    for seed in range(5):
        hierarchy, truth, noisy = noisy_instance(reference, mechanism, seed, scale=scale)
        levels = estimate_sizes(mechanism, noisy, hierarchy, int(truth.sum()), [1, 1, 1])
        for depth, level in enumerate(levels):
            assert level.dtype == np.int64
            assert level.min() >= 0
            assert level.sum() == truth.sum()
            if depth:
                starts = hierarchy.children(depth - 1)[:-1]
                assert (np.add.reduceat(level, starts, axis=0) == levels[depth - 1]).all()


@pytest.mark.parametrize("mechanism", list(VECTOR_OF))
def test_without_noise_the_counts_come_back(reference, mechanism) -> None:
    hierarchy, truth, noisy = noisy_instance(reference, mechanism, 9, scale=0.01)
    levels = estimate_sizes(mechanism, noisy, hierarchy, int(truth.sum()), [1, 1, 1])
    for level, counts in zip(levels, hierarchy.sum_up(truth), strict=True):
        assert (level == counts).all()
