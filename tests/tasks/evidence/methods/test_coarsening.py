"""Coarsening: ranges that hold the counts, and merged areas that are large enough."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.evidence.methods.coarsening import merged_entities, minimum_size, ranges


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(2, 15))
def test_a_range_holds_its_count_and_hides_small_ones(counts, threshold):
    true = np.array([counts], dtype=float)
    published = ranges(true, threshold)
    assert ((published.low <= true) & (true <= published.high)).all()
    is_small = (true > 0) & (true < threshold)
    assert (published.low[is_small] == 1).all()
    assert (published.high[is_small] == threshold - 1).all()
    assert (published.value[~is_small] == true[~is_small]).all()


@given(st.data())
def test_merged_areas_have_enough_persons_and_stay_within_their_group(data):
    sizes = data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=40))
    cuts = data.draw(st.lists(st.integers(0, len(sizes)), max_size=4))
    persons = np.array(sizes)
    groups = [g for g in np.split(np.arange(len(sizes)), sorted(cuts)) if len(g)]
    merged = merged_entities(persons, groups, 50)
    assert set(merged) == set(range(merged.max() + 1))
    for group in groups:
        own = merged[group]
        assert not set(own) & set(np.delete(merged, group))
        assert (np.diff(own) >= 0).all()
        # Only a group that is too small as a whole has a merged area that is.
        totals = np.bincount(own - own.min(), persons[group])
        assert (totals >= 50).all() or len(totals) == 1
    published = minimum_size(persons[:, None].astype(float), merged, groups, 50)
    assert (published.low <= persons[:, None]).all() and (persons[:, None] <= published.high).all()


def test_areas_that_do_not_close_a_merged_one_are_known_to_be_small():
    persons = np.array([40, 30, 70, 200, 60, 10])
    groups = [np.arange(6)]
    merged = merged_entities(persons, groups, 100)
    assert merged.tolist() == [0, 0, 0, 1, 1, 1]
    high = minimum_size(persons[:, None].astype(float), merged, groups, 100).high
    assert high.ravel().tolist() == [99, 99, 140, 270, 270, 270]


def test_counts_of_merged_areas_are_shared_out():
    counts = np.array([[2.0, 6.0], [4.0, 0.0], [9.0, 9.0]])
    published = minimum_size(counts, np.array([0, 0, 1]), [np.arange(3)], 9)
    assert published.value.tolist() == [[3.0, 3.0], [3.0, 3.0], [9.0, 9.0]]
    assert published.high.tolist() == [[6.0, 6.0], [6.0, 6.0], [9.0, 9.0]]
    assert published.low.tolist() == [[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]]
