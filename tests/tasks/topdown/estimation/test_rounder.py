from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.solvers.highs import SolveStatus
from spineflow.tasks.topdown.estimation import least_squares, network_flow, rounder
from spineflow.tasks.topdown.estimation.problem import NO_BOUND, Pins, SiblingProblem, sum_rows
from spineflow.tasks.topdown.estimation.rounder import (
    RoundingPass,
    round_by_flow,
    round_by_highs,
    snap_to_grid,
)

NOTHING_HELD = Pins()


def feasible_target(rng, c, k, *, has_parent=True, n_types=2, groups=None):
    """A problem and a fractional point of its polytope: a mean of integer points."""
    points = rng.integers(0, 3, (int(rng.integers(2, 5)), c, k)).astype(float)
    if has_parent:
        for point in points[1:]:
            for j in range(k):
                point[:, j] = rng.permutation(points[0][:, j])
    target = points.mean(axis=0)
    type_of_cell = np.sort(rng.integers(0, n_types, k))
    of_type = sum_rows(target, type_of_cell, n_types)
    slack = rng.integers(0, 2, of_type.shape)
    lower = np.maximum(np.floor(of_type) - slack, 0).astype(np.int64)
    upper = np.where(rng.random(of_type.shape) < 0.3, NO_BOUND, np.ceil(of_type) + slack)
    totals = None
    if groups is not None:
        totals = np.rint(np.bincount(groups, target.sum(1))).astype(np.int64)
        # Keep the point inside: the totals must be integers that it has.
        for g in range(totals.size):
            members = np.flatnonzero(groups == g)
            gap = totals[g] - target[members].sum()
            target[members[0], 0] = max(target[members[0], 0] + gap, 0.0)
        lower = np.zeros_like(lower)
        upper = np.full_like(upper, NO_BOUND)
    problem = SiblingProblem(
        [str(child) for child in range(c)],
        np.arange(k),
        type_of_cell,
        np.rint(target.sum(0)).astype(np.int64) if has_parent else None,
        lower,
        upper.astype(np.int64),
        None if groups is None else (groups, totals),
    )
    return problem, snap_to_grid(target)


def nested_labels(rng, type_of_cell):
    """Total, types, a random refinement of the types, cells."""
    k = type_of_cell.size
    finer = np.unique(type_of_cell * 10 + rng.integers(0, 2, k), return_inverse=True)[1]
    dense = np.unique(type_of_cell, return_inverse=True)[1]
    return [np.zeros(k, dtype=np.int64), dense, finer, np.arange(k)]


def is_feasible(problem, x, held=NOTHING_HELD):
    if problem.parent_counts is not None and np.any(x.sum(0) != problem.parent_counts):
        return False
    of_type = sum_rows(x, problem.type_of_cell, problem.lower.shape[1])
    if np.any(of_type < problem.lower) or np.any(of_type > problem.upper):
        return False
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        if np.any(np.bincount(group, x.sum(1), totals.size) != totals):
            return False
    kept = zip(held.labels, held.targets, strict=True)
    return all(np.array_equal(sum_rows(x, label), answers) for label, answers in kept)


def interpolated_distance(target, x, labels):
    """Sum over query rows of |d - n|, which interpolating leaves alone at integers n."""
    total = 0.0
    for label in labels:
        d = sum_rows(target - np.floor(target), label)
        n = sum_rows(x - np.floor(target), label)
        total += np.abs(d - n).sum()
    return total


def brute_force(rounding):
    """Least interpolated distance over every 0/1 choice, or None."""
    base = np.floor(rounding.target)
    free = np.argwhere(rounding.target > base)
    best = None
    for bits in itertools.product((0, 1), repeat=len(free)):
        x = base.copy()
        x[tuple(free.T)] += bits
        if is_feasible(rounding.problem, x, rounding.held):
            distance = interpolated_distance(rounding.target, x, rounding.labels)
            best = distance if best is None else min(best, distance)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_flow_matches_brute_force(seed):
    rng = np.random.default_rng(seed)
    c, k = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    has_parent = bool(rng.random() < 0.8)
    problem, target = feasible_target(rng, c, k, has_parent=has_parent)
    labels = nested_labels(rng, problem.type_of_cell)[int(rng.integers(0, 3)) :]
    rounding = RoundingPass(problem, target, labels)
    expected = brute_force(rounding)
    result = round_by_flow(rounding)
    assert expected is not None and result.record.status is SolveStatus.OPTIMAL
    assert is_feasible(problem, result.x)
    assert set(np.unique(result.x - np.floor(target))) <= {0, 1}
    found = interpolated_distance(target, result.x, labels)
    assert found == pytest.approx(expected, abs=1e-9)


