"""Counts that are averaged out of noisy tables, against simulations and small enumerations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.evidence.attacks.averaging import (
    answers_needed,
    best_estimates,
    bounded_noise,
    recovered,
)
from spineflow.tasks.evidence.attacks.ranges import ranges
from spineflow.tasks.evidence.attacks.reconstruction import BlockStatus, reconstruct
from spineflow.tasks.evidence.attacks.systems import UNBOUNDED, TableSystem, system_of_tables


@pytest.mark.parametrize(("variance", "splits"), [(1, 31), (2, 61), (3, 92)])
def test_splits_needed_for_an_exact_count(variance: int, splits: int) -> None:
    assert round(answers_needed(2 * variance)) == splits
    assert answers_needed(variance) == pytest.approx(15.4 * variance, rel=0.003)
    assert answers_needed(variance, 0.99) == pytest.approx(26.5 * variance, rel=0.003)


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
        noisy = system.totals(people) + draws.normal(0, 1, (8000, 2 * splits))
        total = sparse.csr_array(np.eye(1, splits + 1))
        found = best_estimates(system, noisy, np.ones(2 * splits), total)
        assert found.variance == pytest.approx([2 / splits])
        assert (found.counts() == 30).mean() == pytest.approx(expected, abs=0.012)


def test_estimates_are_those_of_the_normal_equations() -> None:
    draws = np.random.default_rng(2)
    a, b, c = (axis.ravel() for axis in np.indices((3, 2, 2)))
    system = system_of_tables([a * 2 + b, b * 2 + c, a, 0 * a, a * 4 + b * 2 + c])
    variance = draws.uniform(1, 5, system.n_rows)
    published = draws.normal(10, 3, (4, system.n_rows))
    found = best_estimates(system, published, variance)
    dense = system.matrix.toarray()
    normal = np.linalg.inv(dense.T @ (dense / variance[:, None]))
    expected = (dense @ normal @ (dense / variance[:, None]).T @ published.T).T
    assert found.values == pytest.approx(expected)
    assert found.variance == pytest.approx(np.diag(dense @ normal @ dense.T))
    assert (found.variance < variance).all()
    alone = best_estimates(
        system_of_tables([a]), published[:, :3], np.ones(3), sparse.csr_array(np.eye(12)[:1])
    )
    assert np.isnan(alone.variance).all()
    with pytest.raises(ValueError, match="variance above 0"):
        best_estimates(system, published, 0 * variance)


def test_cells_recovered_are_counted_by_their_true_count() -> None:
    truth = np.array([0, 1, 1, 2, 5, 9, 10, 40])
    found = recovered(np.array([0, 1, 2, 2, 5, 8, 10, np.nan]), truth)
    assert found == {"0": (1, 1), "1": (2, 0.5), "2": (1, 1), "3-9": (2, 0.5), "10+": (2, 0.5)}


def test_bounded_noise_often_leaves_one_solution() -> None:
    """Three persons whose noise happens to be as large as it can be in opposite directions."""
    system = system_of_tables([np.arange(2), np.zeros(2, int)])
    lower, upper = bounded_noise(np.array([[3, 4, 3]]), 2)
    assert reconstruct(system, lower, upper).status[0] == BlockStatus.SEVERAL
    lower, upper = bounded_noise(np.array([[3, 4, 1]]), 2)
    found = reconstruct(system, lower, upper)
    assert found.status[0] == BlockStatus.UNIQUE
    assert found.histograms(2).toarray().tolist() == [[1, 2]]
    lower, upper = bounded_noise(np.array([0, 1, 7]), 2, zeros_stay=True, smallest=3)
    assert (lower.tolist(), upper.tolist()) == ([0, 1, 5], [2, 3, 9])


SUPPRESSED = np.array([[30, 47, 64, 89], [90, 124, 5, 31], [92, 100, 59, 85], [800, 991, 651, 685]])
PRIMARY = {"wa": 0, "wb": 1, "wc": 2, "xa": 4, "xc": 6, "yb": 9, "yd": 11, "zb": 13, "zd": 15}


def published_ranges(suppressed: dict[str, int]) -> dict[str, list[float]]:
    cells = np.arange(16)
    system = system_of_tables([cells, cells // 4, cells % 4])
    exact = system.totals(SUPPRESSED.reshape(1, -1))[0]
    places = list(suppressed.values())
    lower, upper = exact.copy(), exact.copy()
    lower[places], upper[places] = 0, UNBOUNDED
    wanted = sparse.csr_array(np.eye(16)[places])
    low, high = ranges(system, lower, upper, wanted, integral=False)
    return {name: [a, b] for name, a, b in zip(suppressed, low, high, strict=True)}


def test_ranges_of_suppressed_cells_are_the_published_ones() -> None:
    found = published_ranges(PRIMARY)
    assert found["wb"] == [47, 47]
    assert found["wa"] == pytest.approx([25, 94])
    assert found["xc"] == pytest.approx([0, 69])
    assert found["yb"] == pytest.approx([0, 185])
    assert found["zb"] == pytest.approx([906, 1091])
    assert published_ranges(PRIMARY | {"xd": 7})["wb"] == pytest.approx([0, 78])
    assert published_ranges(PRIMARY | {"xb": 5})["wb"] == pytest.approx([0, 141])


def test_ranges_are_those_of_all_solutions() -> None:
    draws = np.random.default_rng(5)
    a, b = (axis.ravel() for axis in np.indices((3, 3)))
    system = system_of_tables([a, b, np.where(a == b, 0, -1)])
    grid = np.stack(np.meshgrid(*[np.arange(4)] * 4, indexing="ij")).reshape(4, -1).T
    for _ in range(10):
        people = np.bincount(draws.integers(0, 9, 3), minlength=9)
        exact = system.totals(people[None])[0]
        # All tables with these margins, from their upper left corner.
        corner = grid.reshape(-1, 2, 2)
        right = exact[:2, None] - corner.sum(axis=2)[:, :, None].reshape(-1, 2, 1)
        top = np.concatenate([corner, right.reshape(-1, 2, 1)], axis=2)
        tables = np.concatenate([top, (exact[3:6] - top.sum(axis=1))[:, None]], axis=1)
        tables = tables.reshape(-1, 9)
        fits = (tables >= 0).all(axis=1) & (system.totals(tables) == exact).all(axis=1)
        low, high = ranges(system, exact, exact, sparse.csr_array(np.eye(9)))
        assert low.tolist() == tables[fits].min(axis=0).tolist()
        assert high.tolist() == tables[fits].max(axis=0).tolist()
    low, high = ranges(system, exact, exact - 1, sparse.csr_array(np.eye(9)))
    assert np.isnan(low).all()
    for integral in (True, False):
        endless = np.full(len(exact), UNBOUNDED)
        open_ends = ranges(system, exact, endless, sparse.csr_array(np.eye(9)), integral=integral)
        assert (open_ends[0] == 0).all()
        assert np.isinf(open_ends[1]).all()
