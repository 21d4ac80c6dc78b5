from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space
from spineflow.geography.classes import ClassedSpine
from spineflow.geography.variance import Covariances


@dataclass(frozen=True)
class LevelPrecision:
    """Information matrices (kinds, k, k), and which of them is each geounit's."""

    matrices: np.ndarray
    code: np.ndarray


def covariances_of(
    spine, precision, possible, *, known_sums=None, known_at="State", beside=None
) -> Covariances:
    """From matrices of every geolevel; zeros are nothing measured."""
    kinds, before = [], 0
    for level in precision:
        is_measured = level.matrices.any(axis=(1, 2))
        kinds.append(np.where(is_measured[level.code], before + level.code, -1))
        before += len(level.matrices)
    classed = ClassedSpine.build(
        spine,
        kinds,
        possible,
        known=None if known_sums is None else {known_at: known_sums},
        is_part=beside is not None,
    )
    counted = classed.information.toarray()
    matrices = np.concatenate([level.matrices for level in precision])[: counted.shape[1]]
    return Covariances.of(classed, np.tensordot(counted, matrices, axes=1)[:, None], beside=beside)


def variances(estimate: Covariances, entity, n_entities: int, weights) -> np.ndarray:
    """(n_entities,) of the weighted sums of entities, 0 for those without blocks."""
    areas, found = estimate.spine.areas(np.asarray(entity)), np.zeros(n_entities)
    found[areas.area] = estimate.variances(areas, np.asarray(weights)[None])[:, 0, 0]
    return found


def random_precision(rng, spine, k: int, *, rank: int, holes: bool) -> list[LevelPrecision]:
    precision = []
    for level in spine.geolevels:
        is_block = level.name == "Block"
        factors = rng.normal(size=(2, k, k if is_block else rank))
        matrices = factors @ factors.transpose(0, 2, 1)
        if is_block:
            matrices += 0.1 * np.eye(k)
        elif holes:
            matrices[0] = 0.0
        precision.append(LevelPrecision(matrices, rng.integers(2, size=len(level))))
    return precision


def dense_variances(
    spine, precision, possible, targets, known_sums=None, known_at="State"
) -> np.ndarray:
    """Of each target (n_blocks * k,), from the information matrix of all blocks at once."""
    n_blocks, k = possible.shape
    information = np.zeros((n_blocks * k, n_blocks * k))
    for level, level_precision in zip(spine.geolevels, precision, strict=True):
        ancestor = spine.ancestors(level.name)
        for geounit in range(len(level)):
            rows = np.kron((ancestor == geounit).astype(float), np.eye(k))
            matrix = level_precision.matrices[level_precision.code[geounit]]
            information += rows.T @ matrix @ rows
    free = np.eye(n_blocks * k)[:, possible.ravel()]
    if known_sums is not None:
        unit = np.asarray(known_sums)[spine.ancestors(known_at)]
        sums = np.array([np.repeat(unit == number, k) for number in np.unique(unit)], float)
        free = free @ null_space(sums @ free)
    covariance = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    return np.array([target @ covariance @ target for target in targets])


@pytest.mark.slow
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 100_000),
    k=st.integers(1, 3),
    holes=st.booleans(),
    only_children=st.booleans(),
    known=st.sampled_from(["no", "each", "in parts"]),
)
def test_recursion_agrees_with_the_dense_matrix(
    make_random_spine, seed, k, holes, only_children, known
):
    rng = np.random.default_rng(seed)
    spine = make_random_spine(seed, depth=int(rng.integers(3, 5)), most_children=4)
    precision = random_precision(rng, spine, k, rank=int(rng.integers(1, k + 1)), holes=holes)
    if only_children:
        parent = spine.geolevel("Block").parent
        alone = np.bincount(parent)[parent] == 1
        matrices = np.append(precision[-1].matrices, np.zeros((1, k, k)), axis=0)
        precision[-1] = LevelPrecision(matrices, np.where(alone, 2, precision[-1].code))
        full = precision[-2].matrices + 0.3 * np.eye(k)
        precision[-2] = LevelPrecision(full, precision[-2].code)
    possible = rng.random((spine.n_blocks, k)) < 0.7
    possible[np.arange(spine.n_blocks), rng.integers(k, size=spine.n_blocks)] = True
    known_at = spine.names[int(rng.integers(len(spine.names)))]
    known_sums, parent = None, spine.geolevel(known_at).parent
    if known == "each":
        known_sums = np.arange(len(parent))
    elif known == "in parts":
        half = rng.integers(2, size=len(parent))
        known_sums = rng.permutation(2 * len(parent))[2 * parent + half]
    entity = rng.integers(-1, 3, size=spine.n_blocks)
    weights = rng.integers(-1, 2, size=k).astype(float)
    estimate = covariances_of(spine, precision, possible, known_sums=known_sums, known_at=known_at)
    found = variances(estimate, entity, 3, weights)
    targets = [np.kron((entity == number).astype(float), weights) for number in range(3)]
    expected = dense_variances(spine, precision, possible, targets, known_sums, known_at)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_what_is_not_measured_has_infinite_variance(make_spine):
    """Two types whose sum alone is measured; a block that has one of them tells it."""
    spine = make_spine([[-1], [0, 0]], [[Fraction(1, 2)], [Fraction(1, 2)] * 2])
    sum_only = np.ones((1, 2, 2))
    precision = [LevelPrecision(sum_only, np.zeros(n, dtype=int)) for n in (1, 2)]
    possible = np.array([[True, True], [True, False]])
    estimate = covariances_of(spine, precision, possible)
    assert np.isinf(variances(estimate, np.array([0, 1]), 2, np.array([1.0, 0.0]))[0])
    assert variances(estimate, np.array([0, 1]), 2, np.array([1.0, 0.0]))[1] == pytest.approx(2 / 3)
    assert variances(estimate, np.array([0, 1]), 2, np.ones(2)) == pytest.approx(
        [2 / 3, 2 / 3], rel=1e-9
    )
    assert variances(estimate, np.array([0, 1]), 2, np.array([0.0, 1.0]))[1] == 0


def test_what_is_determined_on_the_way_up_is_known_with_its_errors(make_spine):
    """Of blocks sums alone are measured; what tells their types apart is measured of two at once,
    the second of which has one type, and above these all of it, which lessens their errors."""
    spine = make_spine([[-1], [0, 0], [0, 0, 1, 1]], [[Fraction(1, 3)] * n for n in (1, 2, 4)])
    matrices = (
        np.array([[[2.0, 0.5], [0.5, 1.0]]]),
        np.array([[[1.0, 0.0], [0.0, 0.0]]]),
        np.array([[[1.0, 1.0], [1.0, 1.0]]]),
    )
    precision = [
        LevelPrecision(own, np.zeros(n, dtype=int))
        for own, n in zip(matrices, (1, 2, 4), strict=True)
    ]
    possible = np.array([[True, True], [True, False]] * 2)
    estimate = covariances_of(spine, precision, possible)
    for weights in (np.array([1.0, 0.0]), np.array([1.0, -3.0])):
        entity = np.array([0, 1, 1, 0])
        targets = [np.kron((entity == number).astype(float), weights) for number in range(2)]
        expected = dense_variances(spine, precision, possible, targets)
        assert variances(estimate, entity, 2, weights) == pytest.approx(expected)
