from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, UNITS
from spineflow.tasks.census.queries import MarginalQuery, Schema, marginal_query
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.estimation.quadratic import (
    PROXIMAL_WEIGHT,
    Quadratic,
    curvature,
    definite_inverse,
    factor,
    inverse_of_child,
    slope_of,
    squared_distance,
)
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra

ASKED = {
    PERSONS: ("total", "hhinstlevels", "hhgq", "votingage * cenrace", "hispanic", "detailed"),
    CENSUS.schema("persons", ("hhgq", "hispanic", "votingage")): (
        "hhinstlevels * hispanic",
        "detailed",
    ),
    CENSUS.schema("persons", ("sex", "hispanic")): ("total", "sex", "detailed"),
    CENSUS.schema("persons", ("hhgq",)): ("hhinstlevels", "detailed"),
    UNITS: ("detailed",),
}
SCHEMAS = pytest.mark.parametrize("schema", ASKED, ids=lambda schema: "x".join(schema.attributes))


def algebra_of(schema: Schema, zero=True) -> QueryAlgebra:
    types = np.zeros(schema.n_cells, dtype=np.int64)
    forbidden = np.zeros(schema.n_cells, dtype=bool)
    if "hhgq" in schema.attributes:
        types = schema.levels("hhgq")
        if zero and "votingage" in schema.attributes:
            forbidden = schema.cells_where({"hhgq": (3,), "votingage": (0,)})
    queries = [marginal_query(schema, name) for name in ASKED[schema]]
    return QueryAlgebra.build(schema, queries, types, forbidden)


def type_is_possible(schema: Schema, *types: int) -> np.ndarray:
    mask = np.zeros(8 if "hhgq" in schema.attributes else 1, dtype=bool)
    mask[list(types) if len(mask) > 1 else 0] = True
    return mask


def possible(algebra: QueryAlgebra, cells: np.ndarray) -> np.ndarray:
    """Cells of the schema that the core cells stand for."""
    ones = np.ones((1, cells.size, algebra.n_coordinates))
    return np.flatnonzero(np.abs(algebra.histograms(ones, cells)[0]) > 1e-9)


@SCHEMAS
def test_coordinates_are_orthonormal(schema):
    algebra = algebra_of(schema)
    cells = algebra.cells_of(type_is_possible(schema, 0, 3, 5))
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, cells.size, algebra.n_coordinates))
    histograms = algebra.histograms(x, cells)
    assert np.allclose((histograms**2).sum(1), (x**2).sum((1, 2)))
    assert np.allclose(algebra.coordinates(histograms, cells), x)
    h = algebra.total_vector(cells.size)
    assert np.allclose(histograms.sum(1), x[:, :, 0] @ h)


@SCHEMAS
@pytest.mark.parametrize("types", [(0,), (0, 3, 4, 6), (3,), tuple(range(8))])
def test_information_is_that_of_the_matrices(schema, types):
    algebra = algebra_of(schema)
    cells = algebra.cells_of(type_is_possible(schema, *types))
    if not cells.size:
        pytest.skip("nothing is possible")
    rng = np.random.default_rng(2)
    queries = [marginal_query(schema, name) for name in ASKED[schema]]
    measurements = {
        query.name: QueryMeasurement(
            query, rng.integers(-9, 9, (3, query.n_rows)), rng.uniform(0.1, 2, 3)
        )
        for query in queries
    }
    a, b = algebra.information(measurements, cells)
    x = rng.normal(size=(3, cells.size, algebra.n_coordinates))
    histograms = algebra.histograms(x, cells)
    ax = np.empty_like(x)
    for component, columns in enumerate(algebra.components):
        ax[:, :, columns] = a[:, component] @ x[:, :, columns]
    expected_ax = np.zeros_like(histograms)
    expected_b = np.zeros_like(histograms)
    for m in measurements.values():
        weighted = m.query.matrix.T * m.precision[0]
        for i in range(3):
            weighted = m.precision[i] * m.query.matrix.T
            expected_ax[i] += weighted @ (m.query.matrix @ histograms[i])
            expected_b[i] += weighted @ m.values[i]
    inside = possible(algebra, cells)
    assert np.allclose(algebra.histograms(ax, cells)[:, inside], expected_ax[:, inside])
    assert np.allclose(algebra.histograms(b, cells)[:, inside], expected_b[:, inside])


