"""The approximate cumulative mechanism: monotone first, then consistent."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.group_sizes.estimation.estimate import cumulative_estimate, monotone_sizes
from spineflow.tasks.group_sizes.estimation.marginal_costs import hierarchical_optimum


def test_sizes_of_a_region_add_to_no_more_than_the_total() -> None:
    rng = np.random.default_rng(0)
    noisy = rng.integers(-20, 60, (40, 12))
    found = monotone_sizes(noisy, 30, is_exact=False)
    assert found.min() >= 0
    assert found.sum(axis=1).max() <= 30
    root = monotone_sizes(noisy[:1], 30, is_exact=True)
    assert root.min() >= 0
    assert root.sum() == 30


def test_without_noise_the_counts_come_back(reference) -> None:
    rng = np.random.default_rng(5)
    hierarchy = reference.hierarchy_of([4], [3, 1, 2, 5])
    truth = rng.poisson(2, (hierarchy.n_leaves, 30))
    noisy = [np.cumsum(level, axis=1) for level in hierarchy.sum_up(truth)]
    assert (cumulative_estimate(noisy, hierarchy, int(truth.sum()), [1, 1, 1]) == truth).all()


def test_second_step_is_the_hierarchical_optimum_of_the_first(reference) -> None:
    rng = np.random.default_rng(6)
    hierarchy = reference.hierarchy_of([2], [2, 3])
    noisy = [np.cumsum(rng.integers(-3, 9, (n, 7)), axis=1) for n in hierarchy.n_regions]
    found = cumulative_estimate(noisy, hierarchy, 90, [1, 1, 1])
    sizes = [monotone_sizes(level, 90, is_exact=i == 0) for i, level in enumerate(noisy)]
    cost = reference.hierarchical_cost(found, sizes, hierarchy, [1, 1, 1])
    assert cost == reference.hierarchical_by_tables(sizes, hierarchy, 90, [1, 1, 1])
    assert (found == hierarchical_optimum(sizes, hierarchy, 90, [1, 1, 1])).all()
