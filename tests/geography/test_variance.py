from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spineflow.geography.categories import Category
from spineflow.geography.levels import Spine, bypass
from spineflow.geography.rules import GroupRules
from spineflow.geography.variance import (
    entity_variances,
    measurement_precision,
    total_covariances,
    total_share,
)


def geounit_variances(spine, name: str, precision) -> np.ndarray:
    """The variance of the estimated total of every geounit of one geolevel."""
    entity = np.empty(spine.n_blocks, dtype=np.int32)
    entity[spine.block_row] = spine.ancestors(name)
    category = Category(name, entity, spine.geolevel(name).geocode, outside=-1)
    return entity_variances(spine, category, total_covariances(spine, precision))


def category_of(entity, n_entities: int) -> Category:
    label = np.array([f"e{number}" for number in range(n_entities)], dtype=object)
    return Category("random", np.asarray(entity, dtype=np.int32), label, outside=-1)


def dense_variance(spine: Spine, precision, is_inside: np.ndarray) -> float:
    """a' (A' diag(precision) A)^+ a, infinite if the measurements do not determine a' x."""
    rows = np.concatenate(
        [spine.ancestors(level.name) == np.arange(len(level))[:, None] for level in spine.geolevels]
    ).astype(float)
    weight = np.concatenate(precision)
    scaled = np.sqrt(weight)[:, None] * rows
    target = is_inside.astype(float)
    coefficients, *_ = np.linalg.lstsq(scaled.T, target, rcond=1e-12)
    if np.abs(scaled.T @ coefficients - target).max() > 1e-8:
        return np.inf
    return float(coefficients @ coefficients)


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 100_000),
    is_pure=st.booleans(),
    treatment=st.sampled_from(["unequal", "bypass", "bypass and unequal", "holes"]),
)
def test_recursion_agrees_with_the_dense_matrix(make_random_spine, seed, is_pure, treatment):
    rng = np.random.default_rng(seed)
    spine = make_random_spine(seed, depth=int(rng.integers(2, 6)), most_children=3)
    if "bypass" in treatment:
        geolevels = bypass(spine.geolevels, GroupRules(bypass_cutoff=None), is_pure=is_pure)
        spine = Spine(spine.kind, geolevels, spine.block_geocode, spine.block_row)
    precision = measurement_precision(spine, is_pure=is_pure, privacy_loss=2.5)
    if "unequal" in treatment:
        precision = tuple(level * rng.uniform(0.2, 5, size=len(level)) for level in precision)
    if treatment == "holes":
        precision = tuple(level * (rng.random(len(level)) < 0.6) for level in precision)
    entity = rng.integers(3, size=spine.n_blocks)
    variance = entity_variances(spine, category_of(entity, 4), total_covariances(spine, precision))
    for number in range(4):
        expected = dense_variance(spine, precision, entity == number)
        assert variance[number] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_variances_of_geounits(make_spine):
    parents = [[-1], [0, 0]]
    spine = make_spine(parents, [[Fraction(1, 2)], [Fraction(1, 2)] * 2])
    precision = (np.ones(1), np.ones(2))
    assert geounit_variances(spine, "Block", precision) == pytest.approx([2 / 3, 2 / 3])
    assert geounit_variances(spine, "US", precision) == pytest.approx([2 / 3])


def test_entity_of_a_sibling_pair_without_block_measurements(make_spine):
    parents = [[-1], [0, 0], [0, 0, 1]]
    spine = make_spine(parents, [[Fraction(1, 3)] * len(level) for level in parents])
    precision = (np.zeros(1), np.array([4.0, 1.0]), np.zeros(3))
    variance = entity_variances(
        spine, category_of([0, 0, 1], 2), total_covariances(spine, precision)
    )
    assert variance == pytest.approx([0.25, 1.0])
    variance = entity_variances(
        spine, category_of([0, 1, 1], 2), total_covariances(spine, precision)
    )
    assert np.isinf(variance).all()


def test_precision_of_the_two_mechanisms(make_spine):
    spine = make_spine([[-1], [0, 0]], [[Fraction(1, 4)], [Fraction(3, 4)] * 2])
    gaussian = measurement_precision(
        spine, is_pure=False, privacy_loss=2.0, total_shares={"Block": 0.5}
    )
    # sigma^2 = 1 / (rho * share * query share)
    assert [level.tolist() for level in gaussian] == [[0.5], [0.75, 0.75]]
    laplace = measurement_precision(spine, is_pure=True, privacy_loss=2.0)
    # b = 2 / (epsilon * share), variance 2 b^2
    assert laplace[0] == pytest.approx([1 / (2 * 4.0**2)])


@pytest.mark.parametrize("is_pure", [False, True])
def test_totals_from_several_marginals(make_random_spine, is_pure):
    """The scalar recursion against the full matrix mechanism over blocks and cells."""
    spine = make_random_spine(seed=3, depth=3, most_children=3)
    one, cells = np.ones((1, 3)), np.eye(3)
    queries = [np.kron(np.ones((1, 2)), one), np.kron(np.eye(2), one), np.kron(np.eye(2), cells)]
    shares = {"US": [0.5, 0.3, 0.2], "State": [0.1, 0.6, 0.3], "Block": [0.2, 0.2, 0.6]}
    n_answers = [len(query) for query in queries]
    information = 0.0
    for level in spine.geolevels:
        incidence = (spine.ancestors(level.name) == np.arange(len(level))[:, None]).astype(float)
        for query, share in zip(queries, shares[level.name], strict=True):
            loss = share * level.shares()
            weight = loss**2 / 8 if is_pure else loss
            tree = incidence.T @ (weight[:, None] * incidence)
            information = information + np.kron(tree, query.T @ query)
    is_inside = np.arange(spine.n_blocks) % 2 == 0
    target = np.kron(is_inside, np.ones(6))
    expected = target @ np.linalg.solve(information, target)
    precision = measurement_precision(
        spine,
        is_pure=is_pure,
        total_shares={
            name: total_share(own, n_answers, is_pure=is_pure) for name, own in shares.items()
        },
    )
    variance = entity_variances(
        spine, category_of(is_inside.astype(int), 2), total_covariances(spine, precision)
    )
    assert variance[1] == pytest.approx(expected, rel=1e-9)
