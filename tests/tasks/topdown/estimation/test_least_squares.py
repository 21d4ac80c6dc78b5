from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.solvers.highs import SolveStatus
from spineflow.tasks.topdown.estimation import active_set, dual_newton
from spineflow.tasks.topdown.estimation.least_squares import PassProblem, solve_passes
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    rows_on_support,
)

ALL = [["total", "hhgq", "votingage * hispanic", "detailed"]]
TOTAL_FIRST = [["total"], ["hhgq", "votingage * hispanic", "detailed"]]


def constraint_violation(problem, x, pinned=()):
    """Largest violation, from the definitions alone; `pinned` are (query matrix, answers)."""
    violations = [-x.min(initial=0.0)]
    if problem.parent_counts is not None:
        violations.append(np.abs(x.sum(axis=0) - problem.parent_counts).max(initial=0.0))
    for kind in range(problem.lower.shape[1]):
        of_type = x[:, problem.type_of_cell == kind].sum(axis=1)
        violations.append((problem.lower[:, kind] - of_type).max(initial=0.0))
        violations.append((of_type - problem.upper[:, kind]).max(initial=0.0))
    if problem.grouped_totals is not None:
        group_of_child, totals = problem.grouped_totals
        for group, total in enumerate(totals):
            violations.append(abs(x[group_of_child == group].sum() - total))
    for matrix, answers in pinned:
        violations.append(np.abs(x @ matrix.T - answers).max(initial=0.0))
    return max(violations)


def stationarity_residual(problem, measurements, names, x, pinned=()):
    """Least possible |gradient - multipliers|, relative to the gradient's largest term.

    The multipliers obey their signs, and are zero wherever the constraint has slack: with primal
    feasibility these are the Karush-Kuhn-Tucker conditions. Found by a linear program that knows
    nothing of how the solution came about.
    """
    c, k = x.shape
    gradient = np.zeros((c, k))
    size = 1.0
    for name in names:
        measurement = measurements[name]
        matrix = measurement.query.matrix.toarray()[:, problem.cells].astype(float)
        weight = measurement.precision / max(m.precision.max() for m in measurements.values())
        residual = weight[:, None] * (x @ matrix.T - measurement.values)
        gradient += residual @ matrix
        terms = weight[:, None] * (np.abs(measurement.values) @ matrix)
        size = max(size, np.abs(terms).max(initial=0.0))
    columns, lower_signs = [], []  # a column is an indicator of cells; sign None means free
    slack = 1e-6 * max(1.0, x.max(initial=0.0) * 1e-3)

    def add(mask, sign):
        columns.append(mask.ravel().astype(float))
        lower_signs.append(sign)

    for i, j in np.argwhere(x <= slack):
        mask = np.zeros((c, k))
        mask[i, j] = 1
        add(mask, 1)
    if problem.parent_counts is not None:
        for j in range(k):
            mask = np.zeros((c, k))
            mask[:, j] = 1
            add(mask, 0)
    if problem.grouped_totals is not None:
        group_of_child, totals = problem.grouped_totals
        for group in range(totals.size):
            mask = np.zeros((c, k))
            mask[group_of_child == group] = 1
            add(mask, 0)
    for matrix, _ in pinned:
        for i in range(c):
            for row in matrix:
                mask = np.zeros((c, k))
                mask[i] = row
                add(mask, 0)
    for i in range(c):
        for kind in range(problem.lower.shape[1]):
            cells = problem.type_of_cell == kind
            total = x[i, cells].sum()
            mask = np.zeros((c, k))
            mask[i, cells] = 1
            if total <= problem.lower[i, kind] + slack:
                add(mask, 1)
            if total >= problem.upper[i, kind] - slack:
                add(-mask, 1)
    if not columns:
        return np.abs(gradient).max(initial=0.0) / size
    multipliers = sparse.csc_array(np.array(columns).T)
    n = multipliers.shape[1]
    ones = sparse.csc_array(np.ones((c * k, 1)))
    matrix = sparse.vstack(
        [sparse.hstack([multipliers, -ones]), sparse.hstack([-multipliers, -ones])]
    )
    flat = gradient.ravel() / size
    bounds = [(0, None) if sign else (None, None) for sign in lower_signs] + [(0, None)]
    result = linprog(np.r_[np.zeros(n), 1.0], A_ub=matrix, b_ub=np.r_[flat, -flat], bounds=bounds)
    assert result.status == 0
    return result.fun


