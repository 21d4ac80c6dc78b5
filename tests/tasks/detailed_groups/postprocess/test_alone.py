"""Suppression of 'alone' groups that exceed 'alone or in any combination'."""

from __future__ import annotations

import pytest
from spineflow.tasks.detailed_groups.postprocess import suppress, suppress_alone

COUNTERPARTS = {"1001": "1002", "1003": "1004", "1009": "1005", "1005": "1008"}


@pytest.mark.parametrize("seed", range(8))
def test_against_loops(random_groups, seed: int) -> None:
    groups = suppress(random_groups(seed), 3)
    rows = groups.to_pylist()
    totals = {
        (row["region_type"], row["region_id"], row["iteration_code"]): sum(row["value"])
        for row in rows
        if not row["is_suppressed"]
    }
    found = suppress_alone(groups, COUNTERPARTS)
    n_more = 0
    for row, after in zip(rows, found.to_pylist(), strict=True):
        code = COUNTERPARTS.get(row["iteration_code"])
        other = totals.get((row["region_type"], row["region_id"], code))
        exceeds = not row["is_suppressed"] and other is not None and sum(row["value"]) > other
        assert after["is_suppressed"] == (row["is_suppressed"] or exceeds)
        n_more += exceeds
    assert n_more


def test_equal_totals_and_hidden_counterparts_stay(measured) -> None:
    table = measured(
        [
            {"region_id": "1", "iteration_code": "1001", "value": [7]},
            {"region_id": "1", "iteration_code": "1002", "value": [7]},
            {"region_id": "2", "iteration_code": "1001", "value": [7]},
            {"region_id": "2", "iteration_code": "1002", "value": [1]},
            {"region_id": "3", "iteration_code": "1001", "value": [7]},
        ]
    )
    found = suppress_alone(suppress(table, 3), COUNTERPARTS)
    assert found["is_suppressed"].to_pylist() == [False, False, False, True, False]
