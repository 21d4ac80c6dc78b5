"""Areas that are left empty or filled by noisy answers and public facts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    LinearRows,
    QueryMeasurement,
    SiblingProblem,
)
from spineflow.tasks.topdown.estimation.siblings import (
    LEAST,
    MOST,
    Siblings,
    avoid_ghosts,
    expected_counts,
    probability_of_none,
)

QUERIES = (
    MarginalQuery("total", ((0, 0, 0),)),
    MarginalQuery("kind", ((0, 0, 1),)),
    MarginalQuery("detailed", ((0, 1, 2),)),
)


@given(st.floats(0.05, 7.9), st.floats(-30, 30), st.one_of(st.floats(2.0, 100.0), st.just(np.inf)))
def test_the_probability_is_that_of_the_two_laws(mean, noisy, variance) -> None:
    n = np.arange(400)
    weights = stats.poisson.pmf(n, mean)
    if np.isfinite(variance):
        weights = weights * np.exp(-((noisy - n) ** 2 - noisy**2) / (2 * variance))
    expected = weights[0] / weights.sum()
    found = probability_of_none(np.array([mean]), np.array([noisy]), np.array([variance]))
    assert found[0] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@st.composite
def families(draw):
    """Children of two types of cells, two and one, and noisy answers near their counts."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    c = draw(st.integers(2, 6))
    x = rng.poisson(draw(st.sampled_from([0.2, 1.0, 3.0])), (c, 3))
    kind = draw(st.sampled_from(["free", "bounded", "rows", "groups", "exact"]))
    lower, upper = np.zeros((c, 2), dtype=np.int64), np.full((c, 2), NO_BOUND)
    rows: tuple[LinearRows, ...] = ()
    group, totals = None, None
    if kind == "bounded":
        upper[:, 0] = x[:, :2].sum(axis=1) + rng.integers(0, 6, c)
        lower[:, 1] = np.minimum(x[:, 2], rng.integers(0, 2, c))
    if kind == "rows":
        matrix = sparse.csr_array(np.array([[1.0, 1, 1]]))
        most = x.sum(axis=1)[:, None] + rng.integers(0, 4, (c, 1))
        rows = (LinearRows("room", matrix, np.arange(c), most * 0, most),)
    if kind == "groups":
        group = np.unique(rng.integers(0, 2, c), return_inverse=True)[1].reshape(-1)
    if kind == "exact":
        group = np.arange(c)
    if group is not None:
        totals = np.bincount(group, x.sum(axis=1)).astype(np.int64)
    problem = SiblingProblem(
        [str(child) for child in range(c)],
        np.arange(3),
        np.array([0, 0, 1]),
        x.sum(axis=0),
        lower,
        upper,
        None if group is None else (group, totals),
        rows,
    )
    measurements = {
        query.name: QueryMeasurement(
            query,
            query.answer(x) + rng.normal(0, 2, (c, query.n_rows)).round().astype(np.int64),
            rng.choice([0.0, 0.25, 1.0], c),
        )
        for query in QUERIES
    }
    return problem, x, measurements


def chances(problem: SiblingProblem, measurements) -> tuple[np.ndarray, np.ndarray]:
    """P(0) of every child by weighted least squares, and whether it may be emptied or filled."""
    found = []
    expected = expected_counts(problem)
    mean = expected.sum(axis=1)
    for child, own in enumerate(expected):
        design, answers, weights = [], [], []
        for m in measurements.values():
            design += (m.query.matrix @ (own / max(mean[child], 1e-9))).tolist()
            answers += m.values[child].tolist()
            weights += [m.precision[child]] * m.query.n_rows
        information = float(np.square(design) @ weights)
        variance = 1 / information if information else np.inf
        noisy = float((np.array(design) * answers) @ weights) / information if information else 0.0
        chance = 0.0
        if 0 < mean[child] < MOST:
            one = np.array([mean[child]]), np.array([noisy]), np.array([variance])
            chance = float(probability_of_none(*one)[0])
        found.append(chance)
    return np.array(found), (mean > 0) & (mean < MOST) & ~problem.lower.any(axis=1)


@given(families())
def test_areas_follow_the_rule_where_nothing_prevents_it(drawn) -> None:
    problem, x, measurements = drawn
    siblings = Siblings(problem, x, measurements)
    avoid_ghosts(siblings)
    found = siblings.x
    assert (found >= 0).all()
    assert (found.sum(axis=0) == problem.parent_counts).all()
    for kind, cells in enumerate(([0, 1], [2])):
        of_type = found[:, cells].sum(axis=1)
        assert (of_type <= problem.upper[:, kind]).all()
        assert (of_type >= problem.lower[:, kind]).all()
    for rows in problem.rows:
        assert (rows.sums(found) <= rows.upper).all()
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        assert (np.bincount(group, found.sum(axis=1)) == totals).all()
    assert (found == x).all() or siblings.moves > 0
    chance, is_free = chances(problem, measurements)
    is_empty = (chance >= LEAST) & is_free
    if problem.grouped_totals is None and not problem.rows and (problem.upper == NO_BOUND).all():
        if not is_empty.all():
            assert not found[is_empty].any()
        if (found[~is_empty].sum(axis=1) > 1).any():
            assert found[is_free & ~is_empty].any(axis=1).all()


@given(families())
def test_an_area_that_must_have_records_or_cannot_be_empty_stays(drawn) -> None:
    problem, x, measurements = drawn
    siblings = Siblings(problem, x, measurements)
    avoid_ghosts(siblings)
    _, is_free = chances(problem, measurements)
    was_filled = x.any(axis=1) & ~is_free
    assert siblings.x[was_filled].any(axis=1).all()


def test_homes_decide_where_noise_does_not() -> None:
    """Without measurements an area with one of nine homes is empty, one with eight is not."""
    problem = SiblingProblem(
        ["a", "b"],
        np.arange(1),
        np.zeros(1, dtype=np.int64),
        np.array([9]),
        np.zeros((2, 1), dtype=np.int64),
        np.array([[20], [160]]),
    )
    assert expected_counts(problem)[:, 0].tolist() == [1.0, 8.0]
    for x in ([[4], [5]], [[0], [9]]):
        siblings = Siblings(problem, np.array(x), {})
        avoid_ghosts(siblings)
        assert siblings.x.tolist() == [[0], [9]]
