"""Stored answers as rows with labels: cells written out and decoded."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
from spineflow.answers import ANSWERS

NO_SETTINGS = SimpleNamespace()


def table_of(values: list[list[int]], **columns: list) -> pa.Table:
    """Rows of answers, the variance and the cost of each being its number."""
    n = len(values)
    numbers = {"variance": [float(k) for k in range(n)], "plb": [f"1/{k + 1}" for k in range(n)]}
    return pa.table({**columns, "value": values, **numbers})


def test_counts_of_groups_are_by_sex_and_age_of_their_table() -> None:
    """A total; sex by four ages; the same of another group, without a value in between."""
    values = [[70], list(range(10, 18)), list(range(20, 28))]
    own = table_of(
        values,
        region_id=["44", "44", "25"],
        iteration_code=["1001", "1002", "1002"],
        table=[0, 1, 1],
        total_only=[True, False, False],
    )
    found = ANSWERS["detailed-groups"].decode(NO_SETTINGS, "detailed_groups", own)
    assert len(found) == 17
    assert found["value"].tolist() == [70, *range(10, 18), *range(20, 28)]
    total = found.iloc[0]
    assert (total["sex"], total["region_id"], total["total_only"]) == ("total", "44", True)
    assert pd.isna(total["age"])
    ages = ["0-17", "18-44", "45-64", "65+"]
    for first in (1, 9):
        rows = found[first : first + 8]
        assert rows["sex"].tolist() == ["male"] * 4 + ["female"] * 4
        assert rows["age"].tolist() == ages * 2
    assert found["variance"].tolist() == [0.0] + [1.0] * 8 + [2.0] * 8
    assert found["plb"].tolist() == ["1/1"] + ["1/2"] * 8 + ["1/3"] * 8
    labels = list(found["age"].cat.categories)
    assert labels.index("0-4") < labels.index("18-44") < labels.index("75+")


def test_counts_of_households_are_by_the_measured_categories_of_their_table() -> None:
    values = [[9], [5, 4], [1, 2, 3, 4, 5]]
    columns = {"region_id": ["44"] * 3, "iteration_code": ["1001"] * 3}
    own = table_of(values, **columns, table=[0, 1, 3])
    found = ANSWERS["detailed-households"].decode(NO_SETTINGS, "t3", own)
    assert found["category"].tolist() == [
        "Total households",
        *("Family households", "Nonfamily households"),
        "Married couple family",
        "Male householder, no spouse present",
        "Female householder, no spouse present",
        *("Householder living alone", "Householder not living alone"),
    ]
    assert found["value"].tolist() == [9, 5, 4, 1, 2, 3, 4, 5]
    assert found["table"].tolist() == [0, 1, 1, 3, 3, 3, 3, 3]
    tenures = ANSWERS["detailed-households"].decode(
        NO_SETTINGS,
        "t4",
        table_of([[1, 2, 3]], **{k: v[:1] for k, v in columns.items()}, table=[1]),
    )
    assert tenures["category"].tolist() == [
        *("Owned with a mortgage or a loan", "Owned free and clear", "Renter occupied"),
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_groups_are_counted_by_size_from_the_smallest_on(first: int) -> None:
    settings = SimpleNamespace(smallest_size=first)
    own = table_of([[4, 3], [2, 1]], geocode=["a", "b"], query_name=["q", "q"])
    found = ANSWERS["group-sizes"].decode(settings, "groups", own)
    assert found["size"].tolist() == [first, first + 1] * 2
    assert found["region"].tolist() == ["a", "a", "b", "b"] and found["value"].tolist() == [
        4,
        3,
        2,
        1,
    ]
    cells = pa.table({"geocode": ["a"], "cell": [2], "count": [7]})
    estimated = ANSWERS["group-sizes"].decode(settings, "groups", cells)
    assert estimated.to_dict("records") == [{"region": "a", "size": first + 2, "count": 7}]


def test_people_in_households_are_counted_by_measure_iteration_and_cell() -> None:
    """Two cells of each of seven races, and three of everybody."""
    own = table_of(
        [list(range(14)), [20, 21, 22]],
        geocode=["44", "25"],
        query_name=["PH4 A-G_dpq", "PH7 *_dpq"],
    )
    found = ANSWERS["supplemental-dhc"].decode(NO_SETTINGS, "people_in_households", own)
    first, second = found[:14], found[14:]
    assert set(first["measure"]) == {"PH4"} and set(second["measure"]) == {"PH7"}
    assert "".join(first["iteration"]) == "AABBCCDDEEFFGG"
    assert first["cell"].tolist() == [0, 1] * 7
    assert second["iteration"].tolist() == ["*"] * 3 and second["cell"].tolist() == [0, 1, 2]
    assert second["region"].tolist() == ["25"] * 3 and second["value"].tolist() == [20, 21, 22]
    estimates = pa.table({"level": ["State"], "region": ["44"], "estimate": [1.5]})
    decoded = ANSWERS["supplemental-dhc"].decode(NO_SETTINGS, "people_in_households", estimates)
    assert decoded.to_dict("records") == [{"region": "44", "estimate": 1.5}]
