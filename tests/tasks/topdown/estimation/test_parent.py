from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.runs.errors import SolveFailed
from spineflow.tasks.topdown.estimation import least_squares
from spineflow.tasks.topdown.estimation.parent import (
    Passes,
    conflicting_constraint,
    estimate_children,
    infeasible_constraint,
)
from spineflow.tasks.topdown.estimation.problem import SiblingProblem


def passes_of(made, *, two=True):
    names = [name for name in made.measurements if name != "total"]
    has_total = two and "total" in made.measurements
    least = (("total",), tuple(names)) if has_total else (tuple(made.measurements),)
    chains = [["total"], ["hhgq", "hhgq * hispanic", "detailed"]]
    if made.schema.universe == "units":
        chains = [["detailed"]]
    return Passes(
        least, tuple(tuple(marginal_query(made.schema, n) for n in chain) for chain in chains)
    )


def assert_conserves(problem, x):
    assert x.dtype == np.int64 and x.shape == (problem.n_children, problem.cells.size)
    assert x.min(initial=0) >= 0
    if problem.parent_counts is not None:
        assert np.array_equal(x.sum(0), problem.parent_counts)
    for kind in range(problem.lower.shape[1]):
        of_type = x[:, problem.type_of_cell == kind].sum(1)
        assert np.all(of_type >= problem.lower[:, kind])
        assert np.all(of_type <= problem.upper[:, kind])
    if problem.grouped_totals is not None:
        group_of_child, totals = problem.grouped_totals
        for group, total in enumerate(totals):
            assert x[group_of_child == group].sum() == total


@pytest.mark.parametrize("two", [False, True])
def test_estimates_meet_every_constraint(made, two):
    x, records = estimate_children("0", made.problem, made.measurements, passes_of(made, two=two))
    assert_conserves(made.problem, x)
    assert {record.status for record in records} == {"optimal"}
    assert not any(record.relaxed for record in records)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_children=st.integers(1, 9),
    noise=st.sampled_from([0.0, 1.0, 10.0, 100.0]),
    is_grouped=st.booleans(),
)
def test_random_siblings_conserve(make_siblings, seed, n_children, noise, is_grouped):
    made = make_siblings(seed, n_children, noise=noise)
    assume(made.problem.cells.size > 0)
    if is_grouped:
        group = np.random.default_rng(seed).integers(0, 2, n_children)
        group = np.unique(group, return_inverse=True)[1]
        made = replace(
            made,
            problem=replace(
                made.problem,
                grouped_totals=(group, np.bincount(group, made.truth.sum(1)).astype(np.int64)),
            ),
        )
    x, records = estimate_children("0", made.problem, made.measurements, passes_of(made))
    assert_conserves(made.problem, x)
    assert not any(record.relaxed for record in records)
    if noise <= 10.0:
        assert not any(record.solver == "highs" for record in records)
    if noise == 0.0:
        assert np.array_equal(x, made.truth)


def test_empty_parent(make_siblings):
    made = make_siblings(31, 4)
    problem = replace(
        made.problem,
        cells=made.problem.cells[:0],
        type_of_cell=made.problem.type_of_cell[:0],
        parent_counts=made.problem.parent_counts[:0],
        lower=made.problem.lower * 0,
    )
    x, (record,) = estimate_children("0", problem, made.measurements, passes_of(made))
    assert x.shape == (4, 0) and record.stage == "settled"
    problem = replace(
        made.problem, parent_counts=made.problem.parent_counts * 0, lower=made.problem.lower * 0
    )
    x, _ = estimate_children("0", problem, made.measurements, passes_of(made))
    assert not x.any()


def test_conflict_between_passes_merges_them(make_siblings, monkeypatch):
    """If a later pass cannot meet the pins, all queries go into one pass; nothing else gives."""
    made = make_siblings(32, 5)
    solve = least_squares.solve_passes

    def failing(problem, measurements, passes, weights=None):
        if len(passes) > 1:
            return least_squares.LeastSquaresResult(None)
        return solve(problem, measurements, passes)

    monkeypatch.setattr(least_squares, "solve_passes", failing)
    x, records = estimate_children("0", made.problem, made.measurements, passes_of(made))
    assert_conserves(made.problem, x)
    assert any(record.relaxed for record in records)


@pytest.mark.parametrize("case", ["one pass", "one measured pass"])
def test_a_single_pass_that_fails_is_not_solved_again(make_siblings, monkeypatch, case):
    """There are no earlier passes to drop, so that the same problem would fail again."""
    made = make_siblings(35, 5)
    passes = passes_of(made, two=case == "one measured pass")
    measurements = dict(made.measurements)
    if case == "one measured pass":
        assert passes.least_squares[0] == ("total",)
        del measurements["total"]
    calls = []

    def failing(problem, measurements, passes, weights=None):
        calls.append(passes)
        return least_squares.LeastSquaresResult(None)

    monkeypatch.setattr(least_squares, "solve_passes", failing)
    with pytest.raises(SolveFailed, match="could not be solved, although"):
        estimate_children("0", made.problem, measurements, passes)
    assert calls == [passes.least_squares]


def toy(lower, upper, parent, totals=None):
    c = len(lower)
    return SiblingProblem(
        [f"440{child}" for child in range(c)],
        np.array([0, 5]),
        np.array([0, 1]),
        np.array(parent),
        np.array(lower),
        np.array(upper),
        None if totals is None else (np.arange(c), np.array(totals)),
    )


INFEASIBLE = {
    "bounds cross": (
        toy([[0, 3], [0, 0]], [[9, 2], [9, 9]], [5, 5]),
        "the bounds of type 1 at geounit 4400",
    ),
    "too few records": (
        toy([[0, 3], [0, 3]], [[9, 9], [9, 9]], [5, 5]),
        "the bounds of type 1 summed over geounits 4400, 4401",
    ),
    "too many records": (
        toy([[0, 0], [0, 0]], [[2, 9], [2, 9]], [5, 5]),
        "the bounds of type 0 summed over geounits 4400, 4401",
    ),
    "total above the bounds": (
        toy([[0, 0], [0, 0]], [[2, 1], [9, 9]], [5, 5], [4, 6]),
        "the invariant total that includes geounit 4400",
    ),
    "totals off the parent": (
        toy([[0, 0], [0, 0]], [[9, 9], [9, 9]], [5, 5], [4, 5]),
        "the invariant totals of geounits 4400, 4401, which do not add up",
    ),
    "only together": (
        toy([[0, 0], [0, 0]], [[9, 1], [9, 9]], [2, 8], [6, 4]),
        "geounit 440",
    ),
}


@pytest.mark.parametrize("case", INFEASIBLE)
def test_infeasible_problems_name_geounit_and_constraint(case, make_siblings):
    problem, message = INFEASIBLE[case]
    made = make_siblings(33, 2)
    measurements = {
        name: replace(m, values=np.zeros_like(m.values)) for name, m in made.measurements.items()
    }
    with pytest.raises(SolveFailed) as failure:
        estimate_children("44", problem, measurements, passes_of(made))
    text = str(failure.value)
    assert "The children of geounit 44 cannot meet" in text and message in text
    assert "check the declared invariants" in text
    assert failure.value.exit_code == 4


def test_conflicting_constraint_needs_a_conflict(made):
    assert infeasible_constraint(made.problem) is None
    assert conflicting_constraint(made.problem) is None
