"""Region hierarchies: who is below whom, and sums over them."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy


@pytest.fixture
def hierarchy() -> RegionHierarchy:
    parents = ([-1], [0, 0], [0, 0, 1], [0, 1, 1, 2])
    return RegionHierarchy(
        tuple(
            AreaLevel(f"l{depth}", np.array([f"{depth}.{i}" for i in range(len(p))]), np.array(p))
            for depth, p in enumerate(parents)
        )
    )


def test_children_and_leaves_are_ranges(hierarchy: RegionHierarchy) -> None:
    assert hierarchy.names == ("l0", "l1", "l2", "l3")
    assert hierarchy.n_regions == (1, 2, 3, 4)
    assert hierarchy.children(1).tolist() == [0, 2, 3]
    assert [offsets.tolist() for offsets in hierarchy.leaves] == [
        [0, 4],
        [0, 3, 4],
        [0, 1, 3, 4],
        [0, 1, 2, 3, 4],
    ]


def test_counts_are_summed_up_to_the_root(hierarchy: RegionHierarchy) -> None:
    finest = np.arange(8).reshape(4, 2)
    levels = hierarchy.sum_up(finest)
    assert levels[3] is finest
    assert levels[2].tolist() == [[0, 1], [6, 8], [6, 7]]
    assert levels[1].tolist() == [[6, 9], [6, 7]]
    assert levels[0].tolist() == [[12, 16]]
