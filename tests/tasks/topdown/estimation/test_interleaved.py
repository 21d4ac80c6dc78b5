from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.solvers import highs
from spineflow.tasks.solvers.highs import LinearProgram
from spineflow.tasks.topdown.estimation import parent
from spineflow.tasks.topdown.estimation.least_squares import PassProblem
from spineflow.tasks.topdown.estimation.parent import Passes, estimate_children, solve_interleaved
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    add_constraints,
    sum_rows,
)
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
    """Every pass: (pass, least squares of all parts, rounded x)."""
    passes, parts = [], []
    solved, solve = parent._Pass.solved, PassProblem.solve_exactly

    def keep(one):
        x, record = solve(one)
        parts.append((one.problem.cells, x))
        return x, record

    def record(self):
        parts.clear()
        found = solved(self)
        target = np.full((self.problem.n_children, self.problem.cells.size), np.nan)
        for cells, x in parts:
            target[:, np.isin(self.problem.cells, cells)] = x[:, np.argsort(place_in(self, cells))]
        passes.append((self, target, found[1].x))
        return found

    monkeypatch.setattr(PassProblem, "solve_exactly", keep)
    monkeypatch.setattr(parent._Pass, "solved", record)
    return passes


def place_in(one, cells):
    """Positions of cells among those of a pass."""
    place = {cell: position for position, cell in enumerate(one.problem.cells.tolist())}
    return np.array([place[cell] for cell in cells.tolist()], dtype=np.int64)


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
    together=st.sampled_from([1, 4, 100]),
)
def test_every_pass_is_optimal_and_its_answers_are_held(
    make_siblings, seed, n_children, noise, kind, is_scaled, together
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
        patch.setattr(parent, "TOGETHER", together)
        asked = passes_of(made)
        x, records = solve_interleaved(
            made.problem, made.measurements, asked.least_squares, asked.rounder
        )
    assert_conserves(made.problem, x)
    assert x.dtype == np.int64
    assert not any(record.relaxed for record in records)
    for one, target, _ in passes:
        assert gap_of(one, target) <= 1e-6
    for (one, _, rounded), queries in zip(passes, asked.rounder, strict=True):
        for label, query in zip(one.chain, queries, strict=True):
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


def test_a_pass_that_measures_nothing_but_what_is_held_still_ends():
    """Two classes in a row without an answer of their own, and a class alone in its row."""
    exact, targets = np.array([0, 0, 1]), np.array([[3.0, 1.0], [3.0, 4.0]])
    none, free = np.zeros((2, 1), dtype=np.int64), np.full((2, 1), NO_BOUND)
    problem = SiblingProblem(
        ["0", "1"], np.arange(3), np.zeros(3, dtype=np.int64), np.array([4, 2, 5]), none, free
    )
    total = QueryMeasurement(MarginalQuery("total", ((0, 0, 0),)), np.array([[9], [2]]), np.ones(2))
    pins = Pins((exact,), (targets,))
    x, record = PassProblem.build(problem, [total], [np.zeros(3, int)], pins).solve_by_rows()
    assert record.status == "optimal"
    assert np.abs(x.sum(0) - problem.parent_counts).max() < 1e-6
    assert np.abs(sum_rows(x, exact) - targets).max() < 1e-6
    assert x.min() >= 0.0


def test_interleaved_passes_come_in_pairs():
    with pytest.raises(ValueError, match="as many of the rounder"):
        GeolevelPasses(
            least_squares=(("total",), ("detailed",)), rounder=(("detailed",),), interleaved=True
        )
    with pytest.raises(ValueError, match="does nothing"):
        GeolevelPasses(least_squares=(("all",),), rounder=(("detailed",),), interleaved=True)
