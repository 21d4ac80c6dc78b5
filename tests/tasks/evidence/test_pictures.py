"""Risk by utility, read off at equal error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.evidence.methods.accuracy import ALL, READ
from spineflow.tasks.evidence.release.pictures import at_equal_errors, curves

COLUMNS = ["method", "strength", "draw", "level", "measure", "group", "value", "low", "high"]


def rows(measure, level, *values):
    return [(m, s, d, level, measure, ALL, *own) for m, s, d, *own in values]


@pytest.fixture
def figures():
    nan = np.nan
    errors = [("a", "1", 1, 1.0), ("a", "2", 1, 3.0), ("b", "x", 1, 2.0), ("b", "y", 1, 4.0)]
    found = [
        ("a", "1", 1, 0.9, 0.8, 0.95),
        ("a", "1", 2, 0.7, 0.6, 0.75),
        ("a", "2", 1, 0.4, nan, nan),
        ("a", "2", 2, 0.2, nan, nan),
        ("b", "x", 1, 0.5, nan, nan),
        ("b", "y", 1, 0.1, nan, nan),
    ]
    errors = rows(READ, ALL, *((*own, nan, nan) for own in errors))
    return pd.DataFrame(errors + rows("hits", "Block", *found), columns=COLUMNS)


def test_curves_have_the_range_of_draws_and_of_their_intervals(figures):
    curve = curves(figures, figures[figures["measure"] == "hits"], ["b", "a"])["a"]
    assert curve.error.tolist() == [1, 3]
    assert curve.value == pytest.approx([0.8, 0.3])
    assert curve.low == pytest.approx([0.6, 0.2])
    assert curve.high == pytest.approx([0.95, 0.4])
    assert curve.at(2.0) == pytest.approx((0.55, 0.4, 0.675))
    assert curve.at(3.5) is None


def test_methods_are_read_off_at_errors_that_several_have(figures):
    table = at_equal_errors(curves(figures, figures[figures["measure"] == "hits"], ["a", "b"]))
    assert table.headers == ("method", "1", "2", "3")
    a, b = table.rows
    assert a[2] == "0.55 (0.4 to 0.675)"
    assert b[1:] == ("–", "0.5", "0.3")
