"""Programs that grow, in whole numbers: against all solutions that there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from spineflow.tasks.solvers.growing import GrowingProgram

MOST = 3


def grown(cost: np.ndarray, matrix: np.ndarray, right: np.ndarray) -> GrowingProgram:
    """Columns between 0 and `MOST`, added in two steps, that meet their rows exactly; one row more
    has no entry, and holds."""
    bounds = np.append(right, 0.0)
    program = GrowingProgram(bounds, bounds)
    for first, end in ((0, len(cost) // 2), (len(cost) // 2, len(cost))):
        column, row = np.nonzero(matrix[:, first:end].T)
        starts = np.searchsorted(column, np.arange(end - first))
        program.add(cost[first:end], starts, row, matrix[row, first + column])
    n = len(cost)
    program.bound(np.arange(n), np.zeros(n), np.full(n, float(MOST)))
    return program


@pytest.mark.parametrize("seed", range(30))
def test_whole_solutions_are_the_best_there_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, n = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    matrix = rng.integers(0, 4, (n_rows, n)).astype(float)
    right = matrix @ rng.integers(0, MOST + 1, n) + (rng.random(n_rows) < 0.3)
    cost = rng.integers(-5, 6, n).astype(float)
    program = grown(cost, matrix, right)
    found = program.solved_in_integers(np.arange(n), np.full(n, MOST), 1000, (0.0, 0.0), None)
    every = np.array(list(product(range(MOST + 1), repeat=n)), dtype=float)
    fits = every[(every @ matrix.T == right).all(axis=1)]
    if len(fits) == 0:
        assert found is None
    else:
        assert found is not None
        assert found.objective == pytest.approx((fits @ cost).min())
        assert np.array_equal(matrix @ np.rint(found.x), right)


def test_a_row_without_columns_that_does_not_hold_has_no_solution() -> None:
    program = GrowingProgram(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    program.add(np.ones(1), np.zeros(1), np.zeros(1), np.ones(1))
    assert program.solved_in_integers(np.zeros(1), np.ones(1), 10, (0.0, 0.0), None) is None