def test_classes_have_the_optimum_of_the_cells_where_these_can_have_their_answers():
    """An early pass of many cells is solved on classes; what it leaves is held by the next."""
    n_had = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        c, k = int(rng.integers(1, 6)), int(rng.integers(2, 30))
        problem, target = feasible_target(rng, c, k)
        *early, cells = nested_labels(rng, problem.type_of_cell)
        fine = RoundingPass(problem, target, early[:: int(rng.integers(1, 3))])
        of_classes = rounder._round_classes(fine).x
        found = distance_of_answers(fine, of_classes)
        least = distance_of_answers(fine, rounder.round_pass(fine).x)
        assert found <= least + 1e-6
        held = Pins().with_answers(fine.labels, of_classes)
        last = rounder.round_pass(RoundingPass(problem, target, [cells], held))
        if last.record.status is SolveStatus.OPTIMAL:
            n_had += 1
            assert found == pytest.approx(least, abs=1e-6)
            assert is_feasible(problem, last.x, held)
    assert n_had >= 30


def distance_of_answers(rounding, x):
    """Sum over query rows of |answer of the target - answer of x|."""
    off = [sum_rows(x, label) - sum_rows(rounding.target, label) for label in rounding.labels]
    return sum(np.abs(part).sum() for part in off)


def test_answers_of_classes_that_no_cells_can_have_are_found_again(monkeypatch):
    problem, target = feasible_target(np.random.default_rng(7), 4, 5)
    cells = marginal_query_of(5)
    passes = [[MarginalQuery("total", ((0,) * 5,))], [cells]]

    def impossible(rounding):
        return rounder.round_pass(rounding)._replace(x=np.full(target.shape, 7))

    usual = rounder.solve_passes(problem, target, passes)
    monkeypatch.setattr(rounder, "_round_classes", impossible)
    again = rounder.solve_passes(problem, target, passes, [cells])
    assert np.array_equal(usual.x, again.x) and not again.record.relaxed


@pytest.mark.parametrize("seed", range(60))
def test_flow_and_highs_agree(seed):
    rng = np.random.default_rng(seed + 1000)
    c, k = int(rng.integers(1, 9)), int(rng.integers(2, 14))
    groups = np.sort(rng.integers(0, 2, c)) if seed % 3 == 0 else None
    if groups is not None:
        groups = np.unique(groups, return_inverse=True)[1]
    problem, target = feasible_target(rng, c, k, groups=groups)
    labels = nested_labels(rng, problem.type_of_cell)

    def distance(result, asked):
        return interpolated_distance(target, result.x, asked)

    first = RoundingPass(problem, target, labels[:1])
    ours, theirs = round_by_flow(first), round_by_highs(first)
    assert ours.record.status == theirs.record.status
    if ours.x is None:
        return
    assert distance(ours, labels[:1]) == pytest.approx(distance(theirs, labels[:1]), abs=1e-9)
    held = Pins().with_answers(labels[:1], ours.x)
    second = RoundingPass(problem, target, labels[1:], held)
    ours, theirs = round_by_flow(second), round_by_highs(second)
    assert distance(ours, labels[1:]) == pytest.approx(distance(theirs, labels[1:]), abs=1e-9)
    for result in (ours, theirs):
        assert is_feasible(problem, result.x, held)


def test_queries_that_cross_types_go_to_highs():
    problem, target = feasible_target(np.random.default_rng(6), 3, 6)
    problem = replace(problem, type_of_cell=np.array([0, 0, 0, 1, 1, 1]))
    of_type = sum_rows(target, problem.type_of_cell, 2)
    problem = replace(
        problem, lower=np.floor(of_type).astype(int), upper=np.ceil(of_type).astype(int)
    )
    crossing = np.array([0, 1, 2, 0, 1, 2])
    rounding = RoundingPass(problem, target, [crossing])
    assert round_by_flow(rounding) is None
    assert round_by_highs(rounding).record.status is SolveStatus.OPTIMAL


