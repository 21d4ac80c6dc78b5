"""Allocations in whole parts: near the numbers they stand for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from spineflow.tasks.topdown.design.problem import to_fractions


def test_parts_are_rounded_up_where_most_is_lost() -> None:
    found = to_fractions(np.array([[0.26, 0.34], [0.4, 0.0]]), 10)
    assert found == [[Fraction(3, 10), Fraction(3, 10)], [Fraction(4, 10), Fraction(0)]]
    assert to_fractions(np.array([[5.2, 6.8], [8.0, 0.0]]), 10) == found, "of any sum"
