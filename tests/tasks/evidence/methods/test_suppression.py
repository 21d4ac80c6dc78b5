"""Suppression: intervals of published examples, and primary cells that nobody can compute."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.evidence.methods.suppression import (
    intervals,
    verify_suppression,
    with_secondary,
    without_cells,
)

from tests.seeds import covering

EXAMPLE = np.array(
    [[30, 47, 64, 89], [90, 124, 5, 31], [92, 100, 59, 85], [800, 991, 651, 685]], dtype=float
)
"""A table that the R package sdcTable publishes, of the regions w to z by a to d."""
PLACES = {f"{r}{c}": 5 * i + j for i, r in enumerate("wxyz") for j, c in enumerate("abcd")}
PRIMARY = ["wa", "wb", "wc", "xa", "xc", "yb", "yd", "zb", "zd"]


def _mask(names):
    mask = np.zeros(25, dtype=bool)
    mask[[PLACES[name] for name in names]] = True
    return mask.reshape(5, 5)


def test_two_withheld_cells_in_every_line_may_still_tell_one():
    asked = np.array([PLACES[name] for name in ("wa", "wb", "xc", "yb", "zb")])
    low, high = intervals(EXAMPLE, _mask(PRIMARY), asked)
    # The package takes withheld cells for 0 at least, which moves both ends by 1 or 2.
    assert low == pytest.approx([26, 47, 1, 1, 907])
    assert high == pytest.approx([93, 47, 68, 184, 1090])


@pytest.mark.parametrize(("further", "widest"), [("xd", 77), ("xb", 139)])
def test_a_further_cell_hides_what_was_told(further, widest):
    asked = np.array([PLACES["wb"]])
    low, high = intervals(EXAMPLE, _mask([*PRIMARY, further]), asked)
    assert (low[0], high[0]) == pytest.approx((1, widest))


@pytest.mark.parametrize(("mean", "seed"), covering([2.0, 3.0, 5.0], range(3)))
def test_every_primary_cell_has_an_interval_as_wide_as_the_threshold(mean, seed):
    draws = np.random.default_rng(seed)
    counts = draws.poisson(mean, (20, 30)).astype(float)
    # What is small in the areas above is withheld there.
    total = counts.sum(axis=0)
    withheld = with_secondary(counts, 3, (total > 0) & (total < 3))
    found = verify_suppression(counts, withheld, 3, 1.0, draws)
    n_primary = ((counts > 0) & (counts < 3)).sum()
    assert found == (n_primary, n_primary, 0)


def test_two_ones_that_add_up_to_two_are_known():
    """Zeros are never withheld: a rule that leaves two ones in a row publishes both."""
    counts = np.array([[12, 1, 1], [11, 9, 7], [6, 8, 9]], dtype=float)
    withheld = np.zeros((4, 4), dtype=bool)
    withheld[:2, 1:3] = True
    draws = np.random.default_rng(0)
    assert verify_suppression(counts, withheld, 2, 1.0, draws) == (2, 2, 2)
    low, high = intervals(counts, withheld, np.array([1, 2]))
    assert low.tolist() == high.tolist() == [1, 1]
    found = with_secondary(counts, 2)
    assert verify_suppression(counts, found, 2, 1.0, draws) == (2, 2, 0)
    assert without_cells(counts, [np.arange(3)], [withheld]).high[0].tolist() == [12, 1, 1]


@given(st.integers(0, 2**32 - 1))
def test_an_attacker_has_the_interval_of_all_tables_that_the_rule_allows(seed):
    """Brute force over all tables with these totals and published cells."""
    draws = np.random.default_rng(seed)
    counts = draws.integers(0, 5, (2, 3)).astype(float)
    counts[0, 0] = 1
    cells = (counts > 0) & (draws.random((2, 3)) < 0.8)
    cells[0, 0] = True
    possible = []
    for first in product(range(13), repeat=2):
        # Two cells of a table of two rows and three columns fix the others.
        top = np.array([*first, counts[0].sum() - sum(first)])
        other = np.array([top, counts.sum(axis=0) - top])
        if (other[~cells] == counts[~cells]).all() and (other[cells] >= 1).all():
            possible.append(other[cells])
    withheld = np.pad(cells, ((0, 1), (0, 1)))
    low, high = intervals(counts, withheld, np.flatnonzero(withheld))
    assert low == pytest.approx(np.min(possible, axis=0))
    assert high == pytest.approx(np.max(possible, axis=0))
    published = without_cells(counts, [np.arange(2)], [withheld])
    assert (published.low[cells] <= low + 1e-9).all()
    assert (high <= published.high[cells] + 1e-9).all()


def test_primary_cells_alone_would_be_too_narrow():
    draws = np.random.default_rng(1)
    counts = draws.integers(5, 20, (6, 7)).astype(float)
    counts[2, 3], counts[4, 4] = 1, 2
    alone = np.zeros((7, 8), dtype=bool)
    alone[:-1, :-1] = counts < 3
    assert verify_suppression(counts, alone, 3, 1.0, draws)[2] == 2
    assert verify_suppression(counts, with_secondary(counts, 3), 3, 1.0, draws)[2] == 0
