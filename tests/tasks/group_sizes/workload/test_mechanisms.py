"""Sensitivities over all neighbours of all small datasets; calibration; the default mechanism."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import (
    CHAIN_DP,
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_DP,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
    HIERARCHICAL_DP,
    PUBLISHED,
    VECTOR_OF,
    default_mechanism,
    level_weights,
    sensitivity,
)

from tests.tasks.group_sizes.plans import make_plan

VECTORS = (GROUP_SIZES, CUMULATIVE_GROUP_SIZES, CHAINED_CUMULATIVE_GROUP_SIZES)

Dataset = tuple[tuple[int, int], ...]
"""The groups, each by region and size, both from 0."""


def datasets(n_groups: int, n_regions: int, n_sizes: int) -> Iterator[Dataset]:
    kinds = list(itertools.product(range(n_regions), range(n_sizes)))
    return itertools.combinations_with_replacement(kinds, n_groups)


def joined(dataset: Dataset, n_sizes: int, quantity: int) -> Iterator[Dataset]:
    """Datasets with one person more: a group grows by at most the quantity."""
    for i, (region, size) in enumerate(dataset):
        for larger in range(size + 1, min(size + quantity, n_sizes - 1) + 1):
            yield (*dataset[:i], (region, larger), *dataset[i + 1 :])


def moved(dataset: Dataset, n_sizes: int, quantity: int) -> Iterator[Dataset]:
    """Datasets in which a person has left one group for another, and counts as much there."""
    for i, (region, size) in enumerate(dataset):
        for amount in range(1, min(quantity, size) + 1):
            without = (*dataset[:i], (region, size - amount), *dataset[i + 1 :])
            for j, (other, before) in enumerate(without):
                if j != i and before + amount < n_sizes:
                    yield (*without[:j], (other, before + amount), *without[j + 1 :])


def measured(dataset: Dataset, vector: str, n_regions: int, n_sizes: int) -> np.ndarray:
    counts = np.zeros((n_regions, n_sizes), dtype=np.int64)
    for region, size in dataset:
        counts[region, size] += 1
    return true_vector(vector, counts)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("n_regions", [1, 2, 3])
@pytest.mark.parametrize("quantity", [1, 2])
@pytest.mark.parametrize("bounded", [False, True], ids=["joins or leaves", "moves"])
@pytest.mark.parametrize("top_code", [None, 3])
def test_sensitivities_are_the_largest_changes_between_neighbours(
    vector: str, n_regions: int, quantity: int, bounded: bool, top_code: int | None
) -> None:
    """Groups exist with and without the person: their number and their regions stay.

    With a top code sizes run beyond the largest one, and no sensitivity is larger.
    """
    n_sizes = 5 if quantity == 2 else 4
    neighbours = moved if bounded else joined
    seen: dict[Dataset, np.ndarray] = {}

    def values(dataset: Dataset) -> np.ndarray:
        if dataset not in seen:
            coded = tuple((r, s if top_code is None else min(s, top_code)) for r, s in dataset)
            size = n_sizes if top_code is None else top_code + 1
            seen[dataset] = measured(coded, vector, n_regions, size)
        return seen[dataset]

    changes = [
        values(one) - values(two)
        for n_groups in (1, 2, 3)
        for one in datasets(n_groups, n_regions, n_sizes + (top_code is not None))
        for two in neighbours(one, n_sizes + (top_code is not None), quantity)
    ]
    arguments = {"bounded": bounded, "quantity": quantity}
    l1 = max(int(np.abs(change).sum()) for change in changes)
    squared_l2 = max(int((change**2).sum()) for change in changes)
    bounds = (
        sensitivity(vector, n_regions, **arguments),
        sensitivity(vector, n_regions, is_squared=True, **arguments),
    )
    if top_code is None:
        assert (l1, squared_l2) == bounds
    else:
        assert l1 <= bounds[0]
        assert squared_l2 <= bounds[1]


def test_a_person_is_in_one_region_of_each_level() -> None:
    """Hence the levels' epsilons add, and the regions of a level cost no more than one."""
    n_sizes, parent = 3, np.array([0, 0, 1])
    for one in datasets(2, 3, n_sizes):
        for two in joined(one, n_sizes, 1):
            change = measured(one, GROUP_SIZES, 3, n_sizes) - measured(two, GROUP_SIZES, 3, n_sizes)
            coarser = np.zeros((2, n_sizes), dtype=np.int64)
            np.add.at(coarser, parent, change)
            for level in (change, coarser, change.sum(axis=0, keepdims=True)):
                assert (np.abs(level).sum(axis=1) > 0).sum() == 1
                assert np.abs(level).sum() == 2


def test_published_calibration_covers_all_but_the_chain() -> None:
    published = dict(zip(VECTORS, (2, 1, 1), strict=True))
    for mechanism, vector in VECTOR_OF.items():
        plan = make_plan(
            names=["nation", "state"],
            n_regions=[1, 52],
            sizes=(1, 8),
            groups=400,
            mechanism=mechanism,
            epsilon=Fraction(1),
            calibration=PUBLISHED,
        )
        assert [level.moved for level in plan.levels] == [published[vector]] * 2
        covered = published[vector] >= sensitivity(vector, 52)
        assert covered == (vector != CHAINED_CUMULATIVE_GROUP_SIZES)
        assert published[vector] >= sensitivity(vector, 1)


def test_level_weights_follow_the_inverse_variance() -> None:
    assert level_weights([Fraction(36)] * 3) == (1, 1, 1)
    assert level_weights([Fraction(9), Fraction(36)]) == (16, 4)
    assert level_weights([None, Fraction(9), Fraction(36)]) == (0, 16, 4)
    assert level_weights([None, Fraction(9), Fraction(9)]) == (0, 1, 1)
    weights = level_weights([Fraction(1), Fraction(52) ** 2, Fraction(3144) ** 2])
    assert weights[2] == 4
    assert weights[1] == pytest.approx(4 * (3144 / 52) ** 2, rel=1e-4)
    assert weights[0] == 1 << 18


def test_default_mechanism_depends_on_public_sizes() -> None:
    assert default_mechanism([1, 52, 3144]) == CUMULATIVE_DP
    assert default_mechanism([1, 2]) == CUMULATIVE_DP
    assert default_mechanism([1]) == default_mechanism([1, 1]) == CHAIN_DP
    assert default_mechanism([1, 52], quantity=5) == HIERARCHICAL_DP
    assert set(VECTOR_OF) >= {CUMULATIVE_DP, CHAIN_DP, HIERARCHICAL_DP}
