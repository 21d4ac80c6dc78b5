"""What the alternating direction method begins with."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.topdown.estimation.admm import median_of

VALUES = st.lists(st.floats(0, 1e6) | st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=40)


@settings(deadline=None)
@given(values=VALUES, spare=st.lists(st.floats(0, 1e6), max_size=3))
def test_medians_are_those_of_the_first_values(values: list[float], spare: list[float]) -> None:
    assert median_of(np.array(values + spare), len(values)) == np.median(values)