def test_passes_hold_earlier_answers(made):
    if made.schema.universe == "units":
        names = [["total"], ["detailed"]]
    else:
        names = [["total"], ["hhgq", "hhgq * hispanic", "detailed"]]
    passes = [[marginal_query(made.schema, name) for name in group] for group in names]
    target = least_squares.solve_passes(
        made.problem, made.measurements, [list(made.measurements)]
    ).x
    result = rounder.solve_passes(made.problem, target, passes)
    assert result.record.status is SolveStatus.OPTIMAL and result.record.solver == "flow"
    assert not result.record.relaxed
    assert result.x.dtype == np.int64 and is_feasible(made.problem, result.x)
    snapped = snap_to_grid(target)
    step = result.x - np.floor(snapped)
    assert set(np.unique(step)) <= {0, 1}
    first = rounder.solve_passes(made.problem, target, passes[:1])
    assert np.array_equal(first.x.sum(1), result.x.sum(1))
    assert np.array_equal(rounder.solve_passes(made.problem, target, passes).x, result.x)


def test_integers_stay():
    problem, _ = feasible_target(np.random.default_rng(7), 4, 5)
    whole = np.random.default_rng(8).integers(0, 9, (4, 5))
    problem = replace(
        problem,
        parent_counts=whole.sum(0),
        lower=problem.lower * 0,
        upper=problem.upper * 0 + NO_BOUND,
    )
    target = whole + np.random.default_rng(9).uniform(-9e-6, 9e-6, whole.shape)
    result = rounder.solve_passes(problem, target, [[marginal_query_of(5)]])
    assert np.array_equal(result.x, whole)


def marginal_query_of(n_cells):
    """The query that asks for each of that many cells."""
    return MarginalQuery("detailed", (tuple(range(n_cells)),))


def test_fail_safe_keeps_every_constraint():
    """The target misses the parent by whole units, so no 0/1 choice can do."""
    problem, target = feasible_target(np.random.default_rng(10), 4, 5)
    problem = replace(
        problem,
        parent_counts=problem.parent_counts + 7,
        lower=problem.lower * 0,
        upper=problem.upper * 0 + NO_BOUND,
    )
    result = rounder.solve_passes(problem, target, [[marginal_query_of(5)]])
    assert result.record.relaxed and result.record.solver == "highs"
    assert is_feasible(problem, result.x) and result.x.min() >= 0
    least = np.abs(problem.parent_counts - target.sum(0)).sum()
    assert np.abs(result.x - target).sum() >= least - 1e-9


def test_fail_safe_reports_what_cannot_be_met():
    problem, target = feasible_target(np.random.default_rng(11), 3, 4)
    problem = replace(problem, lower=problem.lower + 100, upper=problem.upper + 100)
    result = rounder.solve_passes(problem, target, [[marginal_query_of(4)]])
    assert result.x is None and result.record.relaxed
    assert result.record.status is SolveStatus.INFEASIBLE


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), c=st.integers(1, 6), k=st.integers(1, 8))
def test_conserves(seed, c, k):
    rng = np.random.default_rng(seed)
    problem, target = feasible_target(rng, c, k)
    result = round_by_flow(RoundingPass(problem, target, nested_labels(rng, problem.type_of_cell)))
    assert result.record.status is SolveStatus.OPTIMAL
    assert is_feasible(problem, result.x)
    assert set(np.unique(result.x - np.floor(target))) <= {0, 1}


def test_marginal_costs_are_slopes_of_the_interpolated_distance():
    wanted = int(2.75 * network_flow.UNIT)
    costs = [network_flow.marginal(n, wanted, True, 0, 5) / network_flow.UNIT for n in range(6)]
    distance = [abs(2.75 - n) for n in range(6)]
    assert costs[:5] == [distance[n + 1] - distance[n] for n in range(5)]
    assert costs[5] == 1 + network_flow.FORBIDDEN / network_flow.UNIT
