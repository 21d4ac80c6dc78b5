"""The projections against the published loop, against brute force and against HiGHS."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from spineflow.tasks.solvers.highs import solve
from spineflow.tasks.trips.estimation.estimate import MeasuredLevel, tree_least_squares
from spineflow.tasks.trips.estimation.projection import integer_projection

chebyshev_projection = integer_projection
euclidean_projection = partial(integer_projection, is_euclidean=True)


def algorithm_2(x: list[int], c: int, *, ascending: bool) -> list[int]:
    """Algorithm 2 of InfTDA, line by line, on Python's integers."""
    d = len(x)
    missing = c - sum(x)
    z = [max(-(-missing // d), -value) for value in x]
    t = max(abs(value) for value in z)
    order = sorted(range(d), key=lambda i: x[i] if ascending else -x[i])
    j = 0
    while sum(z) > missing:
        delta = sum(z) - missing
        i = order[j]
        z[i] = max(z[i] - delta, -x[i], -t)
        j = (j + 1) % d
        if j == 0:
            t += 1
    return [value + change for value, change in zip(x, z, strict=True)]


def project(project_segments, x: list[int], c: int, *, ascending: bool = True) -> list[int]:
    return project_segments(
        np.array(x), np.array([0, len(x)]), np.array([c]), smallest_first=ascending
    ).tolist()


VECTORS = st.one_of(
    st.lists(st.integers(-6, 6), min_size=1, max_size=8),
    st.lists(st.integers(-60, 90), min_size=1, max_size=60),
    st.lists(st.sampled_from([-9, -1, 0, 0, 1, 40]), min_size=1, max_size=40),
)
TOTALS = st.one_of(st.integers(0, 12), st.integers(0, 900))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(VECTORS, TOTALS, st.booleans())
def test_closed_form_is_the_published_loop(x: list[int], c: int, ascending: bool) -> None:
    expected = algorithm_2(x, c, ascending=ascending)
    assert project(chebyshev_projection, x, c, ascending=ascending) == expected


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-9, 12), min_size=1, max_size=4), st.integers(0, 14), st.booleans())
def test_euclidean_projection_is_the_best_integer_point(
    x: list[int], c: int, ascending: bool
) -> None:
    y = project(euclidean_projection, x, c, ascending=ascending)
    assert min(y) >= 0 and sum(y) == c
    points = (p for p in itertools.product(range(c + 1), repeat=len(x)) if sum(p) == c)
    best = min(sum((a - b) ** 2 for a, b in zip(x, p, strict=True)) for p in points)
    assert sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) == best


def integer_optimum(x: np.ndarray, c: int) -> float:
    """min max |x - y| by HiGHS's branch and bound: columns y, then alpha."""
    d = x.size
    matrix = np.zeros((2 * d + 1, d + 1))
    matrix[0, :d] = 1
    matrix[1 : d + 1, :d] = matrix[d + 1 :, :d] = np.eye(d)
    matrix[1 : d + 1, d], matrix[d + 1 :, d] = -1, 1
    lower = np.concatenate([[c], np.full(d, -np.inf), x])
    upper = np.concatenate([[c], x, np.full(d, np.inf)])
    cost = np.zeros(d + 1)
    cost[d] = 1
    free = np.full(d + 1, np.inf)
    integral = np.ones(d + 1, dtype=bool)
    rows = sparse.csr_array(matrix)
    return solve(cost, rows, lower, upper, np.zeros(d + 1), free, integral=integral).objective


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-30, 30), min_size=1, max_size=12), st.integers(0, 90))
def test_chebyshev_distance_is_the_integer_optimum(x: list[int], c: int) -> None:
    optimum = integer_optimum(np.array(x), c)
    for ascending in (True, False):
        y = project(chebyshev_projection, x, c, ascending=ascending)
        assert min(y) >= 0 and sum(y) == c
        assert max(abs(a - b) for a, b in zip(x, y, strict=True)) == pytest.approx(optimum)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("projection", [chebyshev_projection, euclidean_projection])
