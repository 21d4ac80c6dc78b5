from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from spineflow.tasks.topdown.release.microdata import match_records

ROW = np.array([0, 0, 1, -1])
"""Answers of four cells of the earlier universe; the last one's records are matched with none."""
ROW_OF_LATER = np.array([1, 0, 0, 1, 0])


@st.composite
def releases(draw):
    """Counts of both universes in some areas, as many of each answer."""
    n_areas = draw(st.integers(1, 4))
    small = st.integers(0, 4)
    earlier = np.array([[draw(small) for _ in ROW] for _ in range(n_areas)])
    later = np.zeros((n_areas, len(ROW_OF_LATER)), dtype=np.int64)
    for area in range(n_areas):
        for answer in (0, 1):
            cells = np.flatnonzero(answer == ROW_OF_LATER)
            for _ in range(int(earlier[area, answer == ROW].sum())):
                later[area, draw(st.sampled_from(cells.tolist()))] += 1
    return earlier, later


@settings(max_examples=60, deadline=None)
@given(releases())
def test_records_are_matched_one_by_one_in_the_order_of_their_cells(found) -> None:
    earlier, later = found
    made = match_records(sparse.csr_array(earlier), sparse.csr_array(later), ROW, ROW_OF_LATER)
    pairs = [
        (area, cell, described)
        for area, cell, described, count in zip(
            made.area, made.cell, made.described, made["n"], strict=True
        )
        for _ in range(count)
    ]
    due = []
    for area in range(len(earlier)):
        for answer in (0, 1):
            own = [c for c in np.flatnonzero(answer == ROW) for _ in range(earlier[area, c])]
            cells = np.flatnonzero(answer == ROW_OF_LATER)
            other = [c for c in cells for _ in range(later[area, c])]
            due += [(area, *pair) for pair in zip(own, other, strict=True)]
        due += [(area, 3, -1)] * int(earlier[area, 3])
    assert pairs == sorted(due)


def test_records_that_are_not_as_many_are_refused() -> None:
    with pytest.raises(ValueError, match="not as many"):
        match_records(
            sparse.csr_array(np.array([[1, 0, 0, 0]])),
            sparse.csr_array(np.array([[0, 0, 0, 0, 0]])),
            ROW,
            ROW_OF_LATER,
        )
