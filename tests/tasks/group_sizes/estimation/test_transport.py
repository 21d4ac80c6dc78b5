"""The hierarchical program with public numbers of groups is solved to its integer optimum."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.group_sizes.estimation.estimate import cumulative_estimate
from spineflow.tasks.group_sizes.estimation.marginal_costs import (
    Program,
    Rows,
    hierarchical_optimum,
)
from spineflow.tasks.group_sizes.estimation.transport import (
    _minimum_cost_flow,
    _network,
    hierarchical_optimum_of_rows,
)


def instance(rng: np.random.Generator, reference, *, children, sizes, total, noise):
    """A random hierarchy, noisy counts, weights, a level of rows and their totals."""
    hierarchy, noisy, _, weights, counts = reference.random_instance(
        rng, levels=4, children=children, sizes=sizes, total=total, noise=noise
    )
    if len(weights) > 1 and rng.random() < 0.3:
        weights[int(rng.integers(0, len(weights) - 1))] = 0
    depth = int(rng.integers(0, len(noisy)))
    return hierarchy, noisy, weights, Rows(depth, counts[depth].sum(axis=1))


def test_optimum_of_small_instances_by_brute_force(reference) -> None:
    rng = np.random.default_rng(1)
    checked = 0
    while checked < 50:
        hierarchy, noisy, weights, rows = instance(
            rng, reference, children=2, sizes=3, total=5, noise=4
        )
        total = int(rows.totals.sum())
        if hierarchy.n_leaves * noisy[0].shape[1] > 6:
            continue
        found = hierarchical_optimum_of_rows(Program(noisy, hierarchy, 0, weights), rows)
        allowed = (
            reference.hierarchical_cost(counts, noisy, hierarchy, weights)
            for counts in reference.all_counts(hierarchy.n_leaves, noisy[0].shape[1], total)
            if (hierarchy.sum_up(counts)[rows.depth].sum(axis=1) == rows.totals).all()
        )
        assert found.min() >= 0
        assert (hierarchy.sum_up(found)[rows.depth].sum(axis=1) == rows.totals).all()
        assert reference.hierarchical_cost(found, noisy, hierarchy, weights) == min(allowed)
        checked += 1


@pytest.mark.slow
def test_optimum_by_the_integer_program(reference) -> None:
    rng = np.random.default_rng(3)
    for _ in range(150):
        hierarchy, noisy, weights, rows = instance(
            rng, reference, children=3, sizes=4, total=12, noise=6
        )
        found = hierarchical_optimum_of_rows(Program(noisy, hierarchy, 0, weights), rows)
        cost = reference.hierarchical_cost(found, noisy, hierarchy, weights)
        least = reference.by_integer_program(
            noisy, hierarchy, int(rows.totals.sum()), weights, is_chain=False, rows=rows
        )
        assert cost == least


def test_with_the_total_alone_both_solvers_find_the_same_cost(reference) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        hierarchy, noisy, weights, rows = instance(
            rng, reference, children=4, sizes=6, total=60, noise=12
        )
        total = int(rows.totals.sum())
        flow = hierarchical_optimum_of_rows(
            Program(noisy, hierarchy, total, weights), Rows(0, np.array([total]))
        )
        merged = hierarchical_optimum(Program(noisy, hierarchy, total, weights))
        costs = [
            reference.hierarchical_cost(counts, noisy, hierarchy, weights)
            for counts in (flow, merged)
        ]
        assert costs[0] == costs[1]


def test_no_exchange_between_sizes_and_regions_pays_in_a_large_instance(reference) -> None:
    """Two regions that swap groups of two sizes keep all numbers of groups."""
    rng = np.random.default_rng(4)
    hierarchy = reference.hierarchy_of([3], [4, 1, 6])
    truth = rng.poisson(np.outer(rng.lognormal(4, 1, 11), 0.8 ** np.arange(30)))
    noisy = [
        level + np.rint(rng.laplace(0, 9, level.shape)).astype(np.int64)
        for level in hierarchy.sum_up(truth)
    ]
    found = hierarchical_optimum_of_rows(
        Program(noisy, hierarchy, int(truth.sum()), [1, 2, 3]), Rows(2, truth.sum(axis=1))
    )
    least = reference.hierarchical_cost(found, noisy, hierarchy, [1, 2, 3])
    for _ in range(3000):
        (r, t), (a, b) = rng.choice(11, 2, replace=False), rng.choice(30, 2, replace=False)
        other = found.copy()
        other[[r, t], a] += [1, -1]
        other[[r, t], b] += [-1, 1]
        if other.min() >= 0:
            assert reference.hierarchical_cost(other, noisy, hierarchy, [1, 2, 3]) >= least


@pytest.mark.parametrize(
    ("noise", "times", "weights"),
    [(2, 1, [1, 1, 1]), (300, 1, [7, 3, 2]), (20, 50, [1, 2, 1]), (3_000, 1, [0, 1, 4])],
)
def test_no_cycle_of_moves_saves_anything(noise, times, weights, reference) -> None:
    """A flow is optimal where its residual network has no cycle of negative cost."""
    rng = np.random.default_rng(6)
    hierarchy = reference.hierarchy_of([4], [7, 12, 3, 9])
    truth = hierarchy.sum_up(rng.poisson(np.outer(rng.lognormal(3, 1, 31), 0.9 ** np.arange(40))))
    noisy = [level + np.rint(rng.normal(0, noise, level.shape)).astype(int) for level in truth]
    rows = Rows(2, truth[2].sum(axis=1) * times)
    network = _network(Program(noisy, hierarchy, 0, weights), rows)
    flow = _minimum_cost_flow(network)
    assert flow.min() >= 0
    sent = np.bincount(network.tail, flow, len(network.supply))
    sent -= np.bincount(network.head, flow, len(network.supply))
    assert (sent == network.supply).all()
    away = flow - network.target
    moves = np.concatenate([network.tail, network.head[flow > 0]])
    ends = np.concatenate([network.head, network.tail[flow > 0]])
    cost = np.concatenate([2 * away + 1, (1 - 2 * away)[flow > 0]])
    cost *= np.concatenate([network.weight, network.weight[flow > 0]])
    distance = np.zeros(len(network.supply))
    for _ in range(len(distance)):
        before = distance.copy()
        np.minimum.at(distance, ends, before[moves] + cost)
        if (distance == before).all():
            return
    pytest.fail("a cycle of moves saves something")


def test_without_noise_the_counts_come_back(reference) -> None:
    rng = np.random.default_rng(5)
    hierarchy = reference.hierarchy_of([4], [3, 1, 2, 5])
    truth = rng.poisson(2, (hierarchy.n_leaves, 30))
    levels, total = hierarchy.sum_up(truth), int(truth.sum())
    for depth, level in enumerate(levels):
        rows = Rows(depth, level.sum(axis=1))
        noisy = [np.cumsum(own, axis=1) for own in levels]
        assert (
            cumulative_estimate(Program(noisy, hierarchy, total, [1, 1, 1], rows)) == truth
        ).all()


def test_bounds_of_all_levels_follow_from_the_rows(reference) -> None:
    hierarchy = reference.hierarchy_of([2], [2, 1])
    bounds = Rows(1, np.array([7, 4])).bounds(hierarchy)
    assert [bound.tolist() for bound in bounds] == [[11], [7, 4], [7, 7, 4]]


def test_costs_that_do_not_fit_are_refused(reference) -> None:
    noisy = [np.array([[1 << 56, 0]])]
    with pytest.raises(OverflowError):
        hierarchical_optimum_of_rows(
            Program(noisy, reference.hierarchy_of(), 3, [7]), Rows(0, np.array([3]))
        )
