from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census import histograms
from spineflow.tasks.census.histograms import (
    HistogramSum,
    block_histogram,
    sum_histogram,
    write_histogram,
)
from spineflow.tasks.census.invariants import (
    N_KINDS,
    block_invariants,
    inhabitable,
    read_invariants,
    read_state_totals,
    state_totals,
    write_state_totals,
)
from spineflow.tasks.runs.stamps import write_frame

CODES = np.array(["44001030100" + f"1100{i}" for i in range(4)], dtype=object)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_histogram_counts_records(records):
    block, cell = np.array(records, dtype=np.int64).reshape(-1, 2).T
    histogram = block_histogram(block, cell, n_blocks=4, n_cells=6)
    expected = np.zeros((4, 6), dtype=np.int64)
    for record in records:
        expected[record] += 1
    np.testing.assert_array_equal(histogram.toarray(), expected)
    assert histogram.dtype == np.int64
    assert histogram.has_canonical_format
    assert histogram.nnz == np.count_nonzero(expected)


def test_sums_of_groups_leave_out_other_blocks(tmp_path):
    histogram = block_histogram(
        np.array([3, 0, 0, 2]), np.array([5, 1, 1, 0]), n_blocks=4, n_cells=6
    )
    path = tmp_path / "persons.parquet"
    write_histogram(path, histogram, CODES)
    group, sizes = np.array([1, 0, 1]), {"n_groups": 2, "n_cells": 6}
    sums = sum_histogram(path, CODES[[0, 1, 3]], group, **sizes, among_others=True)
    dense = histogram.toarray()
    np.testing.assert_array_equal(sums.toarray(), [dense[1], dense[0] + dense[3]])
    with pytest.raises(ValueError, match="not requested"):
        sum_histogram(path, CODES[[0, 1, 3]], group, **sizes)


@pytest.mark.parametrize("most", [1 << 24, 3])
def test_a_sum_does_not_depend_on_when_it_is_added_up(most, monkeypatch):
    monkeypatch.setattr(histograms, "_FEWEST_HELD", 10)
    monkeypatch.setattr(histograms, "_MOST_ENTRIES", most)
    rng = np.random.default_rng(4)
    growing, expected = HistogramSum(3, 5), np.zeros((3, 5), dtype=np.int64)
    for _ in range(40):
        row, cell, count = rng.integers(0, 3, 7), rng.integers(0, 5, 7), rng.integers(1, 9, 7)
        growing.add(row, cell, count)
        np.add.at(expected, (row, cell), count)
    np.testing.assert_array_equal(growing.total().toarray(), expected)
    assert growing.total().has_canonical_format


def test_a_sum_beyond_32_bits_is_exact(monkeypatch):
    monkeypatch.setattr(histograms, "_FEWEST_HELD", 0)
    growing = HistogramSum(2, 3)
    for count in (2**31 - 1, 5, 2**33):
        growing.add(np.array([1]), np.array([2]), np.array([count]))
    assert growing.total().toarray().tolist() == [[0, 0, 0], [0, 0, 2**31 + 4 + 2**33]]


def test_invariants(tmp_path):
    block, kind = np.array([0, 0, 2, 2, 2]), np.array([0, 1, 6, 6, 2])
    units = block_histogram(block, kind, n_blocks=len(CODES), n_cells=N_KINDS)
    invariants = block_invariants(pd.Series(CODES, dtype="str"), units)
    assert invariants["housing_units"].tolist() == [2, 0, 0, 0]
    assert invariants["facilities_5"].tolist() == [0, 0, 2, 0]
    assert invariants["facilities_1"].tolist() == [0, 0, 1, 0]
    assert (invariants.dtypes.iloc[1:] == np.int64).all()
    np.testing.assert_array_equal(inhabitable(invariants), [True, False, True, False])
    write_frame(tmp_path / "invariants.parquet", invariants)
    pd.testing.assert_frame_equal(read_invariants(tmp_path / "invariants.parquet"), invariants)


def test_state_totals(tmp_path):
    codes = pd.Series(["44" + "0" * 14, "09" + "0" * 14, "44" + "0" * 13 + "1", "72" + "0" * 14])
    totals = state_totals(codes, np.array([1, 2, 3, 0]))
    assert totals == {"09": 2, "44": 4, "72": 0}
    write_state_totals(tmp_path / "state_totals.json", totals)
    assert read_state_totals(tmp_path / "state_totals.json") == totals
