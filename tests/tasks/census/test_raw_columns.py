"""Raw values of columns by area, from which the ledger knows records again."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census import counting
from spineflow.tasks.census.counting import RawColumns
from spineflow.tasks.tables.columns import CodedColumn


def test_records_are_counted_by_area_and_raw_value() -> None:
    """Rows without an area or a count are nobody."""
    own = RawColumns(["sex", "age"], 3)
    columns = {
        "sex": CodedColumn(np.array([0, 1, 0, 1]), ("f", "m")),
        "age": CodedColumn(np.array([0, 0, 1, 1]), ("7", None)),
    }
    own.add(columns, np.array([2, 0, -1, 0]), np.array([1, 2, 5, 0]))
    own.add(
        {
            "sex": CodedColumn(np.array([0]), ("m",)),
            "age": CodedColumn(np.array([0]), ("9",)),
        },
        np.array([2]),
        np.array([4]),
    )
    sex = own.counts("sex").toarray()
    places = {value: at for at, value in enumerate(own.values["sex"])}
    assert sex[2, places["f"]] == 1 and sex[0, places["m"]] == 2 and sex[2, places["m"]] == 4
    assert sex.sum() == 7 and own.counts("age").sum() == 7
    assert len(own.values["age"]) == 3


def test_a_column_of_too_many_values_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_VALUES", 2)
    own = RawColumns(["id", "sex"], 2)
    assert own.numbers("id", ["x", "y"]).tolist() == [0, 1]
    assert own.numbers("id", ["y", "x", "y"]).tolist() == [1, 0, 1]
    assert own.numbers("sex", ["f"]).tolist() == [0]
    assert own.numbers("id", ["z"]) is None and own.numbers("id", ["x"]) is None
    assert list(own.values) == ["sex"]
