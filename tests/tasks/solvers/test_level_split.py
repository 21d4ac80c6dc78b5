"""Splits over levels: variances by brute force, optima by another search, and bounds that hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.geography.variance import total_covariances
from spineflow.tasks.solvers.level_design import LevelErrors, RegularTree, thousandths

from tests.geography.conftest import spine_from_parents


def nodes_of_leaves(fanouts: list[int]) -> list[np.ndarray]:
    """For each level the 0/1 matrix (nodes, leaves) of what lies in which node."""
    n_leaves = int(np.prod(fanouts))
    sizes = np.cumprod([1, *fanouts])
    return [np.kron(np.eye(size), np.ones(n_leaves // size)) for size in sizes]


@pytest.mark.parametrize("is_exact", [True, False])
def test_variances_are_those_of_least_squares(is_exact: bool) -> None:
    fanouts, variances = [2, 3], [1e-9 if is_exact else 4.0, 2.0, 5.0]
    levels = nodes_of_leaves(fanouts)
    design = np.vstack(levels)
    weights = np.repeat(1 / np.array(variances), [len(level) for level in levels])
    covariance = np.linalg.inv(design.T @ (design * weights[:, None]))
    expected = np.diag(design @ covariance @ design.T)[[0, 1, 3]]
    precisions = [0.0 if is_exact else 1 / 4.0, 1 / 2.0, 1 / 5.0]
    found = RegularTree((2, 3), is_exact).variances(precisions)
    assert found == pytest.approx(expected, abs=1e-6)


@given(
    fanouts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
    holes=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_the_closed_form_is_the_recursion_of_spines(
    fanouts: list[int], seed: int, holes: bool
) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.cumprod([1, *fanouts])
    parents = [
        [-1],
        *(
            np.repeat(np.arange(n // f), f).tolist()
            for n, f in zip(sizes[1:], fanouts, strict=True)
        ),
    ]
    spine = spine_from_parents(parents, [[Fraction(1, len(sizes))] * n for n in sizes])
    precisions = rng.uniform(0.2, 5.0, len(sizes))
    if holes:
        precisions *= rng.random(len(sizes)) < 0.6
    totals = total_covariances(
        spine, [np.full(n, x) for n, x in zip(sizes, precisions, strict=True)]
    )
    found = RegularTree(tuple(fanouts), is_root_exact=False).variances(precisions)
    for level, variance in zip(spine.geolevels, found, strict=True):
        node = np.where(spine.ancestors(level.name) == 0, 0, -1)
        areas = totals.spine.areas(node)
        assert totals.variances(areas, np.ones((1, 1))).item() == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("is_exact", [True, False])
def test_variances_where_levels_are_fitted_to_those_above(is_exact: bool) -> None:
    """Estimates as linear maps of all noise, from the root down."""
    fanouts, variances = [2, 1, 3], [3.0, 2.0, 0.0, 5.0]
    sizes = np.cumprod([1, *fanouts])
    maps = [np.eye(sizes.sum())[:1] * (0.0 if is_exact else 1.0)]
    start = 1
    for level, fanout in enumerate(fanouts, start=1):
        own = np.eye(sizes.sum())[start : start + sizes[level]]
        start += sizes[level]
        parents = np.repeat(maps[-1], fanout, axis=0)
        sums = np.repeat(own.reshape(-1, fanout, own.shape[1]).sum(axis=1), fanout, axis=0)
        maps.append(own + (parents - sums) / fanout)
    noise = np.repeat(variances, sizes)
    expected = [float(own[0] ** 2 @ noise) for own in maps]
    # Only children are not measured.
    precisions = [0.0 if is_exact else 1 / 3.0, 1 / 2.0, 0.0, 1 / 5.0]
    tree = RegularTree((2, 1, 3), is_exact, is_combined=False)
    assert tree.variances(precisions) == pytest.approx(expected)


def test_what_nothing_determines_is_infinite() -> None:
    assert RegularTree((2,), False).variances([0.0, 0.0]).tolist() == [np.inf, np.inf]


def ratios(wanted: dict[int, float]) -> list[dict[int, float]]:
    return [{level: 1 / due} for level, due in wanted.items()]


def errors_of(tree: RegularTree, units: dict[int, float]) -> LevelErrors:
    return LevelErrors({level: str(level) for level in units}, units, tree, 1, "rho")


def random_case(seed: int) -> tuple[RegularTree, dict[int, float], dict[int, float]]:
    random = np.random.default_rng(seed)
    fanouts = tuple(random.uniform(1.5, 30, 3))
    tree = RegularTree(fanouts, bool(seed % 2), is_combined=bool(seed % 3))
    levels = range(1 if tree.is_root_exact else 0, 4)
    units = {level: float(random.uniform(0.5, 5)) for level in levels}
    targets = random.choice(list(units), 2, replace=False)
    return tree, units, {int(level): float(10 ** random.uniform(0, 4)) for level in targets}


@pytest.mark.parametrize("seed", range(24))
def test_the_smallest_split_is_certified_and_nothing_is_below_its_bound(seed: int) -> None:
    tree, units, wanted = random_case(seed)
    split = errors_of(tree, units).split(ratios(wanted))
    assert sum(split.shares.values()) == 1
    assert min(split.shares.values()) >= Fraction(1, 1000)
    precisions = np.zeros(4)
    for level, share in split.shares.items():
        precisions[level] = split.total * float(share) / units[level]
    found = tree.variances(precisions)
    assert all(found[level] <= wanted[level] * (1 + 1e-9) for level in wanted)
    assert split.total <= split.bound * 1.02
    random = np.random.default_rng(seed)
    for shares in random.dirichlet(np.full(len(units), 0.5), 500):
        own = dict(zip(units, shares, strict=True))
        needed = errors_of(tree, units).largest(ratios(wanted), own)
        assert needed >= split.bound * (1 - 1e-9)


def test_levels_alone_get_what_they_need() -> None:
    """A single level that must be precise has all but what the others cannot do without."""
    split = errors_of(RegularTree((2.0,), True), {1: 4.0}).split(ratios({1: 8.0}))
    assert split.shares == {1: 1}
    assert split.total == pytest.approx(4.0 * (1 - 1 / 2) / 8.0)


def test_thousandths_are_positive_and_add_up() -> None:
    shares = thousandths(np.array([1e-9, 1e-9, 1e-9, 0.7505, 0.2495]))
    assert sum(shares) == 1 and min(shares) == Fraction(1, 1000)
