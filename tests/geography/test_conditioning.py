"""The steps for covariances V + k D, against precisions, in which an unbounded k is no limit.

V + k U U' has for k without bound the precision J = V^-1 - V^-1 U (U' V^-1 U)^-1 U' V^-1. What is
independent adds up in precisions, and what J + A has no part of is not determined.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.geography.conditioning import (
    condition_on_total,
    pseudo_inverse,
    root_of,
    see,
    whole_gains,
)

seeds = st.integers(0, 10_000)


def semidefinite(random: np.random.Generator, n: int, rank: int) -> np.ndarray:
    """A matrix with eigenvalues from 1/2 to 2, and 0."""
    vectors = np.linalg.qr(random.normal(size=(n, n)))[0][:, :rank]
    return (vectors * random.uniform(0.5, 2.0, rank)) @ vectors.T


def precision(v: np.ndarray, d: np.ndarray) -> np.ndarray:
    u, inverse = root_of(d), np.linalg.inv(v)
    return inverse - inverse @ u @ np.linalg.solve(u.T @ inverse @ u, u.T @ inverse)


@given(seeds, st.integers(1, 4))
def test_the_pseudo_inverse_and_the_null_space_are_those_of_numpy(seed: int, rank: int) -> None:
    matrix = semidefinite(np.random.default_rng(seed), 4, rank)
    inverse, null = pseudo_inverse(matrix)
    assert inverse == pytest.approx(np.linalg.pinv(matrix, hermitian=True, rcond=1e-10))
    assert null == pytest.approx(np.eye(4) - inverse @ matrix)


@given(seeds, st.integers(1, 3), st.integers(1, 4))
def test_answers_determine_what_they_see_of_the_unknown(seed: int, unknown: int, told: int) -> None:
    random = np.random.default_rng(seed)
    v, d = semidefinite(random, 4, 4), semidefinite(random, 4, unknown)
    a = semidefinite(random, 4, told)
    x, b = random.normal(size=4), a @ random.normal(size=4)
    found = see(root_of(a), 1.0, v, d)
    assert found is not None
    seen, v, left, rest = found
    answers, other = seen.answers @ b, rest @ rest.T
    mean = x + seen.gain @ (answers - seen.rows @ x)
    after = np.linalg.solve(np.eye(4) + v @ other, v)
    mean = mean + after @ (b - seen.rows.T @ answers - other @ mean)

    before = precision(seen.covariance, d)
    both = before + a
    n_determined = np.linalg.matrix_rank(both, tol=1e-9)
    assert np.linalg.matrix_rank(left, tol=1e-7) == 4 - n_determined
    assert both @ left == pytest.approx(np.zeros((4, 4)), abs=1e-6)
    assert both @ after @ both == pytest.approx(both, abs=1e-6)
    assert both @ mean == pytest.approx(before @ x + b, abs=1e-6)


def test_an_exact_total_determines_what_it_sees() -> None:
    found = see(np.ones((2, 1)), 0.0, np.zeros((2, 2)), np.eye(2))
    assert found is not None
    seen, after, left, rest = found
    assert seen.gain == pytest.approx(np.full((2, 1), 0.5))
    assert not after.any() and not rest.size
    assert left == pytest.approx(np.array([[0.5, -0.5], [-0.5, 0.5]]))
    # It sees nothing of what is left.
    assert see(np.ones((2, 1)), 0.0, after, left) is None


@given(seeds)
def test_parts_given_their_whole_are_conditional_normal_variables(seed: int) -> None:
    """A part that has two of the three cells of its whole, by the joint distribution."""
    random = np.random.default_rng(seed)
    cells = np.array([0, 2])
    v, whole = semidefinite(random, 2, 2), semidefinite(random, 3, 3)
    cross = np.zeros((2, 3))
    cross[:, cells] = v
    sums = semidefinite(random, 3, 3)
    sums[np.ix_(cells, cells)] += v
    along, along_diffuse = whole_gains(sums, np.zeros((3, 3)))
    gain = v @ along[cells]
    found = condition_on_total(v[None], gain[None], cells, (sums + whole)[None])[0]
    expected = v - cross @ np.linalg.solve(sums, cross.T) + gain @ whole @ gain.T
    assert found == pytest.approx(expected)
    assert not along_diffuse.any()


@given(seeds, st.integers(0, 3), st.integers(0, 3))
def test_parts_of_which_something_is_unknown_follow_their_whole(
    seed: int, first: int, second: int
) -> None:
    """The gain K of one of two parts solves (J + J of the other) K = J of the other."""
    random = np.random.default_rng(seed)
    v, w = semidefinite(random, 3, 3), semidefinite(random, 3, 3)
    d, e = semidefinite(random, 3, first), semidefinite(random, 3, second)
    along, along_diffuse = whole_gains(v + w, d + e)
    gain = v @ along + d @ along_diffuse
    other = precision(w, e)
    assert (precision(v, d) + other) @ gain == pytest.approx(other, abs=1e-6)
