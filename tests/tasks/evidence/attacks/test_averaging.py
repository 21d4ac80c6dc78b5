"""Counts that are averaged out of noisy tables, against simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.evidence.attacks.combining import least_squares, recovered
from spineflow.tasks.evidence.attacks.systems import TableSystem, system_of_tables

from tests.tasks.evidence.attacks.blocks import totals_of


def splitting(splits: int) -> TableSystem:
    """Parts p_k and a - p_k of a total a, over the cells a, p_1, ..., p_splits."""
    parts = np.hstack([np.zeros((splits, 1)), np.eye(splits)])
    rest = np.hstack([np.ones((splits, 1)), -np.eye(splits)])
    return TableSystem(sparse.csr_array(np.vstack([parts, rest]).astype(np.int64)))


def test_so_many_splits_recover_a_total_in_95_of_100() -> None:
    draws = np.random.default_rng(8)
    for splits, expected in ((31, 0.95), (8, 0.683)):
        system = splitting(splits)
        people = np.hstack([np.full((8000, 1), 30), draws.integers(0, 30, (8000, splits))])
        noisy = totals_of(system, people) + draws.normal(0, 1, (8000, 2 * splits))
        found = least_squares(system, noisy)
        total = found[:, :1] + found[:, splits : splits + 1]
        assert found[:, :splits] + found[:, splits:] == pytest.approx(np.repeat(total, splits, 1))
        assert total.var() == pytest.approx(2 / splits, rel=0.05)
        assert (np.rint(total) == 30).mean() == pytest.approx(expected, abs=0.012)


def test_least_squares_are_those_of_the_normal_equations() -> None:
    draws = np.random.default_rng(2)
    a, b, c = (axis.ravel() for axis in np.indices((3, 2, 2)))
    system = system_of_tables([a * 2 + b, b * 2 + c, a, 0 * a, a * 4 + b * 2 + c])
    published = draws.normal(10, 3, (4, system.n_rows))
    dense = system.matrix.toarray()
    expected = (dense @ np.linalg.inv(dense.T @ dense) @ dense.T @ published.T).T
    assert least_squares(system, published) == pytest.approx(expected)


def test_cells_recovered_are_counted_by_their_true_count() -> None:
    truth = np.array([0, 1, 1, 2, 5, 9, 10, 40])
    found = recovered(np.array([0, 1, 2, 2, 5, 8, 10, np.nan]), truth)
    assert found == {"0": (1, 1), "1": (2, 0.5), "2": (1, 1), "3-9": (2, 0.5), "10+": (2, 0.5)}
