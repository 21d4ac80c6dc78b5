"""Perturbation tables beside published and recomputed rows, and noise by cell keys."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from spineflow.tasks.evidence.methods.rounding import look_up_noise, perturb_counts
from spineflow.tasks.evidence.perturbation import Perturbation

EXAMPLE = Perturbation(2, 1.05, 1, None, (True, True, False, True))
"""The example that the R package ptable prints."""


def test_the_example_of_ptable_to_five_digits():
    table = EXAMPLE.table()
    assert table[1] == pytest.approx([0, 0.50833333, 0, 0.475, 0.01666667], abs=1e-6)
    assert table[2] == pytest.approx([0.16155827, 0, 0.55565037, 0.24246618, 0.04032518], abs=1e-6)
    assert table[3] == pytest.approx([0, 0.41231301, 0.28806097, 0.18693903, 0.11268699], abs=1e-6)
    last = [0.07012498, 0.24450007, 0.37074990, 0.24450007, 0.07012498]
    assert table[4] == pytest.approx(last, abs=1e-6)
    assert len(table) == 5


@pytest.mark.parametrize("variance", [2.1, 4.0])
def test_every_row_has_no_bias_and_the_variance_where_it_can_be_met(variance):
    table = Perturbation(4, variance, 2, None, (False,)).table()
    noise = np.arange(-4, 5)
    assert table[1:].sum(axis=1) == pytest.approx(1)
    assert table[1:] @ noise == pytest.approx(np.zeros(len(table) - 1), abs=1e-6)
    assert ((table[1:] @ noise**2) <= variance + 1e-6).all()
    assert table[-1] @ noise**2 == pytest.approx(variance, abs=1e-3)
    counts = np.arange(1, len(table))
    for count, row in zip(counts, table[1:], strict=True):
        assert row[(count + noise < 0) | np.isin(count + noise, [1, 2])].sum() == 0


def test_the_example_of_the_handbook():
    rows = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0], [0.3, 0.4, 0.3]])
    key = np.mod(np.array([0.9, 0.3, 0.6]).sum(), 1)
    assert key == pytest.approx(0.8)
    assert 3 + look_up_noise(np.array([3]), np.array([key]), rows)[0] == 4


def test_noise_has_the_distribution_of_its_row_and_not_one_a_tenth_off():
    table = EXAMPLE.table()
    keys = np.random.default_rng(3).random((20_000, 1))
    published = perturb_counts(np.full((20_000, 1), 9.0), keys + 5, table)
    found = np.bincount((published.value - 9 + 2).astype(int).ravel(), minlength=5)
    assert stats.chisquare(found, 20_000 * table[4]).pvalue > 1e-4
    off = table[4] * [1.1, 1, 1, 1, 0.9] + [0, 0, 0, 0, 0]
    assert stats.chisquare(found, 20_000 * off / off.sum()).pvalue < 1e-2
    assert (published.low <= 9).all()
    assert (published.high >= 9).all()


def test_the_same_records_have_the_same_noise_and_zeros_stay():
    table = Perturbation(5, 3, 2).table()
    counts = np.array([[4.0, 4.0, 0.0]])
    sums = np.array([[2.25, 2.25, 0.0]])
    value = perturb_counts(counts, sums, table).value[0]
    assert value[0] == value[1]
    assert value[2] == 0


@pytest.mark.parametrize("threshold", [0, 2])
def test_bounds_hold_the_count_and_know_that_zeros_stay(threshold):
    table = Perturbation(4, 3.0, threshold, None, (False,)).table()
    draws = np.random.default_rng(3)
    counts = draws.integers(0, 9, (200, 5)).astype(float)
    published = perturb_counts(counts, draws.random(counts.shape), table)
    assert ((published.low <= counts) & (counts <= published.high)).all()
    possible = [
        {
            count
            for count in range(20)
            if 0 <= value - count + 4 <= 8
            and table[min(count, len(table) - 1), int(value) - count + 4] > 0
        }
        for value in (0, 3, 4)
    ]
    for value, own in zip((0, 3, 4), possible, strict=True):
        at = published.value == value
        assert (published.low[at] == min(own)).all() and (published.high[at] == max(own)).all()
