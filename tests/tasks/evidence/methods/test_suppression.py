"""Suppression: intervals of published examples, and primary cells that nobody can compute."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.evidence.methods.suppression import (
    cells_withheld,
    intervals,
    tables_withheld,
    verified,
    with_secondary,
    without_cells,
)

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
    assert low == pytest.approx([25, 47, 0, 0, 906])
    assert high == pytest.approx([94, 47, 69, 185, 1091])


@pytest.mark.parametrize(("further", "widest"), [("xd", 78), ("xb", 141)])
def test_a_further_cell_hides_what_was_told(further, widest):
    asked = np.array([PLACES["wb"]])
    low, high = intervals(EXAMPLE, _mask([*PRIMARY, further]), asked)
    assert (low[0], high[0]) == pytest.approx((0, widest))


@pytest.mark.parametrize("mean", [0.02, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_every_primary_cell_has_an_interval_as_wide_as_the_threshold(mean, seed):
    draws = np.random.default_rng(seed)
    counts = draws.poisson(mean, (20, 30)).astype(float)
    # What is small in the areas above is withheld there.
    total = counts.sum(axis=0)
    withheld = with_secondary(counts, 3, (total > 0) & (total < 3))
    found = verified(counts, withheld, 3, 1.0, draws)
    n_primary = ((counts > 0) & (counts < 3)).sum()
    assert found == (n_primary, n_primary, 0)


def test_primary_cells_alone_would_be_too_narrow():
    draws = np.random.default_rng(1)
    counts = draws.integers(5, 20, (6, 7)).astype(float)
    counts[2, 3], counts[4, 4] = 1, 2
    alone = np.zeros((7, 8), dtype=bool)
    alone[:-1, :-1] = counts < 3
    assert verified(counts, alone, 3, 1.0, draws)[2] == 2
    assert verified(counts, with_secondary(counts, 3), 3, 1.0, draws)[2] == 0


def test_what_is_told_of_a_withheld_cell_holds_it():
    counts = np.random.default_rng(2).poisson(1.0, (12, 9)).astype(float)
    groups = [np.arange(5), np.arange(5, 12)]
    masks = cells_withheld(counts, groups, 3)
    published = without_cells(counts, groups, masks)
    is_out = np.isnan(published.value)
    assert is_out[(counts > 0) & (counts < 3)].all()
    assert (published.value[~is_out] == counts[~is_out]).all()
    assert ((published.low <= counts) & (counts <= published.high)).all()


def test_tables_of_small_areas_are_withheld_whole():
    counts = np.array([[3.0, 4.0], [0.0, 0.0], [20.0, 1.0]])
    published = tables_withheld(counts, np.array([7, 0, 21]), 15)
    assert np.isnan(published.value).tolist() == [[True, True], [False, False], [False, False]]
    assert published.high[0].tolist() == [7.0, 7.0]
