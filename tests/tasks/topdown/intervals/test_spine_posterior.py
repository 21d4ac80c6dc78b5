"""Estimates, covariances and areas off the spine against one dense least-squares problem."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra
from spineflow.tasks.topdown.intervals.answers import answers_of, covariances_of_answers
from spineflow.tasks.topdown.intervals.areas import area_covariances
from spineflow.tasks.topdown.intervals.spine_posterior import LevelInput, SpinePosterior

from tests.tasks.topdown.estimation.test_spine_estimates import (
    CASES,
    SmallSpine,
    by_dense_least_squares,
    small_spine,
)


def posterior_of(spine: SmallSpine) -> SpinePosterior:
    asked = {m.query for level in spine.measurements for m in level.values()}
    algebra = QueryAlgebra.build(
        spine.schema, sorted(asked, key=lambda q: q.name), spine.type_of_cell, spine.forbidden
    )

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
            spine.parents, spine.can_have, spine.measurements, spine.totals, strict=True
        )
    ]
    if spine.state is not None:
        states = LevelInput(
            levels[1].parent,
            levels[1].can_have,
            levels[1].measured,
            levels[1].totals,
            spine.state,
            spine.state_totals,
        )
        levels[1] = states
    return SpinePosterior.up(algebra, levels)


def dense_covariance(spine: SmallSpine) -> tuple[list[np.ndarray], np.ndarray]:
    """0/1 matrices from blocks to geounits of every geolevel, and the covariance of all block
    cells `(n_blocks * n_cells,) * 2` by one dense problem."""
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
    inner = null @ np.linalg.solve(null.T @ information @ null, null.T)
    covariance = np.zeros((possible.size, possible.size))
    covariance[np.ix_(possible, possible)] = inner
    return incidence, covariance


def by_cells(spine: SmallSpine, weights: np.ndarray, covariance: np.ndarray, name: str):
    """Dense covariance of the answers of sums of blocks with these weights."""
    matrix = np.kron(weights[None], marginal_query(spine.schema, name).matrix.toarray())
    return matrix @ covariance @ matrix.T


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
        rows = np.arange(len(level.can_have))
        for name in NAMES[spine.schema.universe]:
            query = marginal_query(spine.schema, name)
            estimate, found, is_known = answers_of(level, query, rows)
            assert is_known.all()
            assert np.abs(estimate - query.answer(expected[depth])).max() < 1e-8
            dense = [by_cells(spine, incidence[depth][row], covariance, name) for row in rows]
            assert np.abs(found - np.array([np.diag(part) for part in dense])).max() < 1e-8
            whole = covariances_of_answers(level, query, rows)
            assert np.abs(whole - np.array(dense)).max() < 1e-8
    assert seen == list(range(len(spine.parents)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_areas_off_the_spine_are_those_of_dense_least_squares(case, seed):
    spine = small_spine(seed, **CASES[case])
    _, covariance = dense_covariance(spine)
    posterior = posterior_of(spine)
    rng = np.random.default_rng(seed)
    area = rng.integers(-1, 3, len(spine.parents[-1]))
    for name in NAMES[spine.schema.universe]:
        query = marginal_query(spine.schema, name)
        found, is_known = area_covariances(posterior, query, area, 3)
        assert is_known.all()
        for number in range(3):
            dense = by_cells(spine, (area == number).astype(float), covariance, name)
            assert np.abs(found[number] - dense).max() < 1e-8


def test_what_nothing_measured_determines_is_said_to_be_unknown():
    spine = small_spine(1, block_queries=("total",))
    levels = dict(posterior_of(spine).down())
    blocks = levels[len(spine.parents) - 1]
    rows = np.arange(len(blocks.can_have))
    totals = answers_of(blocks, marginal_query(spine.schema, "total"), rows)
    assert totals[2].all() and (totals[1] > 0).all()
    detailed = answers_of(blocks, marginal_query(spine.schema, "detailed"), rows)
    assert not detailed[2].all()
    area = np.zeros(len(rows), dtype=np.int64)
    area[0] = -1
    found, is_known = area_covariances(
        posterior_of(spine), marginal_query(spine.schema, "detailed"), area, 1
    )
    assert not is_known.all()
    found, is_known = area_covariances(
        posterior_of(spine), marginal_query(spine.schema, "total"), area, 1
    )
    assert is_known.all()
