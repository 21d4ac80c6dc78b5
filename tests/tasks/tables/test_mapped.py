from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.tables import columns
from spineflow.tasks.tables.columns import GrowingArray, sorted_with_rows, zeros


@pytest.fixture(params=["in memory", "mapped"])
def place(request, monkeypatch, tmp_path):
    if request.param == "mapped":
        monkeypatch.setattr(columns, "MOST_BYTES", 8)
    return tmp_path


def test_growing_arrays_hold_what_was_appended(place):
    growing, chunks = GrowingArray(np.int32, place), []
    assert growing.array().tolist() == []
    for size in (0, 1, 2, 0, 5, 3):
        chunks.append(np.arange(size) - 7)
        growing.append(chunks[-1])
        np.testing.assert_array_equal(growing.array(), np.concatenate(chunks))
        assert len(growing) == sum(map(len, chunks))
    assert growing.array().dtype == np.int32
    assert not list(place.iterdir())


def test_zeros_can_be_written(place):
    array = zeros(5, np.int64, place)
    assert array.tolist() == [0] * 5
    np.add.at(array, [1, 1, 4], 1)
    assert array.tolist() == [0, 2, 0, 0, 1]
    assert not list(place.iterdir())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-3, 40), max_size=60), st.integers(1, 7), st.integers(1, 20))
def test_values_are_sorted_stably(values, at_once, sample):
    values = np.array(values, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MOST_BYTES", 8)
        patch.setattr(columns, "_SORTED_AT_ONCE", at_once)
        patch.setattr(columns, "_SAMPLE", sample)
        ascending, rows = sorted_with_rows(values)
    order = np.argsort(values, kind="stable")
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_array_equal(ascending, values[order])
