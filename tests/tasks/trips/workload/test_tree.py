"""Trees of range queries: keys, parents and children on hierarchies of every shape."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.solvers.level_design import RegularTree
from spineflow.tasks.trips.plan import (
    geometric_shares,
    level_measures,
    mean_fanouts,
    measured_levels,
    optimised_shares,
)
from spineflow.tasks.trips.settings import TripsPrivacy
from spineflow.tasks.trips.tree import (
    Hierarchy,
    Tree,
    TrueTree,
    column_tree,
    hierarchy_of_links,
    od_tree,
    sum_by_key,
)

from tests.tasks.trips.privacy import privacy_of


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


def country() -> Tree:
    regions = np.array(["a", "b", "c"])
    towns = np.array(["a1", "a2", "b1", "c1", "c2", "c3", "c4"])
    levels = [("region", regions, None), ("town", towns, np.array([t[0] for t in towns]))]
    return od_tree(hierarchy_of_links("from", levels), hierarchy_of_links("to", levels))


def sparse_truth(seed: int) -> TrueTree:
    tree = country()
    random = np.random.default_rng(seed)
    n = tree.n_nodes(tree.depth)
    keys = random.choice(n, size=n // 4)
    return TrueTree(tree, sum_by_key(keys, random.integers(1, 9, size=keys.size)))


def test_levels_are_sums_of_the_leaves() -> None:
    truth = sparse_truth(1)
    for level in range(truth.tree.depth):
        below = truth.levels[level + 1]
        parents = truth.tree.parent_keys(level + 1, below.keys)
        expected = np.bincount(parents, below.counts, minlength=truth.tree.n_nodes(level))
        found = truth.levels[level].counts_of(np.arange(truth.tree.n_nodes(level)))
        assert np.array_equal(found, expected)
        assert truth.levels[level].total == truth.leaves.total


def test_children_of_any_parents_have_their_true_counts() -> None:
    truth = sparse_truth(2)
    random = np.random.default_rng(3)
    for level in range(1, truth.tree.depth + 1):
        above = random.permutation(truth.tree.n_nodes(level - 1))[:5]
        keys, _ = truth.tree.children(level - 1, above)
        positive = truth.levels[level]
        expected = dict(zip(positive.keys.tolist(), positive.counts.tolist(), strict=True))
        assert positive.counts_of(keys).tolist() == [expected.get(key, 0) for key in keys.tolist()]


def country_of_shares() -> Tree:
    regions = np.array([f"{i:02d}" for i in range(4)])
    towns = np.array([f"{r}{i:02d}" for r in regions for i in range(15)])
    levels = [("region", regions, None), ("town", towns, np.array([t[:2] for t in towns]))]
    return od_tree(hierarchy_of_links("from", levels), hierarchy_of_links("to", levels))


def test_noise_of_the_paper() -> None:
    """sigma^2 = T / rho with uniform shares, bounded neighbours and one trip a person."""
    tree, rho = country_of_shares(), Fraction(1, 7)
    privacy = privacy_of()
    measures = level_measures(tree, privacy, rho, geometric_shares(measured_levels(tree, privacy)))
    assert list(measures) == [1, 2, 3, 4]
    assert {own.noise.parameter for own in measures.values()} == {tree.depth / rho}


def test_unsound_shares_are_refused() -> None:
    tree = country_of_shares()
    for shares in ({1: Fraction(1, 2)}, {1: Fraction(3, 2), 2: Fraction(-1, 2)}):
        with pytest.raises(ValueError, match="exactly 1"):
            level_measures(tree, privacy_of(), Fraction(1), shares)


def test_geometric_shares_add_to_one() -> None:
    shares = geometric_shares([1, 2, 3, 4], Fraction(3, 2))
    assert sum(shares.values()) == 1
    assert shares[4] / shares[3] == Fraction(3, 2)


@pytest.mark.parametrize("privacy", [privacy_of(), privacy_of(False, 5, True)])
def test_optimised_shares_beat_uniform_ones(privacy: TripsPrivacy) -> None:
    tree = country_of_shares()
    levels = measured_levels(tree, privacy)
    shares = optimised_shares(tree, privacy, levels)
    assert sum(shares.values()) == 1
    assert all(share > 0 and 1000 % share.denominator == 0 for share in shares.values())

    def log_product(chosen) -> float:
        measures = level_measures(tree, privacy, Fraction(1), chosen)
        precisions = np.zeros(tree.depth + 1)
        for level in levels:
            precisions[level] = 1 / float(measures[level].noise.parameter)
        regular = RegularTree(tuple(mean_fanouts(tree)), privacy.has_invariant_total)
        found = regular.variances(precisions)
        return float(np.log(found[1:]).sum())

    assert log_product(shares) < log_product(geometric_shares(levels))
