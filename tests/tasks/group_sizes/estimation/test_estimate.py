"""What every mechanism promises, whatever the noise; and what the relaxed baselines break."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.group_sizes.estimation.estimate import (
    estimate_sizes,
    isotonic_integers,
    relaxed_estimate,
)
from spineflow.tasks.group_sizes.estimation.marginal_costs import Program
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import RELAXED, VECTOR_OF

EXACT = [name for name in VECTOR_OF if name not in RELAXED]


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


@pytest.mark.parametrize("mechanism", EXACT)
@pytest.mark.parametrize("scale", [0.3, 3, 300])
def test_counts_are_consistent_valid_and_faithful(reference, mechanism, scale) -> None:
    for seed in range(5):
        hierarchy, truth, noisy = noisy_instance(reference, mechanism, seed, scale=scale)
        levels = estimate_sizes(mechanism, Program(noisy, hierarchy, int(truth.sum()), [1, 1, 1]))
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
    levels = estimate_sizes(mechanism, Program(noisy, hierarchy, int(truth.sum()), [1, 1, 1]))
    for level, counts in zip(levels, hierarchy.sum_up(truth), strict=True):
        assert (level == counts).all()


@pytest.mark.parametrize("mechanism", RELAXED)
def test_rounded_relaxations_are_valid_but_break_sums(reference, mechanism) -> None:
    hierarchy, truth, noisy = noisy_instance(reference, mechanism, 1, scale=5)
    levels = estimate_sizes(mechanism, Program(noisy, hierarchy, int(truth.sum()), [1, 1, 1]))
    assert all(level.min() >= 0 for level in levels)
    sums = np.add.reduceat(levels[2], hierarchy.children(1)[:-1], axis=0)
    assert (sums != levels[1]).any()
    assert abs(levels[0].sum() - truth.sum()) <= noisy[0].size


def test_the_relaxed_program_is_the_integer_one_on_a_fine_grid(reference) -> None:
    """Counts in thousandths: integers are then as good as reals, to within a unit or two."""
    hierarchy, truth, noisy = noisy_instance(reference, "hierarchical", 3, scale=4)
    noisy, total = [1000 * level for level in noisy], 1000 * int(truth.sum())
    relaxed = relaxed_estimate("hierarchical", Program(noisy, hierarchy, total, [4, 1, 2]))
    exact = estimate_sizes("hierarchical_dp", Program(noisy, hierarchy, total, [4, 1, 2]))
    for rounded, optimum in zip(relaxed, exact, strict=True):
        assert np.abs(rounded - optimum).max() <= 2


def test_the_relaxed_cumulative_program_of_one_region_is_isotonic_regression(reference) -> None:
    rng = np.random.default_rng(4)
    noisy = 1000 * np.sort(rng.integers(-4, 30, (1, 40)), axis=1) + rng.integers(-9000, 9000, 40)
    total = int(noisy[0, -1]) + 5000
    noisy[0, -1] = total
    (found,) = relaxed_estimate(
        "cumulative", Program([noisy], reference.hierarchy_of(), total, [1])
    )
    chain = isotonic_integers(noisy[:, :-1], np.ones(39, dtype=int), low=0, high=total)
    assert np.abs(np.cumsum(found)[:-1] - chain[0]).max() <= 1
