"""The hierarchical program is solved to its integer optimum."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.group_sizes.estimation.marginal_costs import Program, hierarchical_optimum


def test_optimum_of_small_instances_by_brute_force(reference) -> None:
    rng = np.random.default_rng(1)
    checked = 0
    while checked < 150:
        hierarchy, noisy, total, weights, _ = reference.random_instance(
            rng, levels=3, children=2, sizes=3, total=5, noise=4
        )
        if hierarchy.n_leaves * noisy[0].shape[1] > 6:
            continue
        found = hierarchical_optimum(Program(noisy, hierarchy, total, weights))
        least = min(
            reference.hierarchical_cost(counts, noisy, hierarchy, weights)
            for counts in reference.all_counts(hierarchy.n_leaves, noisy[0].shape[1], total)
        )
        assert found.min() >= 0
        assert found.sum() == total
        assert reference.hierarchical_cost(found, noisy, hierarchy, weights) == least
        checked += 1


def test_optimum_of_medium_instances_by_cost_tables(reference) -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        hierarchy, noisy, total, weights, _ = reference.random_instance(
            rng, levels=4, children=4, sizes=6, total=60, noise=12
        )
        found = hierarchical_optimum(Program(noisy, hierarchy, total, weights))
        assert found.min() >= 0
        assert found.sum() == total
        assert reference.hierarchical_cost(
            found, noisy, hierarchy, weights
        ) == reference.hierarchical_by_tables(noisy, hierarchy, total, weights)


@pytest.mark.slow
def test_optimum_by_the_integer_program(reference) -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        hierarchy, noisy, total, weights, _ = reference.random_instance(
            rng, levels=3, children=3, sizes=4, total=12, noise=6
        )
        found = hierarchical_optimum(Program(noisy, hierarchy, total, weights))
        cost = reference.hierarchical_cost(found, noisy, hierarchy, weights)
        least = reference.by_integer_program(noisy, hierarchy, total, weights, is_chain=False)
        assert cost == least


def test_no_exchange_pays_in_a_large_instance(reference) -> None:
    """A unit that moves to another leaf changes the counts below their common ancestor only."""
    rng = np.random.default_rng(4)
    hierarchy = reference.hierarchy_of([8], rng.integers(1, 30, 8))
    truth = rng.poisson(np.outer(rng.lognormal(4, 1, hierarchy.n_leaves), 0.9 ** np.arange(200)))
    noisy = [
        level + np.rint(rng.laplace(0, 40, level.shape)).astype(np.int64)
        for level in hierarchy.sum_up(truth)
    ]
    weights = [3, 2, 1]
    found = hierarchical_optimum(Program(noisy, hierarchy, int(truth.sum()), weights))
    assert found.sum() == truth.sum()
    up, down = np.zeros(found.shape), np.where(found > 0, 0.0, np.inf)
    for depth in (2, 1, 0):
        residual = 2 * (hierarchy.sum_up(found)[depth] - noisy[depth])
        up += weights[depth] * (residual + 1)
        down += weights[depth] * (1 - residual)
        siblings = hierarchy.children(depth - 1)[:-1] if depth else [0]
        up, down = np.minimum.reduceat(up, siblings), np.minimum.reduceat(down, siblings)
        assert (up + down >= 0).all()
    assert up.min() + down.min() >= 0


def test_ties_go_to_another_region_for_each_size(reference) -> None:
    hierarchy = reference.hierarchy_of([5])
    noisy = [np.ones((1, 40), dtype=int), np.zeros((5, 40), dtype=int)]
    found = hierarchical_optimum(Program(noisy, hierarchy, 40, [1, 1]))
    assert found.sum(axis=1).tolist() == [8] * 5


def test_without_noise_the_counts_come_back(reference) -> None:
    rng = np.random.default_rng(5)
    hierarchy = reference.hierarchy_of([4], [3, 1, 2, 5])
    truth = rng.poisson(5, (hierarchy.n_leaves, 30))
    found = hierarchical_optimum(
        Program(hierarchy.sum_up(truth), hierarchy, int(truth.sum()), [1, 4, 2])
    )
    assert (found == truth).all()


def test_counts_that_cannot_be_summed_are_refused(reference) -> None:
    noisy = [np.array([[1 << 56, 0]])]
    with pytest.raises(OverflowError):
        hierarchical_optimum(Program(noisy, reference.hierarchy_of(), 6, [7]))
