"""Theorem 4 and Proposition 1 with their constants: they hold in nearly all replicates, and are not
absurdly far."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.ledger.plan import Measure
from spineflow.tasks.noise.distributions import DISCRETE_LAPLACE, Noise, SeededRandom
from spineflow.tasks.trips.estimation.projection import integer_projection
from spineflow.tasks.trips.measurement import NodeCounts, with_noise
from spineflow.tasks.trips.plan import (
    Plan,
    geometric_shares,
    largest_leaf_counts,
    level_measures,
    measured_levels,
    stability_histogram,
)
from spineflow.tasks.trips.release import error_bounds, expected_false, proposition_1, theorem_4
from spineflow.tasks.trips.settings import (
    GAUSSIAN_LEAVES,
    INFTDA,
    STABILITY_HISTOGRAM,
    TDA_L2,
    TripsMechanism,
    TripsPrivacy,
)
from spineflow.tasks.trips.tree import Tree, TrueTree, hierarchy_of_links, od_tree, sum_by_key

from benchmarks.trips_replicates import replicate_errors
from tests.tasks.trips.privacy import privacy_of


def tree_of(n_towns: list[int]) -> Tree:
    """Trips between the towns of regions that have so many."""
    regions = np.array(["a", "b", "c"])
    towns = np.array([f"{r}{i}" for r, n in zip(regions, n_towns, strict=True) for i in range(n)])
    levels = [("region", regions, None), ("town", towns, np.array([t[0] for t in towns]))]
    return od_tree(hierarchy_of_links("from", levels), hierarchy_of_links("to", levels))


def leaves_plan(mechanism: str, n_towns: list[int]) -> Plan:
    """A mechanism that measures leaves alone, at rho 1/50 or epsilon 1 and delta 1e-8."""
    tree, privacy = tree_of(n_towns), privacy_of()
    if mechanism == STABILITY_HISTOGRAM:
        scale, threshold = stability_histogram(privacy, Fraction(1), Fraction(1, 10**8))
        leaves = {tree.depth: Measure("", Noise(DISCRETE_LAPLACE, scale))}
        return Plan(mechanism, None, leaves, threshold, False, tree)
    measures = level_measures(tree, privacy, Fraction(1, 50), {tree.depth: Fraction(1)})
    return Plan(mechanism, None, measures, None, True, tree)


def plan_for(privacy: TripsPrivacy, mechanism: str = INFTDA) -> Plan:
    tree = tree_of([5, 5, 5])
    shares = geometric_shares(measured_levels(tree, privacy))
    measures = level_measures(tree, privacy, Fraction(1, 50), shares)
    return Plan(mechanism, None, measures, None, False, tree)


@pytest.mark.parametrize("privacy", [privacy_of(), privacy_of(is_bounded=False)])
def test_bound_holds_in_replicates(privacy: TripsPrivacy) -> None:
    plan = plan_for(privacy)
    tree = plan.tree
    random = np.random.default_rng(1)
    keys = np.arange(tree.n_nodes(tree.depth))
    truth = TrueTree(tree, sum_by_key(keys, random.poisson(2, size=keys.size)))
    bounds = np.array(theorem_4(plan))
    n_replicates, worst = 60, []
    for replicate in range(n_replicates):
        source = UnchargedNoise(SeededRandom(replicate))
        counts = np.array([truth.leaves.total])
        if 0 in plan.measures:
            counts = np.maximum(0, with_noise(counts, plan, 0, source))
        nodes, errors = np.zeros(1, dtype=np.int64), [abs(counts[0] - truth.leaves.total)]
        for level in range(1, tree.depth + 1):
            children, offsets = tree.children(level - 1, nodes)
            true = truth.levels[level].counts_of(children)
            noisy = with_noise(true, plan, level, source)
            counts = integer_projection(noisy, offsets, counts)
            errors.append(abs(counts - true).max())
            nodes = children
        worst.append(errors)
    exceeded = (np.array(worst) > bounds).any(axis=1).mean()
    assert exceeded <= 0.05
    assert (np.mean(worst, axis=0)[1:] > bounds[1:] / 30).all()
    assert (np.diff(bounds) > 0).all()


@pytest.mark.parametrize("mechanism", [GAUSSIAN_LEAVES, STABILITY_HISTOGRAM])
def test_proposition_1_holds_in_replicates_of_what_measures_leaves(mechanism: str) -> None:
    plan = leaves_plan(mechanism, [7, 2, 4])
    random = np.random.default_rng(1)
    keys = np.arange(plan.tree.n_nodes(plan.tree.depth))
    truth = TrueTree(plan.tree, sum_by_key(keys, random.poisson(20, size=keys.size)))
    bounds = np.array(proposition_1(plan, truth.leaves.total))
    settings = TripsMechanism(name=mechanism)
    found = [replicate_errors(plan, truth, settings, SeededRandom(i)) for i in range(200)]
    largest = np.array([errors["max_absolute_error"] for errors in found])
    # What is bounded at a level fails there with probability 0.05 at most.
    assert (largest > bounds).mean(axis=0).max() <= 0.05
    # The root's mean error is 0.8 standard deviations, its bound sqrt(2 log 40) = 2.7 of them.
    assert (largest.mean(axis=0) > bounds / 4).all()


def test_proposition_1_counts_the_leaves_of_the_largest_node() -> None:
    plan = leaves_plan(GAUSSIAN_LEAVES, [7, 2, 4])
    tree = plan.tree
    assert [largest_leaf_counts(tree, level, 1)[0] for level in range(5)] == [169, 91, 49, 7, 1]
    at_root, *_, at_leaves = proposition_1(plan)
    # sigma^2 = 2 / (2 / 50) = 50, one root and 169 leaves, beta 0.05.
    assert at_root == pytest.approx(np.sqrt(2 * 50 * 169 * np.log(40)))
    assert at_leaves == pytest.approx(np.sqrt(2 * 50 * np.log(2 * 169 / 0.05)))


def test_proposition_1_counts_no_more_leaves_than_trips() -> None:
    plan = leaves_plan(STABILITY_HISTOGRAM, [7, 2, 4])
    # Scale 2, threshold 37: 10 occupied leaves at most reach noise of k = 12 with P <= 0.05.
    assert 10 * 2 * np.exp(-12 / 2) / (1 + np.exp(-1 / 2)) <= 0.05
    assert 10 * 2 * np.exp(-11 / 2) / (1 + np.exp(-1 / 2)) > 0.05
    assert proposition_1(plan, 10) == [10.0 * 47, 10.0 * 47, 10.0 * 47, 7.0 * 47, 47.0]
    assert proposition_1(plan)[0] > 169 * 47
    assert proposition_1(plan, 0) == [0.0] * 5
    exact = replace(plan, measures={plan.tree.depth: Measure("", None)}, threshold=1)
    assert proposition_1(exact, 10) == [0.0] * 5


def test_no_bound_where_the_theorem_does_not_hold() -> None:
    assert theorem_4(plan_for(privacy_of(), TDA_L2)) is None
    assert theorem_4(plan_for(privacy_of()))[0] == 0
    assert proposition_1(plan_for(privacy_of())) is None
    assert error_bounds(plan_for(privacy_of(), TDA_L2), 100) is None
    for mechanism in (GAUSSIAN_LEAVES, STABILITY_HISTOGRAM):
        plan = leaves_plan(mechanism, [2, 2, 2])
        assert theorem_4(plan) is None
        assert error_bounds(plan, 100) == proposition_1(plan, 100)


SIGMA = 24.0


def measured(random: np.random.Generator, n_empty: int, n_filled: int) -> NodeCounts:
    """Noisy counts of cells, the empty ones first; the others hold 30 trips and more."""
    truth = np.concatenate([np.zeros(n_empty), 30 + random.pareto(1.5, n_filled) * 60])
    noisy = np.rint(truth + random.normal(0, SIGMA, truth.size)).astype(np.int64)
    return NodeCounts(np.arange(truth.size), noisy)


@pytest.mark.parametrize("least", [1, 20, 45])
@pytest.mark.parametrize("n_filled", [0, 2_000, 20_000])
def test_the_expectation_is_near_what_is_false(least: int, n_filled: int) -> None:
    """Within a tenth, and rather above: a tenth of the filled cells look like empty ones."""
    n_empty = 20_000
    found = measured(np.random.default_rng(n_filled + least), n_empty, n_filled)
    released = found.at(found.counts >= least)
    false = int((released.keys < n_empty).sum())
    expected = expected_false(found, released, SIGMA)
    spread = 4 * np.sqrt(false)
    assert false - spread < expected < 1.1 * false + 0.1 * n_filled + spread
