"""Designed budgets on workloads of marginals, and the bound that they are compared with."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from benchmarks.designed_marginals import (
    DOMAINS,
    PUBLISHED,
    WORKLOADS,
    Marginal,
    designed_error,
    implied,
    marginals,
    n_answers,
    singular_value_bound,
)
from tests.seeds import seeds


def matrix(domain: tuple[int, ...], workload: list[Marginal]) -> np.ndarray:
    """Rows of 0 and 1, one for each answer, over all cells."""
    parts = [
        reduce(np.kron, [np.eye(n) if i in one else np.ones((1, n)) for i, n in enumerate(domain)])
        for one in workload
    ]
    return np.concatenate(parts)


def drawn(seed: int) -> tuple[tuple[int, ...], list[Marginal]]:
    """A domain of three or four attributes, and some of its marginals."""
    rng = np.random.default_rng(seed)
    domain = tuple(int(n) for n in rng.integers(2, 5, rng.integers(3, 5)))
    every = marginals(len(domain), range(len(domain) + 1))
    chosen = rng.choice(len(every), int(rng.integers(1, 6)), replace=False)
    return domain, [every[i] for i in chosen]


@pytest.mark.parametrize("seed", seeds(5, 40))
def test_bound_is_that_of_the_singular_values(seed: int) -> None:
    domain, workload = drawn(seed)
    singular = np.linalg.svd(matrix(domain, workload), compute_uv=False)
    expected = singular.sum() ** 2 / math.prod(domain)
    assert singular_value_bound(domain, workload) == pytest.approx(expected)


@pytest.mark.parametrize("name", PUBLISHED)
def test_bound_is_what_residual_planner_reaches(name: str) -> None:
    domain = DOMAINS[name]
    for sizes, error in zip(WORKLOADS.values(), PUBLISHED[name], strict=True):
        workload = marginals(len(domain), sizes)
        squares = singular_value_bound(domain, workload) / n_answers(domain, workload)
        assert math.sqrt(squares) == pytest.approx(error, abs=6e-4)


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_design_is_no_better_than_the_bound_and_no_worse_than_any_split(seed: int) -> None:
    domain, workload = drawn(seed)
    found, asked = designed_error(domain, workload), matrix(domain, workload)
    assert found >= singular_value_bound(domain, workload) * (1 - 1e-6)
    measured = implied(workload)
    rng = np.random.default_rng(seed)
    for shares in rng.dirichlet(np.full(len(measured), 0.5), 50):
        information = sum(
            share * matrix(domain, [one]).T @ matrix(domain, [one])
            for share, one in zip(shares, measured, strict=True)
        )
        squares = np.trace(asked @ np.linalg.pinv(information) @ asked.T)
        assert found <= squares * (1 + 1e-3)
