from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.geography.texts import TextIndex, Texts

WORDS = ["b", "", "ccc", "a", "b", "ñandú"]


@pytest.mark.parametrize(
    "index",
    [
        slice(None),
        slice(1, 4),
        slice(4, 2),
        slice(None, None, -2),
        np.array([5, 0, 0]),
        np.array([-1, 2], dtype=np.int32),
        [3, 1],
        np.array([], dtype=np.int64),
        np.array([True, False, True, False, False, True]),
    ],
)
def test_parts_are_those_of_an_array_of_objects(index: object) -> None:
    plain, texts = np.array(WORDS, dtype=object), Texts(pa.array(WORDS))
    found = texts[index]
    assert found.dtype == object
    assert found.tolist() == plain[index].tolist()


def test_one_text_is_a_str_and_places_outside_are_refused() -> None:
    texts = Texts(pa.array(WORDS))
    assert (texts[-1], texts[np.int64(2)]) == ("ñandú", "ccc")
    with pytest.raises(IndexError):
        texts[6]
    with pytest.raises(IndexError):
        texts[np.array([6])]
    with pytest.raises(IndexError):
        texts[np.array([True])]


def test_numpy_pandas_and_arrow_take_it_as_an_array() -> None:
    texts = Texts(pa.array(WORDS))
    assert np.asarray(texts).tolist() == WORDS
    assert pd.Index(texts).equals(pd.Index(WORDS, dtype=object))
    assert pa.array(texts, pa.string()).to_pylist() == WORDS
    assert pa.array(texts, pa.large_string()).type == pa.large_string()
    assert list(texts) == texts.tolist() == WORDS
    assert (len(texts), texts.shape, texts.size) == (6, (6,), 6)


@given(st.lists(st.text("aé z", max_size=3), unique=True), st.data())
def test_texts_are_found_again_wherever_they_stand(known, data) -> None:
    ends = st.text("aé z", max_size=3)
    lowest, highest = sorted([data.draw(ends), data.draw(ends)])
    asked = data.draw(st.lists(st.text("aé z", max_size=3)))
    index = TextIndex(np.array(known, dtype=object))
    expected = [known.index(text) if text in known else -1 for text in asked]
    assert index.positions(pa.array(asked, pa.string())).tolist() == expected
    near = index.between(lowest, highest)
    inside = [text for text in known if lowest <= text <= highest]
    assert len(near) == len(inside)
    expected = [known.index(text) if text in inside else -1 for text in asked]
    assert near.positions(pa.array(asked, pa.string())).tolist() == expected