def assert_optimal(made, names, x, pinned_names=(), tolerance=1e-9):
    problem = made.problem
    pinned = []
    for name in pinned_names:
        matrix = made.measurements[name].query.matrix.toarray()[:, problem.cells].astype(float)
        pinned.append((matrix, x @ matrix.T))
    size = max(1.0, np.abs(made.truth).max(initial=0.0))
    assert constraint_violation(problem, x, pinned) <= tolerance * size
    residual = stationarity_residual(problem, made.measurements, names, x, pinned)
    assert residual <= 1e-7


def names_of(made, passes):
    return [name for names in passes for name in names if name in made.measurements]


def last_pass(made, names, pins=None):
    labels = [rows_on_support(made.measurements[n].query, made.problem.cells) for n in names]
    return PassProblem.build(
        made.problem, [made.measurements[n] for n in names], labels, pins or Pins()
    )


def test_single_pass_meets_the_kkt_conditions(made):
    result = solve_passes(made.problem, made.measurements, ALL)
    assert result.x is not None
    assert_optimal(made, names_of(made, ALL), result.x)
    (record,) = result.passes
    assert record.solver == "active set" and record.status is SolveStatus.OPTIMAL
    size = made.truth.sum(initial=0)
    assert record.primal_residual <= 1e-6 + 1e-14 * size
    assert record.dual_residual <= 1e-8 and record.objective_gap <= 1e-6


def test_each_of_two_passes_meets_the_kkt_conditions(made):
    if "total" not in made.measurements:
        pytest.skip("one query only")
    first = solve_passes(made.problem, made.measurements, [["total"]])
    assert_optimal(made, ["total"], first.x)
    result = solve_passes(made.problem, made.measurements, TOTAL_FIRST)
    rest = [name for name in names_of(made, TOTAL_FIRST) if name != "total"]
    assert_optimal(made, rest, result.x, pinned_names=["total"])
    tau = result.passes[0].tau
    size = max(1.0, made.truth.max(initial=0))
    assert np.abs(first.x.sum(1) - result.x.sum(1)).max() <= tau + 1e-8 * size


def test_checker_rejects_wrong_solutions(make_siblings):
    made = make_siblings(1)
    x = solve_passes(made.problem, made.measurements, ALL).x
    names = names_of(made, ALL)
    assert stationarity_residual(made.problem, made.measurements, names, made.truth) > 1e-4
    i, j = np.unravel_index(np.argmax(x), x.shape)
    moved = x.copy()
    moved[i, j] -= 0.01
    moved[(i + 1) % len(x), j] += 0.01
    assert stationarity_residual(made.problem, made.measurements, names, moved) > 1e-6
    assert constraint_violation(made.problem, x + 0.01) > 1e-3


def test_three_passes_keep_the_answers_of_the_first_two(make_siblings):
    made = make_siblings(20, 6, noise=6.0)
    passes = [["total"], ["hhgq", "votingage * hispanic"], ["detailed"]]
    result = solve_passes(made.problem, made.measurements, passes)
    assert_optimal(
        made, ["detailed"], result.x, pinned_names=["total", "hhgq", "votingage * hispanic"]
    )
    second = solve_passes(made.problem, made.measurements, passes[:2]).x
    for name in ("total", "hhgq", "votingage * hispanic"):
        matrix = made.measurements[name].query.matrix[:, made.problem.cells].toarray()
        assert np.allclose(second @ matrix.T, result.x @ matrix.T, atol=1e-7)


def test_highs_reaches_the_same_objective(made):
    names = names_of(made, ALL)
    if max(made.truth.max(initial=0), 0) > 1e6:
        pytest.skip("HiGHS's own tolerances are absolute")
    problem = last_pass(made, names)
    ours, _ = problem.solve()
    result = problem.solve_with_highs()
    assert result.status is SolveStatus.OPTIMAL
    c, k = ours.shape
    theirs = problem.objective(np.maximum(result.x[: c * k].reshape(c, k), 0.0))
    assert problem.objective(ours) <= theirs * (1 + 1e-6) + 1e-6
    assert theirs <= problem.objective(ours) * (1 + 1e-5) + 1e-5


def refuse_active_set(monkeypatch):
    solve = active_set.solve

    def unsettled(*arguments, **options):
        x, record = solve(*arguments, **options)
        return x, replace(record, status=SolveStatus.LIMIT)

    monkeypatch.setattr(active_set, "solve", unsettled)


