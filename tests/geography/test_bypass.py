from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spineflow.geography.levels import bypass, shares_add_to_one
from spineflow.geography.rules import GroupRules

NO_CUTOFF = GroupRules(bypass_cutoff=None)

EXAMPLES = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def contents(geolevels):
    """Everything that a second run could change."""
    return [
        (
            level.name,
            level.geocode.tolist(),
            level.parent.tolist(),
            [level.plb_shares[code] for code in level.plb_share_code],
            level.bypassed.tolist(),
            level.n_blocks.tolist(),
        )
        for level in geolevels
    ]


@pytest.mark.slow
@EXAMPLES
@given(
    seed=st.integers(0, 10_000),
    is_pure=st.booleans(),
    cutoff=st.sampled_from([None, 3, 6]),
    most_children=st.integers(1, 5),
)
def test_second_run_changes_nothing_and_paths_add_to_one(
    make_random_spine, seed, is_pure, cutoff, most_children
):
    before = make_random_spine(seed, 5, most_children).geolevels
    rules = GroupRules(bypass_cutoff=cutoff)
    once = bypass(before, rules, is_pure=is_pure)
    assert contents(bypass(once, rules, is_pure=is_pure)) == contents(once)
    assert shares_add_to_one(once)
    assert [len(level) for level in once[:2]] == [len(level) for level in before[:2]]
    assert once[-1].geocode.tolist() == before[-1].geocode.tolist()
    for above, below in zip(once, once[1:], strict=False):
        assert (np.diff(below.parent) >= 0).all()
        assert np.unique(below.parent).tolist() == list(range(len(above)))
        sums = np.bincount(below.parent, weights=below.n_blocks)
        assert sums.tolist() == above.n_blocks.tolist()
        pairs = zip(above.geocode[below.parent], below.geocode, strict=True)
        assert all(code.startswith(prefix) for prefix, code in pairs)
        assert len(set(below.geocode)) == len(below)
    for level in once:
        has_no_share = [level.plb_shares[code] == 0 for code in level.plb_share_code]
        assert level.bypassed.tolist() == has_no_share
        if not is_pure:
            assert len(level) == len(before[[b.name for b in before].index(level.name)])


def test_single_children_give_their_share_to_the_parent(make_spine):
    eighth = Fraction(1, 8)
    parents = [[-1], [0, 0], [0, 1], [0, 1, 1]]
    shares = [[eighth], [2 * eighth] * 2, [3 * eighth] * 2, [2 * eighth] * 3]
    after = bypass(make_spine(parents, shares).geolevels, NO_CUTOFF, is_pure=False)
    in_eighths = [[8 * level.plb_shares[code] for code in level.plb_share_code] for level in after]
    assert in_eighths == [[1], [7, 5], [0, 0], [0, 2, 2]]
    assert [level.bypassed.tolist() for level in after[2:]] == [[True, True], [True, False, False]]


def test_several_children_are_bypassed_under_pure_dp_from_the_county_down(make_spine):
    quarter = Fraction(1, 4)
    parents = [[-1], [0, 0], [0, 0, 1], [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]]
    shares = [[quarter] * len(level) for level in parents]
    spine = make_spine(parents, shares)
    assert len(bypass(spine.geolevels, NO_CUTOFF, is_pure=False)[2]) == 3
    after = bypass(spine.geolevels, NO_CUTOFF, is_pure=True)
    # With equal shares up to three children may be bypassed; states and the root never are.
    assert [len(level) for level in after] == [1, 2, 5, 11]
    assert after[2].geocode.tolist() == ["000000", "000001", "000002", "0001", "0100"]
    state_share, county_share = (
        [level.plb_shares[code] for code in level.plb_share_code] for level in after[1:3]
    )
    assert state_share == [quarter, 2 * quarter]
    assert county_share == [2 * quarter] * 3 + [quarter, 0]
    assert after[3].bypassed.tolist() == [True] * 3 + [False] * 8


