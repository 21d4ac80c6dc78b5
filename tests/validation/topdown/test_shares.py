from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.validation.topdown.shares import path_shares, unbalanced_paths


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(st.data())
def test_sums_agree_with_walking_each_path(data):
    parents, shares, codes = [np.array([-1])], [[Fraction(1, 7)]], [np.array([0])]
    for _ in range(data.draw(st.integers(1, 4))):
        above = parents[-1].size
        parent = data.draw(st.lists(st.integers(0, above - 1), min_size=1, max_size=12))
        level = data.draw(
            st.lists(st.fractions(0, 1, max_denominator=10**6), min_size=1, max_size=4)
        )
        code = data.draw(
            st.lists(st.integers(0, len(level) - 1), min_size=len(parent), max_size=len(parent))
        )
        parents.append(np.array(parent))
        shares.append(level)
        codes.append(np.array(code))
    total, denominator = path_shares(parents, shares, codes)
    expected = []
    for leaf in range(parents[-1].size):
        position, walked = leaf, Fraction(0)
        for level in reversed(range(len(parents))):
            walked += shares[level][codes[level][position]]
            position = parents[level][position]
        expected.append(walked)
    assert [Fraction(int(x), denominator) for x in total] == expected
    assert unbalanced_paths(parents, shares, codes).tolist() == [
        leaf for leaf, walked in enumerate(expected) if walked != 1
    ]


def test_denominators_beyond_64_bits_stay_exact():
    primes = [10**18 + 9, 10**18 + 3]
    first, second = Fraction(1, primes[0]), Fraction(1, primes[1])
    parents = [np.array([-1]), np.array([0, 0]), np.array([0, 1])]
    shares = [[first], [second], [1 - first - second, 1 - first]]
    codes = [np.array([0]), np.array([0, 0]), np.array([0, 1])]
    assert unbalanced_paths(parents, shares, codes).tolist() == [1]


def test_a_negative_share_is_unbalanced_even_if_the_path_adds_to_one():
    parents = [np.array([-1]), np.array([0])]
    shares = [[Fraction(3, 2)], [Fraction(-1, 2)]]
    assert unbalanced_paths(parents, shares, [np.array([0]), np.array([0])]).tolist() == [0]
