"""Suppression of 'alone' groups that exceed 'alone or in any combination'."""

from __future__ import annotations

import pytest
from spineflow.tasks.detailed_groups.postprocess.stages import (
    add_marginals,
    suppress,
    suppress_alone,
)
from spineflow.tasks.detailed_groups.workload.tabulations import AGE_BINS

COUNTERPARTS = {"1001": "1002", "1003": "1004", "1009": "1005", "1005": "1008"}


@pytest.mark.parametrize("seed", range(8))
def test_against_loops(random_groups, seed: int) -> None:
    screened = suppress(random_groups(seed), 3)
    groups = add_marginals(screened, allow_negative_counts=True)
    rows = groups.to_pylist()
    totals = {
        (row["region_type"], row["region_id"], row["iteration_code"]): row["total"] for row in rows
    }
    found = suppress_alone(groups, COUNTERPARTS)
    n_more = 0
    for row, after in zip(rows, found.to_pylist(), strict=True):
        code = COUNTERPARTS.get(row["iteration_code"])
        other = totals.get((row["region_type"], row["region_id"], code))
        exceeds = not row["is_suppressed"] and other is not None and row["total"] > other
        assert after["is_suppressed"] == (row["is_suppressed"] or exceeds)
        n_more += exceeds
    assert n_more


def by_coarse_bins(row: dict, coarser: int) -> list[int]:
    """Counts of a group in the cells of a coarser table, sex by sex and age by age."""
    bins, wanted = AGE_BINS[row["table"]], AGE_BINS[coarser]
    found = []
    for sex in range(2):
        own = row["value"][sex * len(bins) : (sex + 1) * len(bins)]
        for start, end in zip(wanted, [*wanted[1:], 200], strict=True):
            found.append(sum(n for age, n in zip(bins, own, strict=True) if start <= age < end))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_cell_by_cell_against_loops(random_groups, seed: int) -> None:
    groups = add_marginals(suppress(random_groups(seed), 3), allow_negative_counts=True)
    rows = groups.to_pylist()
    shown = {
        (row["region_type"], row["region_id"], row["iteration_code"]): row
        for row in rows
        if not row["is_suppressed"]
    }
    found = suppress_alone(groups, COUNTERPARTS, by_cell=True)
    by_cell = 0
    for row, after in zip(rows, found.to_pylist(), strict=True):
        code = COUNTERPARTS.get(row["iteration_code"])
        other = shown.get((row["region_type"], row["region_id"], code))
        exceeds = not row["is_suppressed"] and other is not None and row["total"] > other["total"]
        if not row["is_suppressed"] and other is not None and not exceeds:
            coarser = min(row["table"], other["table"])
            if coarser:
                pairs = zip(
                    by_coarse_bins(row, coarser), by_coarse_bins(other, coarser), strict=True
                )
                exceeds = any(own > above for own, above in pairs)
                by_cell += exceeds
        assert after["is_suppressed"] == (row["is_suppressed"] or exceeds)
    assert by_cell


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
    groups = add_marginals(suppress(table, 3), allow_negative_counts=True)
    found = suppress_alone(groups, COUNTERPARTS)
    assert found["is_suppressed"].to_pylist() == [False, False, False, True, False]
