from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.solvers import highs
from spineflow.tasks.solvers.highs import LinearProgram
from spineflow.tasks.topdown.estimation import interleaved, labelled_least_squares
from spineflow.tasks.topdown.estimation.interleaved import solve_interleaved
from spineflow.tasks.topdown.estimation.labelled_least_squares import Sums
from spineflow.tasks.topdown.estimation.parent import Passes, estimate_children
from spineflow.tasks.topdown.estimation.problem import NO_BOUND, Pins, add_constraints, sum_rows
from spineflow.tasks.topdown.workload.sections import GeolevelPasses

from .test_parent import assert_conserves


def passes_of(made, coarse=("hhgq", "hhgq * hispanic")):
    """Two passes: all other queries and a chain of the rounder, then cells."""
    names = [name for name in made.measurements if name != "detailed"]
    fine = ["detailed"]
    if made.schema.universe == "units":
        coarse = ["total"]
    chains = tuple(tuple(marginal_query(made.schema, n) for n in chain) for chain in (coarse, fine))
    return Passes((tuple(names), ("detailed",)), chains, interleaved=True)


def with_exact_types(made, is_exact=None):
    """The siblings held to their types' true numbers, those of `is_exact` alone where given."""
    problem = made.problem
    n_types = problem.lower.shape[1]
    of_type = sum_rows(made.truth.astype(float), problem.type_of_cell, n_types).astype(np.int64)
    chosen = np.ones(n_types, dtype=bool) if is_exact is None else is_exact
    lower = np.where(chosen, of_type, problem.lower)
    upper = np.where(chosen, of_type, problem.upper)
    return replace(made, problem=replace(problem, lower=lower, upper=upper))


def recorded(monkeypatch):
    """What every pass got and gave: (pass, target, chain, rounded x)."""
    passes = []
    rounded = interleaved._Pass.rounded

    def record(self, target, chain):
        result = rounded(self, target, chain)
        passes.append((self, target, chain, result.x))
        return result

    monkeypatch.setattr(interleaved._Pass, "rounded", record)
    return passes


def gap_of(one, x):
    """What a linear step can take off the objective at `x`, which bounds what any can, by HiGHS,
    relative to the objective plus one: 0 where the conditions of Karush, Kuhn and Tucker hold.
    """
    gradient, objective = np.zeros_like(x), 1.0
    for measurement, label in zip(one.asked, one.labels, strict=True):
        noisy = np.empty((len(x), label.max() + 1))
        noisy[:, label] = measurement.answers(one.problem.cells)
        residual = sum_rows(x, label) - noisy
        objective += 0.5 * float((measurement.precision[:, None] * residual**2).sum())
        gradient += (measurement.precision[:, None] * residual)[:, label]
    program = LinearProgram(x.size)
    column = np.arange(x.size).reshape(x.shape)
    assert add_constraints(program, one.problem, column)
    for label, answers in zip(one.pins.labels, one.pins.targets, strict=True):
        n = answers.shape[1]
        row = (np.arange(len(x))[:, None] * n + label).ravel()
        program.add_rows(row, column.ravel(), 1.0, answers.ravel(), answers.ravel())
    upper = np.full(x.size, 1e6)
    best = highs.solve(
        gradient.ravel(), program.matrix(), *program.bounds(), np.zeros(x.size), upper
    )
    return (float((gradient * x).sum()) - best.objective) / objective


def test_estimates_meet_every_constraint(made):
    x, records = estimate_children("0", made.problem, made.measurements, passes_of(made))
    assert_conserves(made.problem, x)
    assert {record.status for record in records} == {"optimal"}
    assert not any(record.relaxed for record in records)


