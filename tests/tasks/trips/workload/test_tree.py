"""Trees of range queries: keys, parents and children on hierarchies of every shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.trips.workload.hierarchy import Hierarchy, hierarchy_of_links
from spineflow.tasks.trips.workload.tree import Tree, column_tree, od_tree


def grown(name: str, fanouts: list[list[int]]) -> Hierarchy:
    """A hierarchy whose area i at depth d has `fanouts[d][i]` children, the lists used in turn."""
    links = []
    above = [""]
    for depth, choices in enumerate(fanouts):
        codes, parents = [], []
        for i, parent in enumerate(above):
            for j in range(choices[i % len(choices)]):
                codes.append(f"{depth}.{parent[2:]}.{j:02d}")
                parents.append(parent)
        links.append((f"level {depth}", np.array(codes), np.array(parents)))
        above = codes
    return hierarchy_of_links(name, links)


FANOUTS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)


@st.composite
def trees(draw) -> Tree:
    shapes = draw(st.lists(FANOUTS, min_size=1, max_size=3))
    dimensions = [grown(f"d{i}", shape) for i, shape in enumerate(shapes)]
    order = draw(st.permutations([i for i, d in enumerate(dimensions) for _ in range(d.depth)]))
    return Tree(tuple(dimensions), tuple(order))


@settings(max_examples=60, deadline=None)
@given(trees())
def test_children_partition_every_level_and_know_their_parents(tree: Tree) -> None:
    nodes = np.zeros(1, dtype=np.int64)
    for level in range(tree.depth):
        children, offsets = tree.children(level, nodes)
        assert np.array_equal(np.diff(offsets), tree.n_children(level, nodes))
        assert np.array_equal(np.sort(children), np.arange(tree.n_nodes(level + 1)))
        parents = np.repeat(nodes, np.diff(offsets))
        assert np.array_equal(tree.parent_keys(level + 1, children), parents)
        assert np.array_equal(tree.keys(level + 1, tree.positions(level + 1, children)), children)
        for start, stop in zip(offsets, offsets[1:], strict=False):
            assert np.unique(np.diff(children[start:stop])).size <= 1
        nodes = children


def test_destination_tree_alternates_from_the_destination() -> None:
    areas = grown("x", [[2], [3]])
    tree = od_tree(areas, areas)
    assert tree.refined == (1, 0, 1, 0)
    assert od_tree(areas, areas, first="origin").refined == (0, 1, 0, 1)
    assert [tree.n_nodes(level) for level in range(5)] == [1, 2, 4, 12, 36]


def test_columns_are_refined_one_after_the_other() -> None:
    place, sex = grown("place", [[2], [2]]), grown("sex", [[2]])
    assert column_tree([place, sex]).refined == (0, 0, 1)


def test_ancestors_and_leaves_below() -> None:
    areas = grown("x", [[2], [1, 3]])
    assert areas.ancestors(1).tolist() == [0, 1, 1, 1]
    assert areas.n_leaves(1).tolist() == [1, 3]
    assert areas.n_leaves(0).tolist() == [4]


def test_order_of_the_input_does_not_matter() -> None:
    codes, parents = np.array(["b1", "a2", "a1"]), np.array(["b", "a", "a"])
    built = hierarchy_of_links("x", [("one", np.array(["b", "a"]), None), ("two", codes, parents)])
    assert built.levels[2].codes.tolist() == ["a1", "a2", "b1"]


def test_impossible_shapes_are_refused() -> None:
    root = AreaLevel("root", np.array([""], dtype=object), np.array([-1]))
    two = AreaLevel("two", np.array(["a", "b"], dtype=object), np.array([0, 0]))
    lonely = AreaLevel("three", np.array(["c"], dtype=object), np.array([1]))
    with pytest.raises(ValueError, match="needs some"):
        Hierarchy((root, two, lonely), "x")
    with pytest.raises(ValueError, match="must hold one area"):
        Hierarchy((two,), "x")
    with pytest.raises(ValueError, match="must refine x 1 times"):
        Tree((Hierarchy((root, two), "x"),), ())
    wide = grown("x", [[1 << 12]])
    with pytest.raises(ValueError, match="64-bit"):
        column_tree([wide] * 6)
