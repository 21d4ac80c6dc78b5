"""Weights by inverse covariances against dense matrices, and the passes against dense solvers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import helmert
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.solvers.highs import SolveStatus
from spineflow.tasks.topdown.estimation import active_set, quadratic
from spineflow.tasks.topdown.estimation.exact_weights import ExactWeights, inverses
from spineflow.tasks.topdown.estimation.least_squares import PassProblem, solve_passes
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    Pins,
    QueryMeasurement,
    SiblingProblem,
    rows_on_support,
)
from spineflow.tasks.topdown.estimation.quadratic import InverseCovariance
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra

SCHEMA = SimpleNamespace(shape=(3, 2, 2, 5))
N_CELLS, N_FREE = 60, 10


def query(*kept: int) -> MarginalQuery:
    factors = tuple(
        tuple(range(n)) if axis in kept else (0,) * n for axis, n in enumerate(SCHEMA.shape)
    )
    return MarginalQuery(f"{kept}", factors)


@pytest.fixture(scope="module")
def algebra() -> QueryAlgebra:
    types = np.repeat(np.arange(3), 20)
    forbidden = np.zeros(N_CELLS, dtype=bool)
    forbidden[40:50] = True
    return QueryAlgebra(SCHEMA, (0, 1), (2, 3), types[::10], ~forbidden[::10])


def weights_of(algebra: QueryAlgebra, seed: int, n_children: int = 3) -> ExactWeights:
    """Random estimates of children; the first can have the first type alone."""
    rng = np.random.default_rng(seed)
    n = len(algebra.cell_type)
    possible = np.tile(algebra.is_possible, (n_children, 1))
    possible[0, algebra.cell_type > 0] = False
    variance = np.zeros((n_children, 4, n, n))
    for child, cells in enumerate(map(np.flatnonzero, possible)):
        root = rng.normal(size=(4, cells.size, cells.size))
        square = np.ix_(range(4), cells, cells)
        variance[child][square] = root @ root.swapaxes(1, 2) + 0.3 * np.eye(cells.size)
    means = rng.normal(3.0, 4.0, size=(n_children, N_CELLS))
    means *= np.repeat(possible, N_FREE, axis=1)
    return ExactWeights(algebra, means, variance, np.zeros_like(variance), possible)


def dense_covariance(weights: ExactWeights, child: int) -> np.ndarray:
    bases = np.kron(helmert(2, full=True), helmert(5, full=True))
    n = len(weights.algebra.cell_type)
    dense = np.zeros((n, N_FREE, n, N_FREE))
    for component, columns in enumerate(weights.algebra.components):
        part = bases[columns]
        dense += np.einsum("ab,pi,pj->aibj", weights.variance[child, component], part, part)
    return dense.reshape(N_CELLS, N_CELLS)


def as_quadratic(covariance: InverseCovariance) -> quadratic.Quadratic:
    c, k = covariance.centre.shape
    none, numbers = np.zeros((0, 0)), np.zeros((0, k), dtype=np.int64)
    profile = np.zeros(c, dtype=np.int64)
    return quadratic.Quadratic(
        np.zeros((c, 1)),
        numbers,
        np.zeros(1, dtype=np.int64),
        none,
        profile,
        covariance.scales(),
        np.zeros(1),
        np.zeros(1),
        np.zeros((1, 0, 0)),
        numbers,
        covariance,
    )


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 2), (0, 2, 3), (0, 1), (0, 1, 2)], ids=str)
def test_matrix_slope_distance_and_inverse_are_those_of_the_dense_problem(algebra, kept):
    weights = weights_of(algebra, 1)
    asked = query(*kept)
    rng = np.random.default_rng(2)
    rows = np.sort(rng.choice(asked.n_rows, max(2, asked.n_rows * 2 // 3), replace=False))
    cells = np.array([np.flatnonzero(asked.row_of_cell == row)[0] for row in rows])
    covariance = weights.inverse_covariance(cells, [asked])
    form, total = as_quadratic(covariance), 0.0
    x = np.zeros((3, rows.size))
    for child in range(3):
        matrix = asked.matrix.toarray().astype(float)
        is_possible = matrix @ np.repeat(weights.possible[child], N_FREE) > 0
        precision = np.linalg.pinv(matrix @ dense_covariance(weights, child) @ matrix.T)
        mean = matrix @ weights.means[child]
        full = np.zeros(asked.n_rows)
        full[rows] = rng.normal(size=rows.size)
        full[~is_possible] = 0.0
        x[child] = full[rows]
        here = np.flatnonzero(is_possible[rows])
        slope = np.empty(rows.size)
        quadratic.slope_of(form, child, x[child].copy(), np.empty(1), slope)
        assert np.allclose(slope[here], -(precision @ (full - mean))[rows][here], atol=1e-8)
        part = precision[np.ix_(rows[here], rows[here])]
        assert np.allclose(covariance.matrix(child)[np.ix_(here, here)], part, atol=1e-8)
        assert np.allclose(quadratic.curvature(form, child)[here], np.diag(part), atol=1e-8)
        extra = rng.random(here.size)
        inverse = quadratic.inverse_of_child(form, child, here, extra)
        assert np.allclose(inverse @ (part + np.diag(extra)), np.eye(here.size), atol=1e-8)
        total += 0.5 * (full - mean) @ precision @ (full - mean)
    assert np.isclose(quadratic.squared_distance(form, x), total)


def test_what_is_exact_or_unknown_leaves_a_definite_inverse():
    exact = np.array([[1.0, -1.0], [-1.0, 1.0]])[None, None]
    nothing = np.zeros((1, 1, 2, 2))
    both = np.ones((1, 2), dtype=bool)
    contrast, total = np.array([1.0, -1.0]), np.ones(2)
    found = inverses(exact, nothing, both)[0, 0]
    assert np.isclose(contrast @ found @ contrast, 1.0) and total @ found @ total > 0
    unknown = np.ones((1, 1, 2, 2))
    found = inverses(0.25 * np.eye(2)[None, None], unknown, both)[0, 0]
    assert np.isclose(contrast @ found @ contrast, 8.0)
    assert 0 < total @ found @ total < 1e-4
    one = inverses(np.diag([4.0, 0.0])[None, None], nothing, np.array([[True, False]]))[0, 0]
    assert np.allclose(one, np.diag([0.25, 0.25]))


def siblings(weights: ExactWeights, seed: int) -> SiblingProblem:
    rng = np.random.default_rng(seed)
    allowed = np.repeat(weights.possible, N_FREE, axis=1)
    truth = rng.poisson(2.0, size=(3, N_CELLS)) * allowed
    cells = np.flatnonzero(truth.sum(axis=0))
    types = np.repeat(weights.algebra.cell_type, N_FREE)[cells]
    of_type = np.array([[row[cells][types == t].sum() for t in range(3)] for row in truth])
    upper = np.where(of_type > 0, of_type + 2, 0)
    upper[:, 0] = NO_BOUND
    geocodes = [str(i) for i in range(3)]
    lower = np.maximum(of_type - 4, 0)
    return SiblingProblem(geocodes, cells, types, truth.sum(axis=0)[cells], lower, upper)


@pytest.mark.parametrize("seed", range(6))
def test_active_set_and_highs_find_the_same(algebra, seed):
    weights = weights_of(algebra, seed)
    problem = siblings(weights, seed)
    detailed = query(0, 1, 2, 3)
    asked = [QueryMeasurement(detailed, weights.means, np.ones(3))]
    labels = [rows_on_support(detailed, problem.cells)]
    covariance = weights.inverse_covariance(problem.cells)
    whole = PassProblem.build(problem, asked, labels, Pins(), covariance)
    x, record = whole.solve()
    assert record.solver == "active set" and whole.violation(x) < 1e-8
    slow = whole.solve_with_highs()
    assert np.allclose(slow.x[: x.size].reshape(x.shape), x, atol=1e-3)
    _, again = active_set.solve(whole.quadratic, whole.constraints, x, max_iterations=30)
    assert again.status is SolveStatus.OPTIMAL
    moved = problem.parent_counts - x.sum(axis=0)
    assert np.abs(moved).max() < 1e-8


def test_an_unconstrained_pass_returns_the_estimates_that_add_up(algebra):
    """Where nothing binds, the children's estimates given their parent come back."""
    weights = weights_of(algebra, 9)
    weights.possible[:] = algebra.is_possible
    rng = np.random.default_rng(9)
    n = len(algebra.cell_type)
    cells = np.flatnonzero(np.repeat(algebra.is_possible, N_FREE))
    variance = np.zeros((3, 4, n, n))
    square = np.ix_(range(3), range(4), algebra.is_possible, algebra.is_possible)
    inner = algebra.is_possible.sum()
    root = rng.normal(size=(3, 4, inner, inner))
    variance[square] = root @ root.swapaxes(2, 3) + 0.3 * np.eye(inner)
    means = np.zeros((3, N_CELLS))
    means[:, cells] = rng.integers(1000, 2000, size=(3, cells.size))
    weights = replace(weights, means=means, variance=variance)
    types = np.repeat(algebra.cell_type, N_FREE)[cells]
    bounds = np.zeros((3, 3), dtype=np.int64), np.full((3, 3), NO_BOUND)
    counts = means.sum(axis=0)[cells].astype(np.int64)
    problem = SiblingProblem(["a", "b", "c"], cells, types, counts, *bounds)
    detailed = query(0, 1, 2, 3)
    measured = {"all": QueryMeasurement(detailed, means, np.ones(3))}
    found = solve_passes(problem, measured, [["all"]], weights)
    assert np.allclose(found.x, means[:, cells], atol=1e-6)


