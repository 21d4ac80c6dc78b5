from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.tables import columns
from spineflow.tasks.tables.columns import (
    CodedColumn,
    GrowingColumn,
    KeyColumn,
    KeyIndex,
    canonical_text,
    coded_texts,
)
from spineflow.tasks.tables.layouts import Field

from tests.parquet_pages import surplus

NUMBER = Field("N", "number")
CODE = Field("C", "code", width=5)
TEXT = Field("T", "text")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (NUMBER, " 028", "28"),
        (NUMBER, 28, "28"),
        (NUMBER, 28.0, "28"),
        (NUMBER, "000", "0"),
        (NUMBER, "-3", "-3"),
        (NUMBER, 1.5, "1.5"),
        (NUMBER, float("nan"), None),
        (NUMBER, float("inf"), "inf"),
        (NUMBER, "   ", None),
        (NUMBER, None, None),
        (NUMBER, "²", "²"),
        (CODE, 47, "00047"),
        (CODE, "47", "47"),
        (CODE, " 00047 ", "00047"),
        (TEXT, "007", "007"),
        (TEXT, 7, "7"),
    ],
)
def test_canonical_text(field, value, text):
    assert canonical_text(value, field) == text


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.none(), st.integers(-2, 130), st.just(None))))
def test_coded_columns_keep_every_row(values):
    column = CodedColumn.from_arrow(pa.array(values, type=pa.int64()), NUMBER)
    assert column.texts().tolist() == [canonical_text(value, NUMBER) for value in values]
    assert sum(column.counts().values()) == len(values)
    assert len(set(column.values)) == len(column.values)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([7, 30, 7, None]),
        pa.array(["7", "030", " 07", " "]),
        pa.array(["7", "030", " 07", ""], type=pa.large_string()),
        pa.array([7.0, 30.0, 7.0, None]),
        pa.array(["7", "030", "07", None]).dictionary_encode(),
    ],
)
def test_identifiers_of_digits_are_numbers(keys):
    index = KeyIndex(keys)
    assert index.is_blank.tolist() == [False, False, False, True]
    assert index.is_repeated.tolist() == [True, False, True, False]
    for wanted in (pa.array([30, 7, 8, None]), pa.array(["30", "0007", "x", " "])):
        assert index.positions(wanted).tolist() == [1, 0, -1, -1]


def test_identifiers_of_22_digits_are_exact():
    keys = pa.array(["1234567890123456789012", "1234567890123456789013"])
    assert KeyIndex(keys).positions(keys).tolist() == [0, 1]


IDENTIFIERS = st.one_of(
    st.none(),
    st.integers(-3, 30).map(str),
    st.sampled_from(["", " ", "007", " 7 ", "A", "a", "A\0", "é", "²", "9" * 18, "9" * 19]),
)
NUMBERS = st.one_of(st.none(), st.integers(-2, 9), st.integers(10**18 - 2, 10**18))


def naive_labels(keys, is_numeric):
    texts = [(key or "").strip() for key in keys]
    return [int(text) if is_numeric and is_number(text) else text for text in texts]


def is_number(text):
    return text.isascii() and text.isdigit() and len(text) <= 18


@pytest.mark.parametrize("n_hashes", [1, 3, None])
@pytest.mark.parametrize("is_coded", [False, True])
@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(st.lists(IDENTIFIERS, max_size=12), min_size=1, max_size=3),
    wanted=st.lists(IDENTIFIERS, max_size=15),
)
def test_identifiers_are_found_whatever_their_hashes(n_hashes, is_coded, parts, wanted):
    def arrow(keys):
        array = pa.array(keys, pa.string())
        return array.dictionary_encode() if is_coded else array

    hashes = columns._hashes
    with pytest.MonkeyPatch.context() as patch:
        if n_hashes:
            patch.setattr(columns, "_hashes", lambda texts: hashes(texts) % n_hashes)
        patch.setattr(columns, "_ROWS_AT_ONCE", 5)
        column = KeyColumn()
        for part in parts:
            column.add(arrow(part))
        index = KeyIndex(column)
        found = index.positions(arrow(wanted))
    keys = sum(parts, [])
    is_numeric = all(is_number(key.strip()) for key in keys if key and key.strip())
    labels = naive_labels(keys, is_numeric)
    assert found.tolist() == [
        labels.index(label) if label != "" and label in labels else -1
        for label in naive_labels(wanted, is_numeric)
    ]
    assert index.is_blank.tolist() == [label == "" for label in labels]
    assert index.is_repeated.tolist() == [
        label != "" and labels.count(label) > 1 for label in labels
    ]


@settings(deadline=None, max_examples=60)
@given(indexed=st.lists(NUMBERS, max_size=12), wanted=st.lists(NUMBERS, max_size=12))
def test_integers_are_found_like_their_texts(indexed, wanted):
    expected = [indexed.index(key) if key is not None and key in indexed else -1 for key in wanted]
    for of_index in (pa.int64(), pa.string()):
        index = KeyIndex(pa.array(indexed, pa.int64()).cast(of_index))
        for of_keys in (pa.int64(), pa.string()):
            keys = pa.array(wanted, pa.int64()).cast(of_keys)
            assert index.positions(keys).tolist() == expected


@given(st.lists(st.sampled_from(["", "a", "b", "Łódź"]), min_size=1, max_size=9), st.data())
@settings(max_examples=50)
def test_texts_that_are_equal_leave_no_room_in_a_file(tmp_path_factory, texts, data):
    codes = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=20))
    column = coded_texts(np.array(codes, dtype=np.int64), texts)
    assert column.to_pylist() == [texts[code] for code in codes]
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pq.write_table(pa.table({"text": column}), path, compression="zstd")
    assert surplus(path) == {}
    assert pq.read_table(path)["text"].to_pylist() == column.to_pylist()


def test_arrow_fills_the_room_of_equal_texts_with_what_its_memory_held(tmp_path):
    """The reason for `coded_texts`; where this fails, Arrow has mended it.

    Threat model: process memory in published files.
    """
    texts = pa.array(["a"] * 30 + ["b"])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(31, dtype=np.int32)), texts)
    pq.write_table(pa.table({"text": column}), tmp_path / "texts.parquet")
    assert len(surplus(tmp_path / "texts.parquet")["text"]) == 29 * 5


@pytest.mark.parametrize("most_bytes", [1 << 27, 4])
def test_a_growing_column_widens_where_its_values_become_many(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(columns, "_MOST_NARROW", 4)
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", 2)
    growing, texts = GrowingColumn(), []
    for part in (["a", "b", "a"], [None, "b", "c"], ["d", "e", "a"], ["f", None, "b"]):
        growing.append(CodedColumn.from_arrow(pa.array(part, pa.string()), TEXT))
        texts += part
    found = growing.column()
    assert [found.values[code] for code in found.codes] == texts
    assert list(found.values) == [None, "a", "b", "c", "d", "e", "f"]
