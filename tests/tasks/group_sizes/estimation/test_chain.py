"""The chain program is solved to its integer optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.group_sizes.estimation.estimate import (
    chain_optimum,
    cumulative_estimate,
    isotonic_integers,
    monotone_sizes,
)
from spineflow.tasks.group_sizes.estimation.marginal_costs import (
    Program,
    hierarchical_optimum,
    share_out,
)
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import CHAINED_CUMULATIVE_GROUP_SIZES


@pytest.mark.slow
@settings(deadline=None, max_examples=70)
@given(
    st.lists(st.tuples(st.integers(-6, 9), st.integers(1, 4)), min_size=1, max_size=6),
    st.integers(-2, 3),
    st.integers(0, 6),
)
def test_isotonic_integers_are_the_closest(places, low, width) -> None:
    values, weight = np.array(places).T
    found = isotonic_integers((values * weight)[None, :], weight, low=low, high=low + width)[0]
    assert (np.diff(found) >= 0).all()
    assert found.min() >= low
    assert found.max() <= low + width

    def cost(x) -> int:
        return int((weight * (np.array(x) - values) ** 2).sum())

    candidates = itertools.combinations_with_replacement(range(low, low + width + 1), len(values))
    assert cost(found) == min(cost(x) for x in candidates)


def test_optimum_of_small_instances_by_brute_force(reference) -> None:
    rng = np.random.default_rng(1)
    checked = 0
    while checked < 150:
        hierarchy, noisy, total, weights, _ = reference.random_instance(
            rng, CHAINED_CUMULATIVE_GROUP_SIZES, levels=3, children=2, sizes=3, total=5, noise=4
        )
        if hierarchy.n_leaves * noisy[0].shape[1] > 6:
            continue
        found = chain_optimum(Program(noisy, hierarchy, total, weights))
        least = min(
            reference.chain_cost(counts, noisy, hierarchy, weights)
            for counts in reference.all_counts(hierarchy.n_leaves, noisy[0].shape[1], total)
        )
        assert found.min() >= 0
        assert found.sum() == total
        assert reference.chain_cost(found, noisy, hierarchy, weights) == least
        checked += 1


def test_optimum_of_medium_instances_by_cost_tables(reference) -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        hierarchy, noisy, total, weights, _ = reference.random_instance(
            rng, CHAINED_CUMULATIVE_GROUP_SIZES, levels=4, children=4, sizes=8, total=60, noise=12
        )
        found = chain_optimum(Program(noisy, hierarchy, total, weights))
        assert found.min() >= 0
        assert found.sum() == total
        assert reference.chain_cost(found, noisy, hierarchy, weights) == reference.chain_by_tables(
            noisy, hierarchy, total, weights
        )


@pytest.mark.slow
def test_optimum_by_the_integer_program(reference) -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        hierarchy, noisy, total, weights, _ = reference.random_instance(
            rng, CHAINED_CUMULATIVE_GROUP_SIZES, levels=3, children=3, sizes=4, total=9, noise=6
        )
        found = chain_optimum(Program(noisy, hierarchy, total, weights))
        cost = reference.chain_cost(found, noisy, hierarchy, weights)
        least = reference.by_integer_program(noisy, hierarchy, total, weights, is_chain=True)
        assert cost == least


def test_without_noise_the_counts_come_back(reference) -> None:
    rng = np.random.default_rng(5)
    hierarchy = reference.hierarchy_of([4], [3, 1, 2, 5])
    truth = rng.poisson(0.4, (hierarchy.n_leaves, 30))
    noisy = [
        true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, level) for level in hierarchy.sum_up(truth)
    ]
    assert (chain_optimum(Program(noisy, hierarchy, int(truth.sum()), [4, 2, 1])) == truth).all()


def test_sums_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OverflowError):
        isotonic_integers(np.array([[1 << 59, 0]]), np.array([1, 1]), low=0, high=1)


def test_sizes_of_a_region_add_to_no_more_than_the_total() -> None:
    rng = np.random.default_rng(0)
    noisy = rng.integers(-20, 60, (40, 12))
    found = monotone_sizes(noisy, 30, is_exact=False)
    assert found.min() >= 0
    assert found.sum(axis=1).max() <= 30
    root = monotone_sizes(noisy[:1], 30, is_exact=True)
    assert root.min() >= 0
    assert root.sum() == 30


def test_without_noise_the_counts_come_back_of_cumulative(reference) -> None:
    rng = np.random.default_rng(5)
    hierarchy = reference.hierarchy_of([4], [3, 1, 2, 5])
    truth = rng.poisson(2, (hierarchy.n_leaves, 30))
    noisy = [np.cumsum(level, axis=1) for level in hierarchy.sum_up(truth)]
    assert (
        cumulative_estimate(Program(noisy, hierarchy, int(truth.sum()), [1, 1, 1])) == truth
    ).all()


def test_second_step_is_the_hierarchical_optimum_of_the_first(reference) -> None:
    rng = np.random.default_rng(6)
    hierarchy = reference.hierarchy_of([2], [2, 3])
    noisy = [np.cumsum(rng.integers(-3, 9, (n, 7)), axis=1) for n in hierarchy.n_regions]
    found = cumulative_estimate(Program(noisy, hierarchy, 90, [1, 1, 1]))
    sizes = [monotone_sizes(level, 90, is_exact=i == 0) for i, level in enumerate(noisy)]
    cost = reference.hierarchical_cost(found, sizes, hierarchy, [1, 1, 1])
    assert cost == reference.hierarchical_by_tables(sizes, hierarchy, 90, [1, 1, 1])
    assert (found == hierarchical_optimum(Program(sizes, hierarchy, 90, [1, 1, 1]))).all()


@settings(deadline=None, max_examples=70)
@given(st.lists(st.integers(-6, 9), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 3))
def test_shares_are_the_closest_integers(noisy, total, first) -> None:
    first %= len(noisy)
    found = share_out(
        np.array(noisy), np.array([0, len(noisy)]), np.array([total]), np.array([first])
    )
    least = min(
        sum((x - a) ** 2 for x, a in zip(values, noisy, strict=True))
        for values in itertools.product(range(total + 1), repeat=len(noisy))
        if sum(values) == total
    )
    assert found.sum() == total
    assert found.min() >= 0
    assert ((found - np.array(noisy)) ** 2).sum() == least


def test_families_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 50)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    noisy, totals = rng.integers(-5, 20, offsets[-1]), rng.integers(0, 40, 50)
    found = share_out(noisy, offsets, totals)
    alone = [
        share_out(noisy[a:b], np.array([0, b - a]), np.array([total]))
        for a, b, total in zip(offsets[:-1], offsets[1:], totals, strict=True)
    ]
    assert found.tolist() == np.concatenate(alone).tolist()


def test_ties_go_by_position_from_the_favoured_sibling_on() -> None:
    noisy, family, total = np.zeros(4, dtype=int), np.array([0, 4]), np.array([2])
    assert share_out(noisy, family, total).tolist() == [1, 1, 0, 0]
    assert share_out(noisy, family, total, np.array([3])).tolist() == [1, 0, 0, 1]
