"""Rounding: unbiased at random, nearest, and additive by the least change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from spineflow.tasks.evidence.methods.rounding import (
    merged_entities,
    minimum_size,
    nearest,
    random,
    ranges,
    round_controlled,
)

COUNTS = arrays(np.float64, (3, 4), elements=st.integers(0, 30).map(float))


@given(COUNTS, st.integers(2, 10))
def test_bounds_of_the_nearest_multiple_hold_the_count_and_nothing_else(counts, base):
    published = nearest(counts, base)
    assert (published.value % base == 0).all()
    assert ((published.low <= counts) & (counts <= published.high)).all()
    # Every count within the bounds is rounded to the same value, and the next ones are not.
    for side, step in ((published.low, -1), (published.high, 1)):
        assert (nearest(side, base).value == published.value).all()
        beyond = side + step
        possible = beyond >= 0
        other = nearest(np.maximum(beyond, 0), base).value
        assert (other[possible] != published.value[possible]).all()


@pytest.mark.parametrize("base", [3, 5])
def test_random_rounding_has_no_bias_and_the_variance_of_its_remainder(base):
    uniform = np.random.default_rng(1).random((20_000, 1))
    for count in range(2 * base):
        value = random(np.full((20_000, 1), float(count)), base, uniform).value
        r = count % base
        assert abs(value.mean() - count) < 5 * np.sqrt(max(r * (base - r), 1) / 20_000)
        assert value.var() == pytest.approx(r * (base - r), rel=0.05)
        assert r or (value == count).all()


def test_seventeen_becomes_fifteen_one_time_in_three():
    uniform = np.random.default_rng(2).random((30_000, 1))
    value = random(np.full((30_000, 1), 17.0), 3, uniform).value
    assert set(np.unique(value)) == {15.0, 18.0}
    n = int((value == 15).sum())
    assert stats.binomtest(n, 30_000, 1 / 3).pvalue > 1e-4
    assert stats.binomtest(n, 30_000, 1 / 3 * 1.1).pvalue < 1e-4


@settings(max_examples=25, deadline=None)
@given(arrays(np.float64, (2, 3), elements=st.integers(0, 9).map(float)))
def test_controlled_rounding_changes_least_of_all_additive_tables(counts):
    ours = round_controlled(counts, 4, [np.arange(2)]).value
    assert _is_beside(counts, ours, 4)
    sides = [sorted({4 * np.floor(x / 4), 4 * np.ceil(x / 4)}) for x in counts.ravel()]
    tables = (np.array(own).reshape(counts.shape) for own in itertools.product(*sides))
    best = min(_change(counts, table) for table in tables if _is_beside(counts, table, 4))
    assert _change(counts, ours) == pytest.approx(best)


def _totals(table):
    return np.concatenate([table.ravel(), table.sum(axis=0), table.sum(axis=1), [table.sum()]])


def _change(counts, table):
    return np.abs(_totals(counts) - _totals(table)).sum()


def _is_beside(counts, table, base):
    value, true = _totals(table), _totals(counts)
    below, above = base * np.floor(true / base), base * np.ceil(true / base)
    return bool(((value == below) | (value == above)).all())


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
    published = minimum_size(persons[:, None].astype(float), persons, groups, 50)
    assert (published.low <= persons[:, None]).all() and (persons[:, None] <= published.high).all()
