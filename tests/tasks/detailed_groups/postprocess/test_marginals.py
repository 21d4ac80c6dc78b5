"""Marginals are sums of the counts that are shown."""

from __future__ import annotations

import pytest
from spineflow.tasks.detailed_groups.postprocess.groups import COUNTED, add_marginals, suppress


@pytest.mark.parametrize("allow_negative_counts", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_against_sums_group_by_group(random_groups, seed: int, allow_negative_counts: bool) -> None:
    screened = suppress(random_groups(seed), 4)
    found = add_marginals(screened, allow_negative_counts=allow_negative_counts)
    assert found.schema.names == COUNTED.names
    for before, after in zip(screened.to_pylist(), found.to_pylist(), strict=True):
        value = before["value"]
        if not allow_negative_counts:
            value = [max(count, 0) for count in value]
        assert after["value"] == value
        half = len(value) // 2
        hidden, has_cells = before["is_suppressed"], before["table"] > 0
        assert after["total"] == (None if hidden else sum(value))
        assert after["male"] == (sum(value[:half]) if has_cells else None)
        assert after["female"] == (sum(value[half:]) if has_cells else None)


def test_slices_of_a_table(random_groups) -> None:
    screened = suppress(random_groups(1), 4)
    whole = add_marginals(screened, allow_negative_counts=False)
    part = add_marginals(screened.slice(30, 40), allow_negative_counts=False)
    assert part.to_pylist() == whole.slice(30, 40).to_pylist()
