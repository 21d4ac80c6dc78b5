"""How far a release can be off: Theorem 4 and Proposition 1 of [InfTDA2024] with their constants.

*Theorem 4*, of a top-down Chebyshev release. With noise Z at level k and the count of the level
above wrong by e, a child is wrong by at most 2 max |Z| + e: the projection moves no child further
than the true counts, shifted by no more than e, are away. Hence, with probability at least
1 - beta, every node of level l is wrong by at most

    e_0 + 2 sum over k = 1..l of sigma_k sqrt(2 log(2 (l + r) n_k / beta)),

by P(|Z| >= t) <= 2 exp(-t^2 / (2 sigma^2)) for the discrete Gaussian, with n_k nodes at level k,
and a root that is measured (r = 1) adding e_0 = sigma_0 sqrt(2 log(2 (l + 1) / beta)). Levels of
only children are not measured and add nothing; l then counts the others.

*Proposition 1*, of what measures leaves alone, with L_l the most leaves below a node of level l.
The error of a node under the Gaussian mechanism is a sum of at most L_l independent discrete
Gaussians, each subgaussian with its own sigma^2. So with probability at least 1 - beta every node
of level l is wrong by at most

    sigma sqrt(2 L_l log(2 n_l / beta)).

The stability histogram errs on occupied leaves alone, N at most: all leaves, or as many as there
are trips. With k the least integer for which N P(|Z| >= k) <= beta, all noise is below k in size
with probability 1 - beta. A leaf that is listed is then wrong by at most k - 1; one that is not,
since it reached less than the threshold t, holds at most t + k - 2. Hence min(L_l, N) (t + k - 2).
"""

from __future__ import annotations

import math

from ..workload.mechanisms import GAUSSIAN_LEAVES, INFTDA, STABILITY_HISTOGRAM, TDA_CHEBYSHEV
from ..workload.neighbors import largest_leaf_counts
from ..workload.plan import Plan

BETA = 0.05
"""A bound fails with at most this probability."""

THEOREM_4, PROPOSITION_1 = "Theorem 4", "Proposition 1"
BOUND_OF = {
    INFTDA: THEOREM_4,
    TDA_CHEBYSHEV: THEOREM_4,
    GAUSSIAN_LEAVES: PROPOSITION_1,
    STABILITY_HISTOGRAM: PROPOSITION_1,
}
"""Which of the paper's statements bounds a mechanism's errors; of the others none does."""


def error_bounds(plan: Plan, total: int | None, beta: float = BETA) -> list[float] | None:
    """The bound of every level by what holds for the mechanism, root first; None if nothing does.

    `total` is the number of trips, where it is public.
    """
    return theorem_4(plan, beta) or proposition_1(plan, total, beta)


def theorem_4(plan: Plan, beta: float = BETA) -> list[float] | None:
    """The bound of every level, root first; None for a mechanism it does not hold for."""
    if BOUND_OF.get(plan.mechanism) != THEOREM_4:
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


def proposition_1(plan: Plan, total: int | None = None, beta: float = BETA) -> list[float] | None:
    """The bound of every level, root first; None for a mechanism it does not hold for.

    `total` is the number of trips, which bounds how many leaves have any; None if not known.
    """
    if BOUND_OF.get(plan.mechanism) != PROPOSITION_1:
        return None
    levels = range(plan.tree.depth + 1)
    most_leaves = [largest_leaf_counts(plan.tree, level, 1)[0] for level in levels]
    n_nodes = [plan.tree.n_nodes(level) for level in levels]
    if plan.mechanism == STABILITY_HISTOGRAM:
        occupied = n_nodes[-1] if total is None else min(n_nodes[-1], total)
        of_a_leaf = _largest_error_of_a_leaf(plan, occupied, beta)
        return [float(min(leaves, occupied) * of_a_leaf) for leaves in most_leaves]
    variance = float(plan.level_budget.sigma_squared(plan.tree.depth))
    return [
        math.sqrt(2 * variance * leaves * (math.log(2 / beta) + math.log(n)))
        for leaves, n in zip(most_leaves, n_nodes, strict=True)
    ]


def _largest_error_of_a_leaf(plan: Plan, n_leaves: int, beta: float) -> int:
    """t + k - 2 of the module's docstring, for so many occupied leaves."""
    scale = plan.stability.scale
    if scale is None or not n_leaves:
        return 0
    # P(|Z| >= k) = 2 q^k / (1 + q) for k >= 1, with q = exp(-1 / scale).
    allowed = beta * (1 + math.exp(-1 / scale)) / (2 * n_leaves)
    return plan.stability.threshold + max(1, math.ceil(-float(scale) * math.log(allowed))) - 2
