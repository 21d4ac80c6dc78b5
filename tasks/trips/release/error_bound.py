"""Theorem 4 of [InfTDA2024] with its constants: how far a top-down Chebyshev release can be off.

With noise Z at level k and the count of the level above wrong by e, a child is wrong by at most
2 max |Z| + e: the projection moves no child further than the true counts, shifted by no more than
e, are away. Hence, with probability at least 1 - beta, every node of level l is wrong by at most

    e_0 + 2 sum over k = 1..l of sigma_k sqrt(2 log(2 (l + r) n_k / beta)),

by P(|Z| >= t) <= 2 exp(-t^2 / (2 sigma^2)) for the discrete Gaussian, with n_k nodes at level k,
and a root that is measured (r = 1) adding e_0 = sigma_0 sqrt(2 log(2 (l + 1) / beta)). Levels of
only children are not measured and add nothing; l then counts the others.
"""

from __future__ import annotations

import math

from ..workload.mechanisms import INFTDA, TDA_CHEBYSHEV
from ..workload.plan import Plan

BETA = 0.05
"""The bound fails with at most this probability."""


def theorem_4(plan: Plan, beta: float = BETA) -> list[float] | None:
    """The bound of every level, root first; None for a mechanism it does not hold for."""
    if plan.mechanism not in (INFTDA, TDA_CHEBYSHEV):
        return None

    def largest_noise(level: int, n_events: int) -> float:
        deviation = math.sqrt(plan.level_budget.sigma_squared(level))
        n_nodes = plan.tree.n_nodes(level)
        return deviation * math.sqrt(2 * (math.log(2 * n_events / beta) + math.log(n_nodes)))

    bounds = []
    for level in range(plan.tree.depth + 1):
        measured = [k for k in plan.levels if k <= level]
        noise = ((2 if k else 1) * largest_noise(k, len(measured)) for k in measured)
        bounds.append(sum(noise, 0.0))
    return bounds
