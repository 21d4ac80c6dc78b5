from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.geography.levels import child_offsets
from spineflow.geography.optimize import (
    blocks_in_several_entities,
    cut_groups,
    fold,
    greedy_groups,
    group_limit,
)


@pytest.mark.slow
@settings(max_examples=70, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=60),
    cutoff=st.sampled_from([0, 0.5, 1, 3]),
)
def test_cut_groups_keep_the_combination_and_the_limit(rows, cutoff):
    rows = sorted(rows, key=lambda row: row[0])
    parent = np.unique([row[0] for row in rows], return_inverse=True)[1]
    combination = np.array([row[1] for row in rows])
    group = cut_groups(parent, combination, cutoff)
    limit = group_limit(np.bincount(parent), cutoff)
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        assert number == members[0]
        assert len(set(parent[members])) == len(set(combination[members])) == 1
        assert len(members) <= limit[parent[number]]
    for cell in set(zip(parent.tolist(), combination.tolist(), strict=True)):
        members = np.flatnonzero((parent == cell[0]) & (combination == cell[1]))
        sizes = np.unique(group[members], return_counts=True)[1]
        assert sizes.max() - sizes.min() <= 1
        assert len(sizes) == -(-len(members) // limit[cell[0]])


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=60),
    cutoff=st.sampled_from([0, 0.5, 1, 3]),
)
def test_production_cuts_runs_of_one_more_than_the_limit(rows, cutoff):
    rows = sorted(rows, key=lambda row: row[0])
    parent = np.unique([row[0] for row in rows], return_inverse=True)[1]
    combination = np.array([row[1] for row in rows])
    group = cut_groups(parent, combination, cutoff, "production")
    limit = group_limit(np.bincount(parent), cutoff)
    for cell in set(zip(parent.tolist(), combination.tolist(), strict=True)):
        members = np.flatnonzero((parent == cell[0]) & (combination == cell[1]))
        run = int(limit[cell[0]]) + 1
        runs = [members[first : first + run] for first in range(0, len(members), run)]
        assert group[members].tolist() == [part[0] for part in runs for _ in part]


def test_group_limit():
    assert group_limit(np.array([1, 8, 9, 100]), 0).tolist() == [1, 2, 3, 10]
    assert group_limit(np.array([1, 8, 9, 100]), 12).tolist() == [13, 14, 15, 22]
    assert group_limit(np.array([2]), 0.6).tolist() == [2]


def reference_distances(blocks_of_item, groups, parent, state, n_entities):
    """Off-spine distances, largest first, of groups under parents, states and a root."""

    def step(pairs):
        x, y = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        return min(x, y + 1), min(y, x + 1)

    distances = []
    for entity in range(n_entities):
        items = [
            step([(int(entity in held), int(entity not in held)) for held in blocks])
            for blocks in blocks_of_item
        ]
        states = []
        for number in range(max(state) + 1):
            counties = []
            for county in np.flatnonzero(np.array(state) == number):
                own = [members for members in groups if parent[members[0]] == county]
                counties.append(step([step([items[item] for item in group]) for group in own]))
            states.append(step(counties))
        distances.append(step(states)[0])
    return sorted(distances, reverse=True)


def alike(blocks_of_item, parent, cutoff):
    """Items of one parent that touch the same entities, cut as `cut_groups` does."""
    sets = [frozenset().union(*blocks) for blocks in blocks_of_item]
    numbers = np.array([sets.index(touched) for touched in sets])
    group = cut_groups(np.array(parent), numbers, cutoff)
    return [np.flatnonzero(group == first).tolist() for first in np.unique(group)]


def reference_groups(blocks_of_item, parent, state, n_entities, cutoff):
    """Algorithm 2 with every candidate spine evaluated from scratch."""
    groups = alike(blocks_of_item, parent, cutoff)
    current = reference_distances(blocks_of_item, groups, parent, state, n_entities)
    is_changed = True
    while is_changed:
        is_changed = False
        for county in range(max(parent) + 1):
            limit = int(np.sqrt(parent.count(county)) + cutoff)
            own = [members for members in groups if parent[members[0]] == county]
            for index, u in enumerate(own):
                for v in own[index + 1 :]:
                    if u not in groups or v not in groups or len(u) + len(v) > limit:
                        continue
                    candidate = [members for members in groups if members not in (u, v)]
                    candidate.append(u + v)
                    test = reference_distances(blocks_of_item, candidate, parent, state, n_entities)
                    if test <= current:
                        groups.remove(v)
                        u.extend(v)
                        current, is_changed = test, True
    group = np.empty(len(parent), dtype=int)
    for members in groups:
        group[members] = min(members)
    return group.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_incremental_search_agrees_with_evaluation_from_scratch(seed):
    rng = np.random.default_rng(seed)
    state = sorted([0, *rng.integers(2, size=2).tolist()])
    state = np.unique(state, return_inverse=True)[1].tolist()
    parent = np.repeat([0, 1, 2], rng.integers(1, 7, size=3)).tolist()
    n_blocks = rng.integers(1, 4, size=len(parent))
    # Entities 0-2 partition the blocks, and so do entities 3-5.
    item = np.repeat(np.arange(len(parent)), n_blocks)
    first = (item * 3 // len(parent) + (rng.random(len(item)) < 0.2)) % 3
    second = 3 + rng.integers(3, size=len(item))
    blocks_of_item = [
        [{first[b], second[b]} for b in np.flatnonzero(item == number)]
        for number in range(len(parent))
    ]
    cutoff = int(rng.integers(0, 4))
    entries = blocks_in_several_entities(np.stack([first, second], axis=1))
    entries, _ = fold(entries, child_offsets(item, len(parent)), 6)
    ancestors = [np.array(parent), np.array(state), np.zeros(max(state) + 1, dtype=np.int64)]
    group = greedy_groups(entries, ancestors, 6, cutoff)
    assert group.tolist() == reference_groups(blocks_of_item, parent, state, 6, cutoff)
