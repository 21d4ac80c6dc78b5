"""Estimates, covariances and areas off the spine against one dense least-squares problem."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.census.queries import MarginalQuery, Schema, marginal_query
from spineflow.tasks.topdown.estimation import spine_estimates
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra
from spineflow.tasks.topdown.intervals.answers import (
    AnswerCovariances,
    LevelInput,
    ProductAnswers,
    SpinePosterior,
    covariances_of,
    estimates_of,
)
from spineflow.tasks.topdown.intervals.areas import BlockAreas, area_covariances, area_estimates

from tests.tasks.topdown.estimation.test_spine_estimates import (
    CASES,
    SMALL,
    SmallSpine,
    by_dense_least_squares,
    small_spine,
)
from tests.tasks.topdown.intervals.answered import answers_of, matrices


def algebra_of(spine: SmallSpine) -> QueryAlgebra:
    """With every component."""
    measured = sorted(measured_of(spine), key=lambda q: q.name)
    return QueryAlgebra.build(spine.schema, measured, spine.type_of_cell, spine.forbidden)


def measured_of(spine: SmallSpine) -> set[MarginalQuery]:
    return {m.query for level in spine.measurements for m in level.values()}


def posterior_of(spine: SmallSpine, algebra: QueryAlgebra | None = None) -> SpinePosterior:

    def in_two(measured, n):
        """The answers of geounits in two runs, as shards hold them."""
        for start, stop in ((0, n // 2), (n // 2, n)) if n > 1 else ((0, n),):
            part = slice(start, stop)
            taken = {
                name: QueryMeasurement(m.query, m.values[part], m.precision[part])
                for name, m in measured.items()
            }
            yield start, stop, taken

    levels = [
        LevelInput(np.maximum(parent, 0), have, partial(in_two, measured, len(have)), totals)
        for parent, have, measured, totals in zip(
            spine.parents, spine.type_is_possible, spine.measurements, spine.totals, strict=True
        )
    ]
    if spine.state is not None:
        states = LevelInput(
            levels[1].parent,
            levels[1].type_is_possible,
            levels[1].measured,
            levels[1].totals,
            (spine.state, spine.state_totals),
        )
        levels[1] = states
    return SpinePosterior.up(algebra or algebra_of(spine), levels)


def dense_covariance(spine: SmallSpine) -> tuple[list[np.ndarray], np.ndarray]:
    """0/1 matrices from blocks to geounits of every geolevel, and the covariance of all block
    cells `(n_blocks * n_cells,) * 2` by one dense problem, none of what nothing determines."""
    n_blocks, n_cells = len(spine.parents[-1]), spine.schema.n_cells
    possible = spine.possible[-1].ravel()
    incidence = [np.eye(n_blocks)]
    for parent in reversed(spine.parents[1:]):
        up = np.zeros((parent.max() + 1, len(parent)))
        up[parent, np.arange(len(parent))] = 1.0
        incidence.insert(0, up @ incidence[0])
    information = np.zeros((possible.size, possible.size))
    exact = []
    for above, measured, totals in zip(incidence, spine.measurements, spine.totals, strict=True):
        for m in measured.values():
            q = m.query.matrix.toarray().astype(float)
            weight = above.T @ (m.precision[:, None] * above)
            information += np.kron(weight, q.T @ q)
        if totals is not None:
            exact.append(np.kron(above, np.ones(n_cells)))
    if spine.state is not None:
        states = np.zeros((len(spine.state_totals), len(spine.state)))
        states[spine.state, np.arange(len(spine.state))] = 1.0
        exact.append(np.kron(states @ incidence[1], np.ones(n_cells)))
    information = information[np.ix_(possible, possible)]
    null = np.eye(possible.sum())
    if exact:
        _, values, vectors = np.linalg.svd(np.vstack(exact)[:, possible])
        null = vectors[(values > 1e-9 * values[0]).sum() :].T
    inner = null @ np.linalg.pinv(null.T @ information @ null, 1e-10, True) @ null.T
    covariance = np.zeros((possible.size, possible.size))
    covariance[np.ix_(possible, possible)] = inner
    return incidence, covariance


def by_cells(spine: SmallSpine, weights: np.ndarray, covariance: np.ndarray, name: str):
    """Dense covariance of the answers of sums of blocks with these weights."""
    matrix = np.kron(weights[None], marginal_query(spine.schema, name).matrix.toarray())
    return matrix @ covariance @ matrix.T


def of_areas(spine: SmallSpine, area: np.ndarray, name: str) -> AnswerCovariances:
    """Of areas, by the area of each block, -1 for none."""
    posterior = posterior_of(spine)
    answers = ProductAnswers.of(posterior.algebra, marginal_query(spine.schema, name).matrix)
    areas = BlockAreas.of_pairs(int(area.max()) + 1, np.arange(len(area)), area)
    return area_covariances(posterior, answers, areas)


NAMES = {"persons": ("total", "hhgq", "votingage * hispanic", "detailed"), "units": ("detailed",)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_estimates_and_covariances_are_those_of_dense_least_squares(case, seed):
    spine = small_spine(seed, **CASES[case])
    expected, free = by_dense_least_squares(spine)
    assert free.shape[1] == 0
    incidence, covariance = dense_covariance(spine)
    seen = []
    for depth, level in posterior_of(spine).down():
        seen.append(depth)
        assert np.abs(level.means() - expected[depth]).max() < 1e-8
        rows = np.arange(len(level.type_is_possible))
        for name in NAMES[spine.schema.universe]:
            query = marginal_query(spine.schema, name)
            estimate, found, is_known = answers_of(level, query, rows)
            assert is_known.all()
            assert np.abs(estimate - query.answer(expected[depth])).max() < 1e-8
            dense = [by_cells(spine, incidence[depth][row], covariance, name) for row in rows]
            assert np.abs(found - np.array([np.diag(part) for part in dense])).max() < 1e-8
            answers = ProductAnswers.of(level.algebra, query.matrix)
            whole = matrices(covariances_of(level, answers, rows))
            assert np.abs(whole - np.array(dense)).max() < 1e-8
    assert seen == list(range(len(spine.parents)))


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_in_memory_goes_through_files_some_geounits_at_a_time(
    case, monkeypatch: pytest.MonkeyPatch
):
    """Every array in a temporary file, and two geounits at once, against arrays in memory."""
    spine = small_spine(1, **CASES[case])
    within = [(depth, level.means()) for depth, level in posterior_of(spine).down()]
    monkeypatch.setattr(spine_estimates, "LARGE", 0)
    monkeypatch.setattr(spine_estimates, "ROWS_AT_ONCE", 2)
    through = list(posterior_of(spine).down())
    assert any(
        isinstance(group.estimates.mean, np.memmap)
        for _, level in through
        for group in level.groups
    )
    for (depth, means), (again, level) in zip(within, through, strict=True):
        assert depth == again and np.abs(level.means() - means).max() < 1e-9
    blocks = np.arange(len(spine.parents[-1]))
    one = posterior_of(spine).steps[-1].parts.covariances(blocks)
    monkeypatch.undo()
    other = posterior_of(spine).steps[-1].parts.covariances(blocks)
    assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_areas_off_the_spine_are_those_of_dense_least_squares(case, seed):
    spine = small_spine(seed, **CASES[case])
    expected, _ = by_dense_least_squares(spine)
    _, covariance = dense_covariance(spine)
    rng = np.random.default_rng(seed)
    n_blocks = len(spine.parents[-1])
    inside = rng.random((3, n_blocks)) < 0.5
    inside[:, seed % n_blocks] = True
    areas = BlockAreas.of_pairs(3, *np.nonzero(inside)[::-1])
    posterior = posterior_of(spine)
    *_, (_, blocks) = posterior.down()
    for name in NAMES[spine.schema.universe]:
        query = marginal_query(spine.schema, name)
        answers = ProductAnswers.of(posterior.algebra, query.matrix)
        found = area_covariances(posterior, answers, areas)
        assert found.is_known().all()
        estimates = area_estimates(blocks, answers, areas)
        assert np.abs(estimates - query.answer(inside @ expected[-1])).max() < 1e-8
        for number in range(3):
            dense = by_cells(spine, inside[number].astype(float), covariance, name)
            assert np.abs(matrices(found)[number] - dense).max() < 1e-8


@pytest.mark.parametrize("case", ["plain", "state totals and bypassed", "exact totals"])
def test_what_two_areas_have_in_common_is_that_of_dense_least_squares(case):
    """Areas that overlap, by the covariance of every answer of one with every answer of another."""
    spine = small_spine(4, **CASES[case])
    _, covariance = dense_covariance(spine)
    rng = np.random.default_rng(1)
    inside = rng.random((3, len(spine.parents[-1]))) < 0.5
    inside[:, 0] = True
    areas = BlockAreas.of_pairs(3, *np.nonzero(inside)[::-1])
    posterior = posterior_of(spine)
    query = marginal_query(spine.schema, "votingage * hispanic")
    answers = ProductAnswers.of(posterior.algebra, query.matrix)
    first, second = np.array([0, 2, 1]), np.array([1, 0, 1])
    found = area_covariances(posterior, answers, areas.tuples((first, second)))
    one, other = np.indices((query.n_rows, query.n_rows)).reshape(2, -1)
    q = query.matrix.toarray()
    for place, (a, b) in enumerate(zip(first, second, strict=True)):
        left, right = (np.kron(inside[k][None].astype(float), q) for k in (a, b))
        dense = (left @ covariance @ right.T).ravel()
        between = found.covariance((0, one), (1, other))[place]
        assert np.abs(between - dense).max() < 1e-8
        own = np.diag(right @ covariance @ right.T)
        assert np.abs(found.variances(1)[place] - own).max() < 1e-8


def test_answers_may_take_levels_together_that_no_measured_query_does():
    """Queries of a schema whose free attribute has four levels, and products of sets of levels."""
    labels = SMALL.levels_of[0], SMALL.levels_of[1], ("a", "b", "c", "d")
    schema = Schema("persons", SMALL.attributes, labels)
    queries = ("total", "hhgq", "votingage * hispanic", "hispanic", "detailed")
    spine = small_spine(2, schema=schema, queries=queries, fanouts=(1, 2, 2))
    expected, _ = by_dense_least_squares(spine)
    incidence, covariance = dense_covariance(spine)
    posterior = posterior_of(spine)
    assert posterior.algebra.free == (2,)
    coarse = MarginalQuery("", (tuple(range(8)), (0, 0), (0, 1, 1, 0)))
    cells = np.indices(schema.shape).reshape(3, -1)
    masks = np.array(
        [
            (cells[1] == 1) & (cells[2] > 0),
            np.isin(cells[0], (0, 4)) & np.isin(cells[2], (0, 3)),
            cells[2] >= 0,
        ]
    )
    counted = np.vstack([masks, coarse.matrix.toarray()]).astype(float)
    both = ProductAnswers.of(posterior.algebra, sparse.csr_array(counted))
    for depth, level in posterior.down():
        rows = np.arange(len(level.type_is_possible))
        estimate = estimates_of(level, both, rows)
        assert np.abs(estimate - expected[depth] @ counted.T).max() < 1e-8
        found = matrices(covariances_of(level, both, rows))
        for row in rows:
            matrix = np.kron(incidence[depth][row][None], counted)
            assert np.abs(found[row] - matrix @ covariance @ matrix.T).max() < 1e-8
    with pytest.raises(ValueError, match="product of sets"):
        ProductAnswers.of(posterior.algebra, sparse.csr_array(masks[:2].any(axis=0)[None]))


def test_what_nothing_measured_determines_is_said_to_be_unknown():
    spine = small_spine(1, block_queries=("total",))
    levels = dict(posterior_of(spine).down())
    blocks = levels[len(spine.parents) - 1]
    rows = np.arange(len(blocks.type_is_possible))
    totals = answers_of(blocks, marginal_query(spine.schema, "total"), rows)
    assert totals[2].all() and (totals[1] > 0).all()
    detailed = answers_of(blocks, marginal_query(spine.schema, "detailed"), rows)
    assert not detailed[2].all()
    area = np.zeros(len(rows), dtype=np.int64)
    area[0] = -1
    assert not of_areas(spine, area, "detailed").is_known().all()
    assert of_areas(spine, area, "total").is_known().all()
