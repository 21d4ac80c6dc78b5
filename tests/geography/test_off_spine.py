from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spineflow.geography.categories import Category
from spineflow.geography.optimize import distances, listed_entries, off_spine_distances


def category_of(entity: np.ndarray, n_entities: int) -> Category:
    label = np.array([f"e{number}" for number in range(n_entities)], dtype=object)
    return Category("random", np.asarray(entity, dtype=np.int32), label, outside=-1)


def fewest_geounits(spine, is_inside: np.ndarray) -> int:
    """Minimum of the sum of |z| over integer combinations z of geounits that give the entity.

    The geounits above the blocks have coefficients from -2 to 2 (-1 to 1 in larger trees); those
    of the blocks follow from them.
    """
    incidence = np.concatenate(
        [
            spine.ancestors(level.name) == np.arange(len(level))[:, None]
            for level in spine.geolevels[:-1]
        ]
    ).astype(int)
    largest = 2 if len(incidence) <= 5 else 1
    coefficients = np.array(
        list(itertools.product(range(-largest, largest + 1), repeat=len(incidence)))
    )
    blocks = is_inside.astype(int) - coefficients @ incidence
    return int((np.abs(coefficients).sum(axis=1) + np.abs(blocks).sum(axis=1)).min())


@st.composite
def parents_of_small_tree(draw) -> list[list[int]]:
    """At most seven geounits above at most nine blocks, two to five geolevels."""
    parents = [[-1]]
    for n_most in draw(st.sampled_from([(1, 2, 3), (2, 4), (2, 3), (4,), (3,), ()])):
        n_above = len(parents[-1])
        n_children = [1] * n_above
        for _ in range(draw(st.integers(0, max(n_most - n_above, 0)))):
            n_children[draw(st.integers(0, n_above - 1))] += 1
        parents.append(np.repeat(np.arange(n_above), n_children).tolist())
    n_above = len(parents[-1])
    n_children = draw(st.lists(st.integers(1, 4), min_size=n_above, max_size=n_above))
    parents.append(np.repeat(np.arange(n_above), n_children).tolist())
    return parents


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parents=parents_of_small_tree(), data=st.data())
def test_distance_is_the_smallest_signed_sum(make_spine, parents, data):
    spine = make_spine(parents, [[Fraction(1, len(parents))] * len(level) for level in parents])
    blocks = st.lists(st.integers(0, 2), min_size=spine.n_blocks, max_size=spine.n_blocks)
    entity = np.array(data.draw(blocks))
    found = off_spine_distances(spine, category_of(entity, 3))
    for number in range(3):
        assert found[number] == fewest_geounits(spine, entity == number)


def test_distances_of_known_entities(make_spine):
    parents = [[-1], [0, 0], [0, 0, 0, 0, 1, 1]]
    spine = make_spine(parents, [[Fraction(1, 3)] * len(level) for level in parents])
    # All but one block of the first county: the county less a block.
    assert off_spine_distances(spine, category_of([0, 0, 0, 1, 2, 2], 4)).tolist() == [2, 1, 1, 0]
    # The nation less two blocks, each the only one of its entity.
    assert off_spine_distances(spine, category_of([0, 0, 0, 1, 2, 0], 3)).tolist() == [3, 1, 1]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parents=parents_of_small_tree(), data=st.data())
def test_areas_that_overlap_are_as_far_as_each_alone(make_spine, parents, data):
    spine = make_spine(parents, [[Fraction(1, len(parents))] * len(level) for level in parents])
    blocks = st.lists(st.integers(0, 1), min_size=spine.n_blocks, max_size=spine.n_blocks)
    inside = np.array(data.draw(st.lists(blocks, min_size=1, max_size=4)))
    area, block = np.nonzero(inside)
    found = distances(spine, listed_entries(spine.n_blocks, block, area), len(inside))
    alone = [off_spine_distances(spine, category_of(one, 2))[1] for one in inside]
    assert found.tolist() == alone
