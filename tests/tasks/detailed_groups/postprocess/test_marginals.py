"""Negative counts become 0, so that marginals are sums of the counts that are shown."""

from __future__ import annotations

import pytest
from spineflow.tasks.detailed_groups.postprocess import SCREENED, cut_counts, suppress, totals_of


@pytest.mark.parametrize("seed", range(5))
def test_against_groups_one_by_one(random_groups, seed: int) -> None:
    screened = suppress(random_groups(seed), 4)
    found = cut_counts(screened)
    assert found.schema.names == SCREENED.names
    for before, after in zip(screened.to_pylist(), found.to_pylist(), strict=True):
        assert after == before | {"value": [max(count, 0) for count in before["value"]]}
    assert totals_of(found).tolist() == [sum(value) for value in found["value"].to_pylist()]


def test_slices_of_a_table(random_groups) -> None:
    screened = suppress(random_groups(1), 4)
    part = screened.slice(30, 40)
    assert cut_counts(part).to_pylist() == cut_counts(screened).slice(30, 40).to_pylist()
    assert totals_of(part).tolist() == totals_of(screened)[30:70].tolist()