def test_newtons_method_meets_the_kkt_conditions(made, monkeypatch):
    if made.truth.max(initial=0) > 1e6:
        pytest.skip("a parent's 1 beside a parent's 10^8: the active-set method's business")
    refuse_active_set(monkeypatch)
    result = solve_passes(made.problem, made.measurements, ALL)
    (record,) = result.passes
    assert record.solver == "dual newton"
    assert_optimal(made, names_of(made, ALL), result.x, tolerance=1e-6)


def test_falls_back_to_highs(make_siblings, monkeypatch):
    made = make_siblings(21)
    expected = solve_passes(made.problem, made.measurements, ALL).x
    refuse_active_set(monkeypatch)
    newton = dual_newton.solve

    def uncertain(asked):
        x, record = newton(asked)
        return x, replace(record, objective_gap=np.inf)

    monkeypatch.setattr(dual_newton, "solve", uncertain)
    result = solve_passes(made.problem, made.measurements, TOTAL_FIRST)
    assert {record.solver for record in result.passes} == {"highs"}
    assert constraint_violation(made.problem, result.x) <= 1e-6
    result = solve_passes(made.problem, made.measurements, ALL)
    assert np.abs(result.x - expected).max() < 1e-4


def test_permuting_the_children_permutes_the_solution(make_siblings):
    made = make_siblings(24, 6)
    order = np.array([3, 0, 5, 1, 4, 2])
    problem = replace(
        made.problem,
        geocodes=[made.problem.geocodes[i] for i in order],
        lower=made.problem.lower[order],
        upper=made.problem.upper[order],
    )
    measurements = {
        name: QueryMeasurement(m.query, m.values[order], m.precision[order])
        for name, m in made.measurements.items()
    }
    expected = solve_passes(made.problem, made.measurements, ALL).x[order]
    assert np.allclose(solve_passes(problem, measurements, ALL).x, expected, atol=1e-8)


def test_infeasible_pass_fails(make_siblings):
    made = make_siblings(25, 3)
    problem = replace(
        made.problem,
        grouped_totals=(np.arange(3), made.truth.sum(1) + np.array([1, 0, 0])),
    )
    result = solve_passes(problem, made.measurements, ALL)
    assert result.x is None
    assert result.passes[-1].status is SolveStatus.INFEASIBLE


TOY = CENSUS.schema("persons", ("votingage",))
"""Two cells."""


def toy_pass(parent, totals=None):
    """Two children, two cells of one type, one query on the cells."""
    problem = SiblingProblem(
        ["1", "2"],
        np.arange(2),
        np.zeros(2, dtype=np.int64),
        np.array(parent),
        np.zeros((2, 1), dtype=np.int64),
        np.full((2, 1), NO_BOUND),
        None if totals is None else (np.arange(2), np.array(totals)),
    )
    query = marginal_query(TOY, "detailed")
    measurement = QueryMeasurement(query, np.zeros((2, 2), dtype=np.int64), np.ones(2))
    return PassProblem.build(problem, [measurement], [np.arange(2)], Pins())


def test_tolerance_is_zero_for_a_feasible_point():
    tau, y = toy_pass([4, 6]).secondary(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert tau == pytest.approx(0.0, abs=1e-12)
    assert np.allclose(y, [[1, 2], [3, 4]])


@pytest.mark.parametrize("seed", range(5))
def test_tolerance_matches_brute_force(seed):
    """With the children's totals fixed one number is free: the first child's first cell."""
    rng = np.random.default_rng(seed)
    parent = rng.integers(1, 6, 2)
    first = int(rng.integers(0, parent.sum() + 1))
    problem = toy_pass(parent, [first, parent.sum() - first])
    x = rng.uniform(0, 4, (2, 2))
    low, high = max(0, first - parent[1]), min(parent[0], first)
    grid = np.linspace(low, high, 200_001)
    children = np.stack([grid, first - grid, parent[0] - grid, parent[1] - first + grid])
    expected = np.abs(children - x.reshape(4, 1)).max(axis=0).min()
    tau, y = problem.secondary(x)
    assert tau == pytest.approx(expected, abs=1e-4)
    assert tau > 1e-3
    assert problem.violation(y) <= 1e-9
    assert np.abs(y - x).max() <= tau + 1e-9