def crossed() -> tuple[Schema, list[MarginalQuery]]:
    """Three free attributes that no query keeps together, and a core attribute."""
    labels = ("0", "1", "2"), ("f", "m"), ("a", "b", "c"), ("no", "yes")
    schema = Schema("persons", ("size", "sex", "group", "status"), labels)
    names = ("total", "size", "sex * group", "size * status")
    coarse = MarginalQuery("coarse", ((0, 1, 1), (0, 1), (0,) * 3, (0, 1)))
    return schema, [*(marginal_query(schema, name) for name in names), coarse]


@pytest.mark.parametrize("asked", [None, "total", "sex", "group * status", "detailed"])
def test_what_is_carried_is_the_projection_of_all_on_what_is_measured_and_asked(asked):
    """Coordinates, information and Gram matrices, by a dense projection of every histogram on the
    span of the rows of queries."""
    schema, queries = crossed()
    nothing = np.zeros(schema.n_cells, dtype=np.int64)
    every = QueryAlgebra.build(schema, queries, nothing, nothing > 0)
    assert every.core == (0,)
    wanted = None if asked is None else [marginal_query(schema, asked)]
    algebra = every.restricted(queries, wanted)
    cells = np.arange(3)
    rng = np.random.default_rng(3)
    measured = {
        q.name: QueryMeasurement(q, rng.integers(-9, 9, (2, q.n_rows)), rng.uniform(0.1, 2, 2))
        for q in queries
    }
    (a, b), (all_a, all_b) = (one.information(measured, cells) for one in (algebra, every))
    x = rng.normal(size=(2, 3, every.n_coordinates))
    histograms = every.histograms(x, cells)
    carried = algebra.coordinates(histograms, cells)
    spans = [
        np.kron(np.eye(3), kept)
        for q in queries
        for w in (wanted or [marginal_query(schema, "detailed")])
        for kept in [free_rows(q, w)]
    ]
    span = np.vstack(spans)
    projector = np.linalg.pinv(span) @ span
    assert np.allclose(algebra.histograms(carried, cells), histograms @ projector)
    assert np.linalg.matrix_rank(span) == 3 * algebra.n_coordinates
    assert np.allclose(algebra.histograms(b, cells), every.histograms(all_b, cells) @ projector)
    assert len(a[0]) == len(algebra.components) == len(algebra.codes) + algebra.has_others
    for place, code in enumerate(algebra.codes):
        assert np.array_equal(a[:, place], all_a[:, code])
    assert not a[:, len(algebra.codes) :].any()
    together = np.sort(np.concatenate(algebra.components))
    assert np.array_equal(together, np.arange(algebra.n_coordinates))
    again = np.zeros_like(carried)
    for cube in algebra.cubes:
        again = cube.enter(cube.spread(carried), again)
    assert np.array_equal(again, carried)


def free_rows(measured: MarginalQuery, asked: MarginalQuery) -> np.ndarray:
    """Rows on the levels of the free attributes that both queries keep."""
    found = np.ones((1, 1))
    for axis in (1, 2, 3):
        size = len(measured.factors[axis])
        is_kept = measured.shape[axis] > 1 and asked.shape[axis] > 1
        found = np.kron(found, np.eye(size) if is_kept else np.ones((1, size)))
    return found


def test_all_is_carried_where_a_measured_query_keeps_every_free_attribute():
    algebra = algebra_of(PERSONS)
    queries = [marginal_query(PERSONS, name) for name in ASKED[PERSONS]]
    assert algebra.restricted(queries).sets is None
    assert not algebra.restricted(queries).has_others
    few = algebra.restricted(queries, [marginal_query(PERSONS, "hispanic")])
    assert (few.n_coordinates, len(few.components)) == (2, 2)


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
    parts = factor(labels, starts, weights)
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
