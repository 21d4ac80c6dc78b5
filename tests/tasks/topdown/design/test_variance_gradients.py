"""Variances and their derivatives against one dense matrix, and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.topdown.design.problem import (
    RequestedAreas,
    allocation_of,
    shares_of,
    to_fractions,
)
from spineflow.tasks.topdown.intervals.answers import ProductAnswers

from tests.tasks.topdown.design.small_program import (
    NAMES,
    QUERIES,
    SCHEMA,
    Small,
    random_allocation,
    small,
)

CASES = {
    "plain": {},
    "bypassed": {"bypassed": True},
    "states": {"states": True},
    "states and bypassed": {"states": True, "bypassed": True},
    "exact blocks": {"blocks_exact": True},
}


def asked_of(case: Small, seed: int) -> tuple[list[RequestedAreas], list[np.ndarray]]:
    """Two sums over core cells, of the geounits of each geolevel and of areas off the spine, and
    the areas of the blocks."""
    rng = np.random.default_rng(seed)
    areas = [case.spine.ancestors(name) for name in NAMES]
    off_spine = rng.integers(-1, 2, case.spine.n_blocks)
    off_spine[0] = 0
    areas.append(off_spine)
    core = ProductAnswers.of(case.algebra, marginal_query(SCHEMA, "votingage").matrix).core
    classed = case.measured.classed
    return [RequestedAreas(classed.areas(area), core) for area in areas], areas


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_variances_are_those_of_one_dense_matrix(name: str, seed: int) -> None:
    case, p = small(seed, **CASES[name]), random_allocation(seed)
    asked, areas = asked_of(case, seed)
    values, _ = case.measured.summed_variances(case.grams, case.kinds.precision(p), asked)
    covariance = case.covariance(p)
    # The answers by voting age and Hispanic origin are the two sums on both bases of the latter.
    query = marginal_query(SCHEMA, "votingage * hispanic").matrix.toarray()
    for area, value in zip(areas, values, strict=True):
        dense = 0.0
        for number in np.unique(area[area >= 0]):
            rows = np.kron((area == number).astype(float)[None], query)
            dense += np.trace(rows @ covariance @ rows.T)
        assert value.sum() == pytest.approx(dense, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_derivatives_are_those_of_finite_differences(name: str, seed: int) -> None:
    case, p = small(seed, **CASES[name]), random_allocation(seed)
    asked, _ = asked_of(case, seed)
    measured, grams, kinds = case.measured, case.grams, case.kinds

    def values(at: np.ndarray) -> np.ndarray:
        return measured.summed_variances(grams, kinds.precision(at), asked)[0]

    _, slopes = measured.summed_variances(grams, kinds.precision(p), asked)
    by_allocation = kinds.by_allocation(p, slopes)
    for place in np.ndindex(p.shape):
        step = np.zeros_like(p)
        step[place] = 1e-4 * p[place]
        difference = (values(p + step) - values(p - step)) / (2e-4 * p[place])
        scale = np.abs(by_allocation).max() + 1.0
        assert np.abs(difference - by_allocation[(..., *place)]).max() < 1e-4 * scale


def test_geounits_of_equal_structure_are_one_class() -> None:
    """However many blocks a county of equal blocks has, they are one class, and so are counties."""
    case = small(4)
    same = np.zeros_like(case.type_is_possible)
    same[:, 0] = True
    cells = same[:, case.algebra.cell_type] & case.algebra.is_possible
    classed = type(case.measured).build(case.spine, case.shares, cells).classed
    assert len(classed.rungs[0]) <= 2
    n_children = np.bincount(case.spine.geolevels[-1].parent)
    is_only = np.bincount(case.spine.geolevels[-2].parent)[case.spine.geolevels[-2].parent] == 1
    alike = set(zip(n_children.tolist(), is_only.tolist(), strict=True))
    assert len(classed.rungs[1]) == len(alike) < len(n_children)


@given(seed=st.integers(0, 10_000), denominator=st.sampled_from([101, 4096, 100_000]))
def test_fractions_add_to_one_and_are_near(seed: int, denominator: int) -> None:
    p = random_allocation(seed)
    fractions = to_fractions(p, denominator)
    assert sum(sum(row) for row in fractions) == 1
    near = np.array([[float(share) for share in row] for row in fractions])
    assert np.abs(near - p / p.sum()).max() < 1 / denominator
    of_geolevel, of_query = shares_of(fractions, NAMES, QUERIES)
    assert sum(of_geolevel.values()) == 1
    assert all(sum(shares.values()) == 1 for shares in of_query.values() if shares)
    assert allocation_of(of_geolevel, of_query, QUERIES) == pytest.approx(near, abs=1e-15)


def test_kinds_of_bypassed_geounits_have_the_shares_of_several_geolevels() -> None:
    case = small(2, bypassed=True)
    kinds = case.kinds
    assert (kinds.shares.sum(axis=1) > 1).any()
    p = random_allocation(2)
    precision = kinds.precision(p)
    for depth, shares, found in zip(kinds.depth, kinds.shares, precision, strict=True):
        assert found.sum() == pytest.approx(shares @ p.sum(axis=1))
        assert found / found.sum() == pytest.approx(p[depth] / p[depth].sum())