@pytest.mark.parametrize(("cutoff", "n_counties"), [(1, 2), (2, 2), (3, 3), (4, 4), (None, 4)])
def test_cutoff_limits_the_children_of_the_parents_parent(make_spine, cutoff, n_counties):
    parents = [[-1], [0], [0, 0], [0, 0, 1, 1]]
    shares = [[Fraction(1, 4)] * len(level) for level in parents]
    after = bypass(
        make_spine(parents, shares).geolevels, GroupRules(bypass_cutoff=cutoff), is_pure=True
    )
    assert len(after[2]) == n_counties


def test_rule_takes_the_smallest_share_of_the_children(make_spine):
    # Tract 0 has one block and takes its share, so the county's children have shares 3 and 2;
    # the county's share of 4 may be moved because 2 >= (2 - 1) * 4 / 2.
    parents = [[-1], [0], [0], [0, 0], [0, 1, 1, 1, 1, 1]]
    for county_share, n_counties in [(4, 2), (5, 1)]:
        total = 1 + 1 + county_share + 2 + 1
        weights = [1, 1, county_share, 2, 1]
        shares = [
            [Fraction(weight, total)] * len(level)
            for weight, level in zip(weights, parents, strict=True)
        ]
        after = bypass(make_spine(parents, shares).geolevels, NO_CUTOFF, is_pure=True)
        assert len(after[2]) == n_counties


def information(geolevels, precision_of_share) -> np.ndarray:
    """A' diag(precision) A over blocks, by geolevel and share of each block's ancestor."""
    n = len(geolevels[-1])
    matrix = np.zeros((n, n))
    position = np.arange(n)
    for level in reversed(geolevels):
        precision = np.array([precision_of_share(share) for share in level.plb_shares])
        same = position[:, None] == position[None, :]
        matrix += same * precision[level.plb_share_code[position]]
        position = level.parent[position]
    return matrix


def geounit_rows(geolevels) -> np.ndarray:
    """0/1 rows over blocks of all geounits."""
    rows = []
    position = np.arange(len(geolevels[-1]))
    for level in reversed(geolevels):
        rows.append(position == np.arange(len(level))[:, None])
        position = level.parent[position]
    return np.concatenate(rows).astype(float)


def variances(geolevels, rows, precision_of_share) -> np.ndarray:
    matrix = information(geolevels, precision_of_share)
    return np.einsum("ij,jk,ik->i", rows, np.linalg.inv(matrix), rows)


def laplace_precision(share: Fraction) -> float:
    """1 / (2 b^2) for the Laplace scale b = 2 / share, epsilon being 1."""
    return float(share) ** 2 / 8


@EXAMPLES
@given(seed=st.integers(0, 10_000), most_children=st.integers(2, 5))
def test_theorem_2_a_bypass_that_the_rule_allows_raises_no_variance(
    make_random_spine, seed, most_children
):
    before = make_random_spine(seed, 4, most_children).geolevels
    rows = geounit_rows(before)
    after = bypass(before, NO_CUTOFF, is_pure=True)
    base = variances(before, rows, laplace_precision)
    moved = variances(after, rows, laplace_precision)
    assert (moved <= base * (1 + 1e-9)).all()


@EXAMPLES
@given(seed=st.integers(0, 10_000), n_children=st.integers(2, 8))
def test_theorem_2_a_bypass_that_the_rule_forbids_raises_the_parents_variance(
    make_spine, seed, n_children
):
    """Remark 1: for a parent whose total is known only from itself and its children, the rule
    decides exactly whether the variance of the parent's total rises."""
    parent_weight, child_weight = np.random.default_rng(seed).integers(1, 20, size=2).tolist()
    total = parent_weight + child_weight
    parent, child = Fraction(parent_weight, total), Fraction(child_weight, total)
    parents = [[-1], [0] * n_children]
    before = make_spine(parents, [[parent], [child] * n_children]).geolevels
    moved = make_spine(parents, [[Fraction(0)], [parent + child] * n_children]).geolevels
    rows = geounit_rows(before)
    base, after = (variances(tree, rows, laplace_precision) for tree in (before, moved))
    if 2 * child >= (n_children - 1) * parent:
        assert (after <= base * (1 + 1e-9)).all()
    else:
        assert after[-1] > base[-1] * (1 + 1e-9)
