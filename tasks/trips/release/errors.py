"""Bounds of the errors of released trips, and the share of released cells that are false.

Bounds are Theorem 4 and Proposition 1 of [InfTDA2024] with their constants.

*Theorem 4*, of a top-down Chebyshev release. With noise Z at level k and the count of the level
above wrong by e, a child is wrong by at most 2 max |Z| + e: the projection moves no child further
than the true counts, shifted by no more than e, are away. Hence, with probability at least
1 - beta, every node of level l is wrong by at most

    e_0 + 2 sum over k = 1..l of sigma_k sqrt(2 log(2 (l + r) n_k / beta)),

by P(|Z| >= t) <= 2 exp(-t^2 / (2 sigma^2)) for the discrete Gaussian, with n_k nodes at level k,
and a root that is measured (r = 1) adding e_0 = sigma_0 sqrt(2 log(2 (l + 1) / beta)). Levels of
only children are not measured and add nothing; l then counts the others.

*Proposition 1*, for mechanisms that measure leaves alone, with L_l the most leaves below a node of
level l. The error of a node under the Gaussian mechanism is a sum of at most L_l independent
discrete Gaussians, each subgaussian with its own sigma^2. So with probability at least 1 - beta
every node of level l is wrong by at most

    sigma sqrt(2 L_l log(2 n_l / beta)).

The stability histogram errs on occupied leaves alone, N at most: all leaves, or as many as there
are trips. With k the least integer for which N P(|Z| >= k) <= beta, all noise is below k in size
with probability 1 - beta. A leaf that is listed is then wrong by at most k - 1; one that is not,
since it reached less than the threshold t, holds at most t + k - 2. Hence min(L_l, N) (t + k - 2).

*False cells* are released with trips, and without any. An empty cell that was measured has noise
alone, which is as often v as -v. Cells with trips seldom have a noisy count below 0, so that among
those measured at v > 0 about as many are empty as were measured at -v. A released cell measured at
v is therefore false with a probability of about n(-v) / n(v), where n counts the measured cells;
one measured at v <= 0 is assumed to be false.

A noisy count cannot distinguish a cell without trips from one with far fewer than the standard
deviation of the noise. Both are counted here, so that this is an upper estimate, and near the truth
where cells have no trips or many. Only noisy counts and the releases from them are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ...runs.directory import RunDirectory
from ..measurement import read_cuts, read_nodes
from ..mechanisms import (
    GAUSSIAN_LEAVES,
    INFTDA,
    STABILITY_HISTOGRAM,
    TDA_CHEBYSHEV,
    largest_leaf_counts,
)
from ..plan import Plan, measured_file
from ..tree import NodeCounts
from .table import released_level

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
    """The bound of every level that applies to the mechanism, root first; None if no bound applies.

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


BINS_PER_SIGMA = 4
"""Noisy counts are compared with their opposites in bins of a quarter of a standard deviation."""


@dataclass(frozen=True)
class FalseCells:
    """Released cells, and how many of them are expected to have no trips, or indistinguishably few.

    `sigma` is the standard deviation of the noise in a cell.
    """

    released: int
    expected: float
    sigma: float

    @property
    def sentence(self) -> str:
        """How many cells are released, and how many of them are expected to be false, in words."""
        if not self.released:
            return "no cell is released with trips"
        share = self.expected / self.released
        hidden = f", or so few that noise of {self.sigma:.3g} hides them" if self.sigma else ""
        return (
            f"of {self.released:,} released cells about {round(self.expected):,} ({share:.0%}) are "
            f"expected to be false: to have no trips{hidden}"
        )


def false_cells(run: RunDirectory, plan: Plan) -> FalseCells:
    """The expectation for the released table of a run, from its noisy measurements.

    The stability histogram publishes nothing where there is nothing. Where the finest level was not
    measured, because it repeats the counts above, the measured level replaces it.
    """
    level = max(plan.levels)
    released = released_level(run.release, plan.tree, level).positive.ascending
    sigma_squared = float(plan.noise[level])
    if plan.mechanism == STABILITY_HISTOGRAM or not sigma_squared:
        return FalseCells(released.keys.size, 0.0, 0.0)
    files = [measured_file(run, level, shard.name) for shard in read_cuts(run, level).shards]
    measured = read_nodes(files, plan.tree, level, "value")
    sigma = sqrt(sigma_squared)
    return FalseCells(released.keys.size, expected_false(measured, released, sigma), sigma)


def expected_false(measured: NodeCounts, released: NodeCounts, sigma: float) -> float:
    """Expected number of empty cells among the released ones.

    Args:
        measured: keys of all cells that were measured, and their noisy counts.
        released: the released cells, by ascending keys, with their positive counts.
        sigma: standard deviation of the noise.
    """
    width = max(1, round(sigma / BINS_PER_SIGMA))
    bin_of = (np.abs(measured.counts) + width - 1) // width
    n_bins = int(bin_of.max(initial=0)) + 1
    above = np.bincount(bin_of[measured.counts > 0], minlength=n_bins)
    below = np.bincount(bin_of[measured.counts < 0], minlength=n_bins)
    chance = np.minimum(1.0, below / np.maximum(above, 1))
    is_released = released.counts_of(measured.keys) > 0
    is_above = is_released & (measured.counts > 0)
    return float(chance[bin_of[is_above]].sum() + (is_released & (measured.counts <= 0)).sum())
