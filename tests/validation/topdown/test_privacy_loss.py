from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.validation.topdown.privacy_loss import CodedSums

FRACTIONS = st.fractions(min_value=0, max_value=2, max_denominator=50)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(data=st.data(), n=st.integers(0, 30), n_terms=st.integers(0, 5))
def test_coded_sums_are_the_sums_of_fractions(data, n, n_terms):
    coded = CodedSums.zeros(n)
    plain = [Fraction(0)] * n
    for _ in range(n_terms):
        values = data.draw(st.lists(FRACTIONS, min_size=1, max_size=4))
        code = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=n, max_size=n))
        coded = coded.plus(np.array(code, dtype=np.int64), values)
        plain = [number + values[c] for number, c in zip(plain, code, strict=True)]
    assert [coded.sums[c] for c in coded.code] == plain
    assert len(set(coded.sums)) == len(coded.sums)


def test_equal_sums_share_a_code_however_they_arose():
    values = [Fraction(1, 3), Fraction(2, 3)]
    coded = CodedSums.zeros(2).plus(np.array([0, 1]), values).plus(np.array([1, 0]), values)
    assert coded.sums == (Fraction(1),)
    assert coded.code.tolist() == [0, 0]
    assert coded.at(np.array([1, 1, 0])).code.tolist() == [0, 0, 0]