def test_answers_of_an_infinite_budget_return_the_truth(made):
    if "detailed" not in made.measurements:
        pytest.skip("the answers do not determine the cells")
    full = np.zeros((made.problem.n_children, made.schema.n_cells), dtype=np.int64)
    full[:, made.problem.cells] = made.truth
    exact = {
        name: replace(m, values=m.query.answer(full), precision=np.ones(len(full)))
        for name, m in made.measurements.items()
    }
    if made.problem.parent_counts is not None and not np.array_equal(
        made.problem.parent_counts, made.truth.sum(0)
    ):
        pytest.skip("the support was cut")
    # The first pass may fix only what its measured queries tell.
    measured = [name for name in ("hhgq", "total") if name in exact][:1]
    x, _ = estimate_children("0", made.problem, exact, passes_of(made, measured))
    assert np.array_equal(x, made.truth)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_children=st.integers(2, 5),
    noise=st.sampled_from([1.0, 10.0, 50.0]),
    kind=st.sampled_from(["exact", "some exact", "exact or free", "bounded", "root"]),
    is_scaled=st.booleans(),
)
def test_every_pass_is_optimal_and_its_answers_are_held(
    make_siblings, seed, n_children, noise, kind, is_scaled
):
    rng = np.random.default_rng(seed)
    made = make_siblings(
        seed,
        n_children,
        noise=noise,
        is_root=kind == "root",
        scale=rng.integers(1, 5, n_children).astype(float) if is_scaled else None,
    )
    if kind != "bounded":
        is_some = kind in ("some exact", "exact or free")
        chosen = rng.random(made.problem.lower.shape[1]) < 0.5 if is_some else None
        if kind == "exact or free":
            lower, upper = (
                np.zeros_like(made.problem.lower),
                np.full_like(made.problem.upper, NO_BOUND),
            )
            made = replace(made, problem=replace(made.problem, lower=lower, upper=upper))
        made = with_exact_types(made, chosen)
    with pytest.MonkeyPatch.context() as patch:
        passes = recorded(patch)
        asked = passes_of(made)
        x, records = solve_interleaved(
            made.problem, made.measurements, asked.least_squares, asked.rounder
        )
    assert_conserves(made.problem, x)
    assert x.dtype == np.int64
    assert not any(record.relaxed for record in records)
    if made.problem.cells.size:
        assert {record.solver for record in records[::2]} == {"admm"}
    for one, target, _, _ in passes:
        assert gap_of(one, target) <= 1e-3
    for (one, _, chain, rounded), queries in zip(passes, asked.rounder, strict=True):
        for label, query in zip(chain, queries, strict=True):
            row = query.row_of_cell[one.problem.cells]
            kept = sum_rows(x.astype(float), query.row_of_cell[made.problem.cells], query.n_rows)
            given = np.zeros_like(kept)
            np.add.at(given.T, row, rounded.T)
            assert label.size == row.size
            assert np.array_equal(kept, given)


def test_cells_that_a_pass_does_not_tell_apart_are_one_class(make_siblings, monkeypatch):
    passes = recorded(monkeypatch)
    made = with_exact_types(make_siblings(3, 5))
    asked = passes_of(made)
    solve_interleaved(made.problem, made.measurements, asked.least_squares, asked.rounder)
    first, last = passes
    told = [*asked.rounder[0], marginal_query(made.schema, "votingage * hispanic")]
    rows = np.array([query.row_of_cell[made.problem.cells] for query in told])
    assert first[0].problem.cells.size == np.unique(rows, axis=1).shape[1]
    assert last[0].problem.cells.size == made.problem.cells.size


def exact_sums(exact, targets):
    """Sums that are exact, and no others."""
    none = np.zeros((len(targets), 0))
    allowed = np.ones((len(targets), exact.size), dtype=bool)
    return Sums(exact, targets, np.full(exact.size, -1), none, none, allowed)


def test_a_pass_that_measures_nothing_but_what_is_held_still_ends():
    """Two classes in a row without an answer of their own, and a class alone in its row."""
    exact = np.array([0, 0, 1])
    problem = labelled_least_squares.LabelledProblem(
        np.ones(2),
        np.zeros(3),
        np.zeros((2, 3)),
        np.zeros((0, 3), dtype=np.int64),
        np.zeros(0),
        np.array([4, 2, 5]),
        exact_sums(exact, np.array([[3.0, 1.0], [3.0, 4.0]])),
    )
    x, _ = labelled_least_squares.solve(problem)
    assert np.abs(x.sum(0) - problem.parent).max() < 1e-6
    assert np.abs(sum_rows(x, exact) - problem.sums.targets).max() < 1e-6
    assert x.min() >= 0.0


def test_totals_of_groups_that_nothing_else_settles_have_no_labelled_sums(make_siblings):
    made = make_siblings(12, 4)
    group = np.array([0, 1, 1, 0])
    totals = np.bincount(group, made.truth.sum(1)).astype(np.int64)
    grouped = replace(made.problem, group_of_child=group, group_totals=totals)
    assert Sums.of(made.problem, Pins()) is not None
    assert Sums.of(grouped, Pins()) is None
    assert Sums.of(with_exact_types(replace(made, problem=grouped)).problem, Pins()) is not None


def test_interleaved_passes_come_in_pairs():
    with pytest.raises(ValueError, match="as many of the rounder"):
        GeolevelPasses(
            least_squares=(("total",), ("detailed",)), rounder=(("detailed",),), interleaved=True
        )
    with pytest.raises(ValueError, match="does nothing"):
        GeolevelPasses(least_squares=(("all",),), rounder=(("detailed",),), interleaved=True)
