"""The optimum against a solver of the dense problem, and the certificate against every trial."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from spineflow.tasks.solvers.split import Program, certify_allocation, optimum
from spineflow.tasks.topdown.design.problem import RequestedAreas

from tests.tasks.topdown.design.small_program import (
    NAMES,
    QUERIES,
    SCHEMA,
    Small,
    random_allocation,
    small,
)

EVERYWHERE = np.ones((len(NAMES), len(QUERIES)), dtype=bool)


def problem(case: Small) -> Program:
    """Two criteria: the variances of counties' and of blocks' totals, each over its mean share."""
    measured, grams = case.measured, case.grams
    core = np.ones((1, len(case.algebra.cell_type)))
    asked = [
        RequestedAreas(measured.classed.areas(case.spine.ancestors(n)), core)
        for n in ("County", "Block")
    ]
    scale = np.array([0.3, 1.0]) * case.algebra.n_coordinates

    def criteria(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = measured.summed_variances(grams, precision, asked)
        return scale * values[:, 0], scale[:, None, None] * slopes[:, 0]

    return Program(case.kinds, criteria, EVERYWHERE)


Dense = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def dense_criteria(case: Small) -> Dense:
    """The same, and derivatives (2, L * Q), by one dense matrix; of spines without bypass."""
    free = case.free
    one = [Fraction(1)] * len(NAMES)
    parts = free.T @ case.informations(one).reshape(-1, len(free), len(free)) @ free
    total = np.ones((1, SCHEMA.n_cells))
    asked = []
    for name, scale in (("County", 0.3), ("Block", 1.0)):
        unit = case.spine.ancestors(name)
        rows = np.kron(np.equal.outer(np.unique(unit), unit).astype(float), total) @ free
        asked.append(scale * rows.T @ rows)

    def criteria(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        covariance = np.linalg.inv(np.tensordot(p.ravel(), parts, axes=1))
        values = [np.sum(covariance * weight) for weight in asked]
        slopes = [-np.sum(parts * (covariance @ w @ covariance), axis=(1, 2)) for w in asked]
        return np.array(values), np.array(slopes)

    return criteria


def by_scipy(criteria: Dense) -> float:
    """The least of the largest criterion, by SciPy on the dense problem."""

    def allocation(x: np.ndarray) -> np.ndarray:
        return np.exp(x[:-1]) / np.exp(x[:-1]).sum()

    def slack(x: np.ndarray) -> np.ndarray:
        return x[-1] - np.log(criteria(allocation(x))[0])

    def slack_slopes(x: np.ndarray) -> np.ndarray:
        p = allocation(x)
        values, slopes = criteria(p)
        by_p = -slopes / values[:, None]
        return np.column_stack([(by_p - (by_p @ p)[:, None]) * p, np.ones(len(values))])

    best = np.inf
    for seed in range(3):
        first = np.append(np.log(random_allocation(seed).ravel()), 0.0)
        first[-1] = np.log(criteria(allocation(first))[0]).max()
        found = minimize(
            lambda x: x[-1],
            first,
            jac=lambda x: np.eye(len(x))[-1],
            method="SLSQP",
            bounds=[*((-16.0, 0.0) for _ in range(EVERYWHERE.size)), (None, None)],
            constraints={"type": "ineq", "fun": slack, "jac": slack_slopes},
            options={"maxiter": 1000, "ftol": 1e-13},
        )
        if (slack(found.x) > -1e-6).all():
            best = min(best, criteria(allocation(found.x))[0].max())
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("states", [False, True])
def test_the_optimum_is_that_of_an_independent_solver(seed: int, states: bool) -> None:
    case = small(seed, states=states)
    found = optimum(problem(case), random_allocation(seed), 1e-5)
    assert found.allocation.sum() == pytest.approx(1)
    dense = dense_criteria(case)
    assert found.values == pytest.approx(dense(found.allocation)[0], rel=1e-5)
    assert found.values.max() == pytest.approx(by_scipy(dense), rel=1e-4)
    assert found.gap < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_allocation_is_below_the_bound(seed: int) -> None:
    """The bound of any point holds for random allocations, those near the optimum, and with the
    bypass, where precisions are not linear in an allocation."""
    case = small(seed, bypassed=True)
    program = problem(case)
    best = optimum(program, random_allocation(seed), 1e-2)
    assert best.gap < 0.05
    bounds = [
        best.bound,
        *(certify_allocation(program, random_allocation(s), ()).bound for s in range(5)),
    ]
    rng = np.random.default_rng(seed)
    for _ in range(50):
        p = best.allocation * rng.uniform(0.9, 1.1, EVERYWHERE.shape) + 1e-6 * rng.random()
        trials = (p / p.sum(), rng.dirichlet(np.full(EVERYWHERE.size, 0.3)).reshape(p.shape) + 1e-9)
        for trial in trials:
            values, _ = program.criteria(program.kinds.precision(trial / trial.sum()))
            assert values.max() >= max(bounds) * (1 - 1e-6)


def test_a_bad_allocation_has_a_large_gap() -> None:
    case = small(2)
    p = np.full(EVERYWHERE.shape, 1e-4)
    p[0] = 1.0
    assert certify_allocation(problem(case), p / p.sum(), ()).gap > 1.0
