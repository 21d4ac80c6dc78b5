"""Sensitivities against every way in which one person's trips can change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from spineflow.tasks.trips.plan import l1_sensitivity, squared_sensitivity
from spineflow.tasks.trips.settings import TripsPrivacy
from spineflow.tasks.trips.tree import Tree, column_tree, hierarchy_of_links, od_tree

from tests.tasks.trips.privacy import privacy_of


def small_trees() -> dict[str, Tree]:
    uneven = hierarchy_of_links(
        "x",
        [
            ("one", np.array(["a", "b"]), None),
            ("two", np.array(["a1", "a2", "a3", "b1"]), np.array(["a", "a", "a", "b"])),
        ],
    )
    pair = hierarchy_of_links("y", [("one", np.array(["p", "q"]), None)])
    return {"columns": column_tree([uneven]), "pairs": od_tree(pair, pair)}


def largest_change(tree: Tree, level: int, privacy: TripsPrivacy) -> int:
    """By enumeration: the largest |a - b|^2 over the trips that a person may make."""
    n_leaves = tree.n_nodes(tree.depth)
    m = privacy.trips_per_person
    choose = (
        itertools.combinations
        if privacy.distinct_trips
        else itertools.combinations_with_replacement
    )
    numbers = [m] if privacy.total == "invariant" else range(m + 1)
    vectors = []
    for trips in (trips for n in numbers for trips in choose(range(n_leaves), n)):
        nodes = np.array(trips, dtype=np.int64)
        for above in range(tree.depth, level, -1):
            nodes = tree.parent_keys(above, nodes)
        vectors.append(np.bincount(nodes, minlength=tree.n_nodes(level)))
    nobody = [np.zeros(tree.n_nodes(level), dtype=np.int64)]
    others = vectors if privacy.is_bounded else nobody
    return max(int(((a - b) ** 2).sum()) for a in vectors for b in others)


@pytest.mark.parametrize("shape", ["columns", "pairs"])
@pytest.mark.parametrize("trips", [1, 2, 3])
@pytest.mark.parametrize("are_distinct", [True, False])
@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize("is_exact", [True, False])
def test_sensitivity_covers_every_change(shape, trips, are_distinct, is_bounded, is_exact) -> None:
    tree = small_trees()[shape]
    privacy = privacy_of(is_bounded, trips, are_distinct, is_exact)
    for level in range(tree.depth + 1):
        bound = squared_sensitivity(tree, level, privacy)
        assert largest_change(tree, level, privacy) <= bound
        if not is_bounded:
            assert largest_change(tree, level, privacy) == bound


def test_figures_of_the_paper_at_the_leaves() -> None:
    """sqrt(2 m) and sqrt(m) for distinct trips, sqrt(2) m and m in general."""
    leaves = hierarchy_of_links("x", [("one", np.arange(30).astype(str), None)])
    tree = column_tree([leaves])
    for m in (1, 4, 7):
        for bounded, factor in ((True, 2), (False, 1)):
            assert squared_sensitivity(tree, 1, privacy_of(bounded, m, True)) == factor * m
            assert squared_sensitivity(tree, 1, privacy_of(bounded, m)) == factor * m**2


def test_distinct_trips_may_share_a_node_above_the_leaves() -> None:
    tree = small_trees()["columns"]
    assert squared_sensitivity(tree, 1, privacy_of(False, 3, True)) == 9
    assert squared_sensitivity(tree, 1, privacy_of(False, 4, True)) == 9 + 1


def test_root_and_l1_sensitivity() -> None:
    tree = small_trees()["pairs"]
    assert squared_sensitivity(tree, 0, privacy_of()) == 0
    assert squared_sensitivity(tree, 0, privacy_of(is_bounded=False, trips=3)) == 9
    assert squared_sensitivity(tree, 0, privacy_of(trips=3, is_exact=False)) == 9
    assert l1_sensitivity(privacy_of(trips=3)) == 6
    assert l1_sensitivity(privacy_of(is_bounded=False, trips=3)) == 3