@pytest.mark.slow
def test_a_root_is_solved_whatever_its_measurements_leave_unknown():
    """As under a budget that measures hardly anything at the root: precisions differ by many
    orders from one combination of cells to another, and most are not known at all."""
    schema = SimpleNamespace(shape=(3, 2, 2, 63))
    types = np.repeat(np.arange(3), 2)
    algebra = QueryAlgebra(schema, (0, 1), (2, 3), types, np.ones(6, dtype=bool))
    rng = np.random.default_rng(0)
    variance, diffuse = np.zeros((2, 1, 4, 6, 6))
    for component in range(4):
        basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
        known = basis[:, 5:] * 10.0 ** rng.uniform(-1.0, 2.3, size=1)
        variance[0, component] = known @ known.T
        diffuse[0, component] = basis[:, :5] @ basis[:, :5].T
    n_cells = 3 * 2 * 2 * 63
    means = rng.normal(0.0, 100.0, size=(1, n_cells))
    weights = ExactWeights(algebra, means, variance, diffuse, np.ones((1, 6), dtype=bool))
    bounds = np.zeros((1, 3), dtype=np.int64), np.full((1, 3), NO_BOUND)
    total = np.zeros(1, dtype=np.int64), np.array([4000])
    cells = np.arange(n_cells)
    problem = SiblingProblem(["0"], cells, np.repeat(types, 126), None, *bounds, total)
    asked = MarginalQuery("asked", ((0, 1, 2), (0, 1), (0, 0), (0,) * 63))
    measured = {"asked": QueryMeasurement(asked, asked.answer(means), np.ones(1))}
    found = solve_passes(problem, measured, [["asked"]], weights)
    assert found.x is not None
    assert found.x.min() >= 0 and np.isclose(found.x.sum(), 4000, atol=1e-6)
