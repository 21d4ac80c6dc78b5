"""The confidential tree: sums of levels, and the true counts of any parents' children."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.trips.workload.hierarchy import hierarchy_of_links
from spineflow.tasks.trips.workload.tree import Tree, od_tree
from spineflow.tasks.trips.workload.truth import NodeCounts, TrueTree, summed


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
    return TrueTree(tree, summed(keys, random.integers(1, 9, size=keys.size)))


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


def test_an_empty_table_has_no_positive_nodes() -> None:
    none = np.zeros(0, dtype=np.int64)
    truth = TrueTree(country(), summed(none, none))
    assert all(level.keys.size == 0 for level in truth.levels)
    assert truth.levels[1].counts_of(np.arange(3)).tolist() == [0, 0, 0]
    assert NodeCounts(none, none).counts_of(np.array([4])).tolist() == [0]
