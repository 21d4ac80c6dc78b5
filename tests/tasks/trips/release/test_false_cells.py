"""The expected number of false cells, against data whose empty cells are known."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.trips.measurement.files import NodeCounts
from spineflow.tasks.trips.release.false_cells import expected_false

SIGMA = 24.0


def measured(random: np.random.Generator, n_empty: int, n_filled: int) -> NodeCounts:
    """Noisy counts of cells, the empty ones first; the others hold 30 trips and more."""
    truth = np.concatenate([np.zeros(n_empty), 30 + random.pareto(1.5, n_filled) * 60])
    noisy = np.rint(truth + random.normal(0, SIGMA, truth.size)).astype(np.int64)
    return NodeCounts(np.arange(truth.size), noisy)


@pytest.mark.parametrize("least", [1, 20, 45])
@pytest.mark.parametrize("n_filled", [0, 2_000, 20_000])
def test_the_expectation_is_near_what_is_false(least: int, n_filled: int) -> None:
    """Within a tenth, and rather above: a tenth of the filled cells look like empty ones."""
    n_empty = 20_000
    found = measured(np.random.default_rng(n_filled + least), n_empty, n_filled)
    released = found.at(found.counts >= least)
    false = int((released.keys < n_empty).sum())
    expected = expected_false(found, released, SIGMA)
    spread = 4 * np.sqrt(false)
    assert false - spread < expected < 1.1 * false + 0.1 * n_filled + spread


def test_all_that_is_released_at_a_count_below_zero_is_false() -> None:
    found = measured(np.random.default_rng(1), 5_000, 0)
    released = NodeCounts(found.keys, np.ones(5_000, dtype=np.int64))
    assert expected_false(found, released, SIGMA) == pytest.approx(5_000, rel=0.05)
    assert expected_false(found, released.at(slice(0)), SIGMA) == 0


def test_cells_far_above_the_noise_are_true() -> None:
    keys = np.arange(1_000)
    found = NodeCounts(keys, np.full(1_000, 10 * int(SIGMA)))
    assert expected_false(found, found, SIGMA) == 0
