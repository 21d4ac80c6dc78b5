"""Elimination of one child, against the whole system solved at once."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.topdown.estimation.elimination import add_child, eliminate, step_of_child


@pytest.mark.parametrize("f", [3, 20, 80])
@pytest.mark.parametrize("n_rows", [0, 1, 3, 9])
def test_step_of_child_solves_its_system(f: int, n_rows: int) -> None:
    rng = np.random.default_rng(f + n_rows)
    matrix = rng.normal(size=(f, f))
    matrix = matrix @ matrix.T + np.eye(f)
    rows = rng.integers(-1, n_rows, (2, f)) if n_rows else np.full((2, f), -1)
    rows[1] = np.where(rows[1] == rows[0], -1, rows[1])
    incidence = np.zeros((n_rows, f))
    for label in rows:
        for a in np.flatnonzero(label >= 0):
            incidence[label[a], a] = 1.0
    give = rng.uniform(0.1, 1.0, n_rows)
    whole = np.block([[matrix, incidence.T], [incidence, -np.diag(give)]])
    force, miss = rng.normal(size=f), rng.normal(size=n_rows)
    system = eliminate(np.linalg.inv(matrix), rows, give)
    step, multiplier = step_of_child(system, force, miss)
    assert np.allclose(whole @ np.r_[step, multiplier], np.r_[force, miss], atol=1e-7)


def test_child_is_added_to_the_rows_it_shares() -> None:
    inverse = np.arange(9.0).reshape(3, 3)
    rows = np.array([[0, 1, 2], [3, 3, 4]])
    incidence = np.zeros((5, 3))
    for label in rows:
        incidence[label, np.arange(3)] = 1.0
    schur = np.ones((5, 5))
    add_child(schur, inverse, rows)
    assert np.allclose(schur, 1.0 + incidence @ inverse @ incidence.T)