def test_segments_do_not_touch_each_other(projection, ascending: bool) -> None:
    random = np.random.default_rng(1)
    sizes = np.array([1, 3, 0, 200, 25, 24, 2])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = random.integers(-50, 50, size=offsets[-1])
    totals = np.array([7, 0, 0, 900, 31, 2, 5])
    whole = projection(values, offsets, totals, smallest_first=ascending)
    for start, stop, total in zip(offsets, offsets[1:], totals, strict=False):
        own = values[start:stop]
        bounds, count = np.array([0, own.size]), np.array([total])
        alone = projection(own, bounds, count, smallest_first=ascending)
        assert np.array_equal(whole[start:stop], alone)


def test_the_order_decides_who_is_removed() -> None:
    x = [1, 1, 1, 30]
    assert project(chebyshev_projection, x, 31) == [0, 0, 1, 30]
    assert project(chebyshev_projection, x, 31, ascending=False) == [0, 1, 1, 29]


def test_impossible_parents_are_refused() -> None:
    one, none = np.array([0, 1]), np.array([0, 0])
    with pytest.raises(ValueError, match="negative"):
        chebyshev_projection(np.array([1]), one, np.array([-1]))
    with pytest.raises(ValueError, match="no children"):
        chebyshev_projection(np.zeros(0, dtype=int), none, np.array([1]))


NONE = np.zeros(0, dtype=np.int64)


def random_tree(random: np.random.Generator, *, root_variance: float) -> list[MeasuredLevel]:
    """Three levels below a root; about half of the nodes above the leaves were not refined."""
    levels = [MeasuredLevel(np.array([100]), root_variance, NONE, np.zeros(1, dtype=np.int64))]
    for variance in (3.0, 1.5, 7.0):
        n_above = levels[-1].values.size
        kept = np.flatnonzero(random.random(n_above) < 0.6) if n_above > 1 else np.array([0])
        kept = kept if kept.size else np.array([n_above - 1])
        offsets = np.concatenate([[0], np.cumsum(random.integers(1, 5, size=kept.size))])
        values = random.integers(-5, 40, size=offsets[-1])
        levels.append(MeasuredLevel(values, variance, kept, offsets))
    return levels


def dense(levels: list[MeasuredLevel]) -> list[np.ndarray]:
    """Weighted least squares with the finest measured nodes as unknowns."""
    starts = np.cumsum([0, *(level.values.size for level in levels)])
    n = starts[-1]
    children: dict[int, list[int]] = {}
    for number, level in enumerate(levels[1:], start=1):
        for family, parent in enumerate(level.parent):
            own = np.arange(level.offsets[family], level.offsets[family + 1])
            children[starts[number - 1] + parent] = (starts[number] + own).tolist()
    unknown = [node for node in range(n) if node not in children]
    design = np.zeros((n, len(unknown)))
    for node in reversed(range(n)):
        if node in children:
            design[node] = design[children[node]].sum(axis=0)
        else:
            design[node, unknown.index(node)] = 1
    values = np.concatenate([level.values for level in levels]).astype(float)
    variance = np.repeat(
        [level.variance or 1e-10 for level in levels], [level.values.size for level in levels]
    )
    weight = 1 / np.sqrt(variance)
    solution = np.linalg.lstsq(design * weight[:, None], values * weight, rcond=None)[0]
    return np.split(design @ solution, starts[1:-1])


@pytest.mark.parametrize("root_variance", [0.0, 2.0, 1e9])
@pytest.mark.parametrize("seed", range(8))
def test_two_passes_solve_the_weighted_problem(root_variance: float, seed: int) -> None:
    levels = random_tree(np.random.default_rng(seed), root_variance=root_variance)
    found = tree_least_squares(levels)
    for ours, theirs in zip(found, dense(levels), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    for above, below, level in zip(found, found[1:], levels[1:], strict=False):
        sums = np.add.reduceat(below, level.offsets[:-1])
        assert sums == pytest.approx(above[level.parent])


def test_exact_measurements_stay() -> None:
    levels = random_tree(np.random.default_rng(3), root_variance=1.0)
    for position in range(len(levels) - 2, -1, -1):
        below, level = levels[position + 1], levels[position]
        values = level.values.copy()
        values[below.parent] = np.add.reduceat(below.values, below.offsets[:-1])
        levels[position] = MeasuredLevel(values, level.variance, level.parent, level.offsets)
    for level, estimates in zip(levels, tree_least_squares(levels), strict=True):
        assert estimates == pytest.approx(level.values)
