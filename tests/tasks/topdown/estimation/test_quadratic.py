"""The objective's matrices and their inverses, against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.topdown.estimation.dense_matrices import definite_inverse
from spineflow.tasks.topdown.estimation.quadratic import (
    PROXIMAL_WEIGHT,
    Quadratic,
    curvature,
    factored,
    inverse_of_child,
    slope_of,
    squared_distance,
)


def made_quadratic(seed: int, k: int, sizes: list[int], c: int = 3) -> Quadratic:
    """Random nested and crossing queries; the weights differ between two profiles."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes])
    labels = []
    for size, first in zip(sizes, starts, strict=False):
        label = np.arange(k) if size == k else rng.permutation(np.arange(k) % size)
        labels.append(label + first)
    labels = np.array(labels)
    weights = rng.uniform(0.1, 1.0, (2, len(sizes)))
    answers = rng.normal(5.0, 3.0, (c, starts[-1]))
    profile = rng.integers(0, 2, c)
    scale = rng.uniform(0.5, 2.0, c)
    parts = factored(labels, starts, weights)
    return Quadratic(answers, labels, starts, weights, profile, scale, *parts)


def hessian(quadratic: Quadratic, i: int) -> np.ndarray:
    """Child i's matrix from its definition, with the proximal term."""
    profile = quadratic.profile[i]
    matrix = quadratic.proximal[profile] * np.eye(quadratic.labels.shape[1])
    for label, weight in zip(quadratic.labels, quadratic.weights[profile], strict=True):
        matrix += weight * (label[:, None] == label[None, :])
    return quadratic.scale[i] * matrix


SIZES = [[1, 4, 12], [1, 3, 4], [60, 1, 5, 7], [1, 6, 12, 60], [60]]


@pytest.mark.parametrize("sizes", SIZES)
def test_inverse_of_some_cells(sizes: list[int]) -> None:
    k = max(12, *sizes)
    quadratic = made_quadratic(1, k, sizes)
    rng = np.random.default_rng(2)
    for i in range(3):
        for f in (0, 1, k // 2, k):
            cells = np.sort(rng.choice(k, f, replace=False))
            extra = rng.uniform(0.0, 1.0, f)
            matrix = hessian(quadratic, i)[np.ix_(cells, cells)] + np.diag(extra)
            product = inverse_of_child(quadratic, i, cells, extra) @ matrix
            assert np.abs(product - np.eye(f)).max(initial=0.0) < 1e-6
        assert np.allclose(curvature(quadratic, i), np.diag(hessian(quadratic, i)))


@pytest.mark.parametrize("sizes", SIZES)
def test_slope_and_objective(sizes: list[int]) -> None:
    k = max(12, *sizes)
    quadratic = made_quadratic(3, k, sizes)
    x = np.random.default_rng(4).uniform(0.0, 9.0, (3, k))
    x[:, ::3] = 0.0
    objective = 0.0
    for i in range(3):
        gradient = np.zeros(k)
        for q, label in enumerate(quadratic.labels):
            weight = quadratic.scale[i] * quadratic.weights[quadratic.profile[i], q]
            residual = (
                np.bincount(label, x[i], label.max() + 1) - quadratic.answers[i, : label.max() + 1]
            )
            residual[: label.min()] = 0.0
            objective += 0.5 * weight * (residual**2).sum()
            gradient += weight * residual[label]
        slope = np.empty(k)
        slope_of(quadratic, i, x[i], np.empty(quadratic.answers.shape[1]), slope)
        assert np.allclose(slope, -gradient)
    assert np.isclose(squared_distance(quadratic, x), objective)


def test_proximal_term_only_where_no_query_tells_all_cells_apart() -> None:
    assert not made_quadratic(5, 12, [1, 4, 12]).proximal.any()
    singular = made_quadratic(5, 12, [1, 4])
    mean = np.diag(hessian(singular, 0) / singular.scale[0]).mean()
    proximal = singular.proximal[singular.profile[0]]
    assert np.isclose(proximal, PROXIMAL_WEIGHT * (mean - proximal))


@pytest.mark.parametrize("n", [1, 2, 31, 33, 150])
def test_definite_inverse(n: int) -> None:
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, n))
    matrix = matrix @ matrix.T + np.eye(n)
    assert np.allclose(definite_inverse(matrix.copy()) @ matrix, np.eye(n), atol=1e-8)
