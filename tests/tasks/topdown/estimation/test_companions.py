"""Companions for dependants: what a geounit must carry, against every choice of small areas, and
the moves that meet it among siblings, against every exchange."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.runs.errors import SolveFailed
from spineflow.tasks.topdown.estimation.problem import (
    NO_BOUND,
    LinearRows,
    QueryMeasurement,
    SiblingProblem,
)
from spineflow.tasks.topdown.estimation.siblings import Companions, Siblings, accompany

LOOSE = 7
"""Most people of an area without a bound, in enumerations."""


def areas_of(at_most: int, capacity: int | None) -> set[tuple[int, int]]:
    """All dependants and companions that one area may have."""
    most = LOOSE if capacity is None else capacity * (at_most + 1)
    pairs = itertools.product(range(most + 1), repeat=2)
    return {(d, p) for d, p in pairs if d + p <= most and d <= at_most * p}


@given(st.integers(1, 3), st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_sums_that_meet_the_condition_are_those_that_areas_can_have(at_most, capacities) -> None:
    possible = [areas_of(at_most, capacity) for capacity in capacities]
    sums = {tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(*possible)}
    assert sums == areas_of(at_most, sum(capacities))


@given(st.integers(1, 3), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 12))
def test_companions_suffice_for_units_of_exact_totals(at_most, people, companions) -> None:
    """However the people are divided among the units, whose numbers nothing can change."""
    rule = Companions(np.zeros(0, bool), np.zeros(0, bool), at_most, np.array([len(people)]))
    least_of_units = sum(math.ceil(t / (at_most + 1)) for t in people)
    if companions >= rule.least(np.array([sum(people)]))[0]:
        assert companions >= least_of_units


@st.composite
def families(draw, *, most_children: int = 4):
    """Children whose parent meets the condition, with noisy answers and counts that need not.

    Cells: two of dependants, two of companions, one of others; types: people, others.
    """
    at_most = draw(st.integers(1, 3))
    c = draw(st.integers(1, most_children))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(0, draw(st.integers(1, 4)) + 1, (c, 5))
    n_below = rng.integers(0, 2) * rng.integers(0, 2, c)
    kind = draw(st.sampled_from(["free", "bounded", "rows", "exact", "groups"]))
    lower, upper = np.zeros((c, 2), dtype=np.int64), np.full((c, 2), NO_BOUND)
    people = x[:, :4].sum(axis=1)
    rows: tuple[LinearRows, ...] = ()
    group, totals = None, None
    if kind != "exact":
        n_below = np.zeros(c, dtype=np.int64)
    if kind in ("bounded", "rows"):
        size = at_most + 1
        most = -(-people // size) * size
        if kind == "bounded":
            upper[:, 0] = most
        else:
            from scipy import sparse

            matrix = sparse.csr_array(np.array([[1.0, 1, 1, 1, 0]]))
            rows = (LinearRows("room", matrix, np.arange(c), most[:, None] * 0, most[:, None]),)
    if kind == "exact":
        group, totals = np.arange(c), x.sum(axis=1)
    if kind == "groups":
        group = np.unique(rng.integers(0, 2, c), return_inverse=True)[1].reshape(-1)
        totals = np.bincount(group, x.sum(axis=1)).astype(np.int64)
    # Companions of the parent: as many as its condition asks for, and perhaps more.
    above = c + int(n_below.sum()) if kind in ("exact", "groups") else 0
    t = int(people.sum())
    least = min(t, -(-(t + at_most * above) // (at_most + 1)))
    while x[:, 2:4].sum() < least:
        child, cell = np.argwhere(x[:, :2] > 0)[0]
        x[child, cell] -= 1
        x[child, cell + 2] += 1
    problem = SiblingProblem(
        [str(child) for child in range(c)],
        np.arange(5),
        np.array([0, 0, 0, 0, 1]),
        x.sum(axis=0),
        lower,
        upper,
        None if group is None else (group, totals),
        rows,
    )
    queries = [
        MarginalQuery("total", ((0, 0, 0, 0, 0),)),
        MarginalQuery("age", ((0, 0, 1, 1, 2),)),
        MarginalQuery("detailed", ((0, 1, 2, 3, 4),)),
    ]
    measurements = {
        query.name: QueryMeasurement(
            query,
            query.answer(x) + rng.integers(-3, 4, (c, query.n_rows)),
            rng.choice([0.0, 0.25, 1.0], c),
        )
        for query in queries
    }
    dependants = np.array([True, True, False, False, False])
    companions = np.array([False, False, True, True, False])
    return problem, x, measurements, Companions(dependants, companions, at_most, n_below)


@given(families())
def test_every_child_has_companions_and_nothing_else_changes(drawn) -> None:
    problem, x, measurements, rule = drawn
    siblings = Siblings(problem, x, measurements)
    accompany(siblings, rule, "parent")
    found = siblings.x
    assert (rule.missing(found) <= 0).all()
    assert (found >= 0).all()
    assert (found.sum(axis=0) == problem.parent_counts).all()
    assert (found[:, 4] == x[:, 4]).all()
    people = found[:, :4].sum(axis=1)
    assert (people <= problem.upper[:, 0]).all()
    for rows in problem.rows:
        assert (rows.sums(found) <= rows.upper).all()
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        assert (np.bincount(group, found.sum(axis=1)) == totals).all()
    if (rule.missing(x) <= 0).all():
        assert (found == x).all()


def distance(x: np.ndarray, measurements) -> float:
    """F of the module `siblings`, by its definition."""
    return sum(
        float((own.precision[:, None] * (own.query.answer(x) - own.values) ** 2).sum())
        for own in measurements.values()
    )


@given(families(most_children=3))
def test_a_single_swap_is_the_nearest_to_the_noisy_answers(drawn) -> None:
    problem, x, measurements, rule = drawn
    siblings = Siblings(problem, x, measurements)
    accompany(siblings, rule, "parent")
    if siblings.moves != 2 or np.abs(siblings.x - x).sum() != 4:
        return
    people = x[:, :4].sum(axis=1)
    if (siblings.x[:, :4].sum(axis=1) != people).any():
        return
    swaps = []
    for a, b in itertools.permutations(range(len(x)), 2):
        for minor, adult in itertools.product((0, 1), (2, 3)):
            swapped = x.copy()
            swapped[a, minor] -= 1
            swapped[b, minor] += 1
            swapped[b, adult] -= 1
            swapped[a, adult] += 1
            if (swapped >= 0).all() and (rule.missing(swapped) <= 0).all():
                swaps.append(distance(swapped, measurements))
    assert distance(siblings.x, measurements) == pytest.approx(min(swaps))


def test_a_root_without_companions_gets_one_where_it_is_nearest() -> None:
    cells = np.arange(4)
    query = MarginalQuery("detailed", ((0, 1, 2, 3),))
    measured = {"detailed": QueryMeasurement(query, np.array([[2, 3, -5, 1]]), np.ones(1))}
    problem = SiblingProblem(
        ["0"],
        cells,
        np.zeros(4, dtype=np.int64),
        None,
        np.zeros((1, 1), dtype=np.int64),
        np.full((1, 1), NO_BOUND),
    )
    siblings = Siblings(problem, np.array([[3, 3, 0, 0]]), measured)
    accompany(siblings, Companions(cells < 2, cells >= 2, 9, np.zeros(1, np.int64)), "root")
    assert siblings.x.tolist() == [[2, 3, 0, 1]]


def test_a_parent_without_companions_is_refused() -> None:
    problem = SiblingProblem(
        ["a", "b"],
        np.arange(2),
        np.zeros(2, dtype=np.int64),
        np.array([2, 0]),
        np.zeros((2, 1), dtype=np.int64),
        np.full((2, 1), NO_BOUND),
    )
    rule = Companions(np.array([True, False]), np.array([False, True]), 9, np.zeros(2, np.int64))
    with pytest.raises(SolveFailed, match="children of geounit 7 cannot all have companions"):
        accompany(Siblings(problem, np.array([[1, 0], [1, 0]]), {}), rule, "7")
