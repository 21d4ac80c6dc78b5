"""One interface to all group-size mechanisms: noisy vectors in, counts of every level out.

`isotonic_integers` minimises sum w_j (x_j - a_j)^2 over non-decreasing integers by pooling adjacent
violators. Pooling is valid for any convex costs when each block keeps a minimiser of its own sum
([ChainConstraints2000]); on integers the smallest minimiser of W (x - S / W)^2 is
ceil(S / W - 1/2), so blocks carry two integers, and the optimum is exact in linear time. Bounds are
met by clipping: the same pooling with every cost made steep beyond them.

`chain_optimum` is Model 3 of [GroupSizes2021]. Its chain visits the regions' tree in post-order,
size by size, and ties a region's cumulative count at one level to that of its last descendant at
the level below, since all groups before either are the same. Tied nodes are one variable: one for
each size and finest region, with the weights of all levels whose regions end there. The rest is a
non-decreasing chain from 0 to the total.

The approximate cumulative program is Algorithm 2 of [GroupSizes2021]: each region's counts are
made monotone, then the hierarchy's. A region's noisy cumulative counts are replaced by the closest
non-decreasing integers between 0 and the total, which removes most of the noise where few groups
are; their differences are group sizes, from which the exact hierarchical program finds consistent
ones. The paper rounds a real isotonic regression; here the integers are optimal for each region.

Top-down estimates go level by level from the root, as the TopDown Algorithm does. The root's counts
are the non-negative integers closest to its noisy ones that add to the total. Then, one level at a
time, each region's groups of a size are shared among its children: the non-negative integers
closest to the children's noisy counts that add to the parent's. Each of these problems is solved
exactly (`water_level`), so that no rounding follows; the measurements of a level do not affect the
levels above it.

Where regions have public numbers of groups, `Rows` of the hierarchy, the exact programs keep them.

The relaxed baselines: convex quadratic programs by HiGHS, rounded to the nearest integers.

`hierarchical` is Model 1 and `cumulative` Model 2 of [GroupSizes2021] without
integrality. Rounding keeps counts non-negative but loses the sums: children need not add to parents
nor levels to the total. They are here to compare with, and are slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numba import njit
from scipy import sparse

from ...answers.estimates import read_estimates, write_estimates
from ...answers.noisy import DPQUERY_SUFFIX, read_measurements
from ...runs.directory import RunDirectory
from ...runs.errors import SolveFailed
from ...solvers.highs import LinearProgram, SolveStatus
from ..ingest.read import exact_groups, read_plan, read_regions
from ..ingest.regions import RegionHierarchy
from ..plan import (
    CHAIN_DP,
    CUMULATIVE,
    CUMULATIVE_DP,
    HIERARCHICAL_DP,
    RELAXED,
    TOPDOWN,
    UNIVERSE,
    Plan,
    merged_levels,
)
from ..settings import GroupSizesSettings
from .marginal_costs import Program, Rows, hierarchical_optimum, share_out
from .transport import hierarchical_optimum_of_rows

LARGEST_SUM = 1 << 60
"""Weights times values stay below this, so that sums over blocks fit 64 bits."""


@njit(cache=True, nogil=True)
def _pool_rows(weighted: np.ndarray, weight: np.ndarray, result: np.ndarray) -> None:
    """Pool the chain of each row; `weighted` holds w_j a_j."""
    n = weighted.shape[1]
    block_sum = np.empty(n, np.int64)
    block_weight = np.empty(n, np.int64)
    block_size = np.empty(n, np.int64)
    for row in range(weighted.shape[0]):
        value, pooled, n_blocks = weighted[row], result[row], 0
        for j in range(n):
            total, heft, size = value[j], weight[j], np.int64(1)
            smallest = -((heft - 2 * total) // (2 * heft))
            while n_blocks and pooled[n_blocks - 1] >= smallest:
                n_blocks -= 1
                total += block_sum[n_blocks]
                heft += block_weight[n_blocks]
                size += block_size[n_blocks]
                smallest = -((heft - 2 * total) // (2 * heft))
            block_sum[n_blocks], block_weight[n_blocks] = total, heft
            block_size[n_blocks], pooled[n_blocks] = size, smallest
            n_blocks += 1
        # Blocks are at most as many as places, so that spreading from the end overwrites none
        # unread.
        end = n
        for block in range(n_blocks - 1, -1, -1):
            pooled[end - block_size[block] : end] = pooled[block]
            end -= block_size[block]


def isotonic_integers(
    weighted: np.ndarray, weight: np.ndarray, *, low: int, high: int | np.ndarray
) -> np.ndarray:
    """The closest non-decreasing integers between `low` and `high`, row by row.

    Args:
        weighted: (rows, n) integers w_j a_j.
        weight: (n,) positive integers w_j, the same for all rows.
        low, high: bounds of all rows; `high` may be (rows, 1).

    Minimises sum w_j (x_j - a_j)^2, exactly. Raises OverflowError if sums could leave 64 bits.

    >>> isotonic_integers(np.array([[5, 3, 9]]), np.ones(3, int), low=0, high=8).tolist()
    [[4, 4, 8]]
    """
    if np.abs(weighted / weight).max(initial=0.0) * float(weight.sum()) >= LARGEST_SUM:
        raise OverflowError("the weighted noisy counts of a chain do not fit 64 bits")
    result = np.empty(weighted.shape, dtype=np.int64)
    _pool_rows(
        np.ascontiguousarray(weighted, np.int64), np.ascontiguousarray(weight, np.int64), result
    )
    return np.clip(result, low, high, out=result)


def chain_optimum(program: Program) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), that solve the chain exactly, from
    chained cumulative counts.

    Counts of coarser regions are sums of the result.
    """
    noisy, hierarchy, total = program.noisy, program.hierarchy, program.total
    n_sizes = noisy[0].shape[1]
    weighted = np.zeros((n_sizes, hierarchy.n_leaves), dtype=np.int64)
    weight = np.zeros(hierarchy.n_leaves, dtype=np.int64)
    for level, offsets, level_weight in zip(noisy, hierarchy.leaves, program.weights, strict=True):
        last = offsets[1:] - 1
        weighted[:, last] += level_weight * level.T
        weight[last] += level_weight
    # The last position holds the total, regardless of its measurement.
    chain = isotonic_integers(
        weighted.reshape(1, -1)[:, :-1], np.tile(weight, n_sizes)[:-1], low=0, high=total
    )
    counts = np.diff(chain[0], prepend=0, append=total)
    return np.ascontiguousarray(counts.reshape(n_sizes, hierarchy.n_leaves).T)


TIME_LIMIT = 1800.0
"""Seconds that the paper allows a mechanism."""


def exact_hierarchical(program: Program) -> np.ndarray:
    """`hierarchical_optimum`, with the public numbers of groups by region kept if there are any."""
    if program.rows is None or len(program.rows.totals) == 1:
        return hierarchical_optimum(program)
    return hierarchical_optimum_of_rows(program, program.rows)


def estimate_sizes(mechanism: str, program: Program) -> list[np.ndarray]:
    """Non-negative integers (n, n_sizes) for every level, root first, by one of `plan.VECTOR_OF`.

    `topdown` has no use for weights, but needs a measured root. Children add to their parents and
    every level to the total, except for the relaxed baselines. Raises SolveFailed if a relaxed
    program does not finish.
    """
    if mechanism in RELAXED:
        return relaxed_estimate(mechanism, program)
    consistent = {
        TOPDOWN: topdown_estimate,
        CHAIN_DP: chain_optimum,
        HIERARCHICAL_DP: exact_hierarchical,
        CUMULATIVE_DP: cumulative_estimate,
    }
    return program.hierarchy.sum_up(consistent[mechanism](program))


def read_noisy(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> list[np.ndarray]:
    """The noisy vectors (n, n_sizes) of every level, root first; zeros where none was measured."""
    name = plan.vector + DPQUERY_SUFFIX
    return [
        read_measurements(run.dpqueries(UNIVERSE, level.name), level.codes)[name].values
        if own.share
        else np.zeros((len(level), plan.n_sizes), dtype=np.int64)
        for own, level in zip(plan.levels, hierarchy.levels, strict=True)
    ]


def estimate_run(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write the counts of every level, the finest last: where those are, all are."""
    plan, hierarchy = read_plan(run), read_regions(run)
    noisy = read_noisy(run, plan, hierarchy)
    levels = estimate_plan(plan, hierarchy, noisy, exact_groups(run, plan, hierarchy))
    for level, counts in zip(hierarchy.levels, levels, strict=True):
        write_estimates(
            run.estimates(UNIVERSE, level.name),
            level.codes,
            sparse.csr_array(counts),
        )


def estimate_plan(
    plan: Plan,
    hierarchy: RegionHierarchy,
    noisy: Sequence[np.ndarray],
    exact: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Counts (n, n_sizes) of every level, from its noisy vector, by the mechanism of a plan.

    `exact` are the public numbers of groups of the regions of the plan's exact level. The estimated
    hierarchy has the measured levels with the root and the exact level; the other levels have the
    regions of one of these, or are sums of those below.
    """
    first, rows = merged_levels(hierarchy.n_regions), None
    depths = sorted({0, *plan.measured})
    if exact is not None:
        own = first[hierarchy.names.index(plan.exact_level)]
        depths = sorted({own, *depths})
        rows = Rows(depths.index(own), exact)
    measured, weights = [noisy[own] for own in depths], [plan.weights[own] for own in depths]
    program = Program(measured, hierarchy.restricted(depths), plan.groups, weights, rows)
    estimates = dict(zip(depths, estimate_sizes(plan.mechanism, program), strict=True))
    for depth in reversed(range(len(noisy))):
        if first[depth] in estimates:
            estimates[depth] = estimates[first[depth]]
        else:
            children = hierarchy.children(depth)[:-1]
            estimates[depth] = np.add.reduceat(estimates[depth + 1], children, axis=0)
    return [estimates[depth] for depth in range(len(noisy))]


def estimated_counts(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> list[np.ndarray]:
    """Read the counts of `estimate_run`, (n, n_sizes) for every level, root first."""
    return [
        read_estimates([run.estimates(UNIVERSE, level.name)], level.codes, plan.n_sizes).toarray()
        for level in hierarchy.levels
    ]


def monotone_sizes(noisy: np.ndarray, total: int | np.ndarray, *, is_exact: bool) -> np.ndarray:
    """Group sizes (n, n_sizes) >= 0 whose cumulative counts are closest to noisy ones (n, n_sizes).

    Cumulative counts stay at or below `total`, one for all regions or (n,); if it is exact, the
    last one equals it.

    >>> monotone_sizes(np.array([[2, 1, 9]]), 7, is_exact=True).tolist()
    [[1, 0, 6]]
    """
    high = np.broadcast_to(np.asarray(total, dtype=np.int64).reshape(-1, 1), (len(noisy), 1))
    ones = np.ones(noisy.shape[1], dtype=np.int64)
    if is_exact:
        noisy = noisy.copy()
        noisy[:, -1:] = high
    monotone = isotonic_integers(noisy, ones, low=0, high=high)
    if is_exact:
        monotone[:, -1:] = high
    return np.diff(monotone, axis=1, prepend=0)


def cumulative_estimate(program: Program) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), from noisy cumulative counts, by
    `exact_hierarchical` in the second step.
    """
    rows = program.rows or Rows(0, np.array([program.total]))
    levels = zip(program.noisy, rows.bounds(program.hierarchy), program.weights, strict=True)
    sizes = [
        monotone_sizes(level, bound, is_exact=depth <= rows.depth) if weight else level
        for depth, (level, bound, weight) in enumerate(levels)
    ]
    return exact_hierarchical(replace(program, noisy=sizes))


def topdown_estimate(program: Program) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), from noisy counts of every level."""
    root, *below = program.noisy
    n_sizes = root.shape[1]
    size = np.arange(n_sizes)[:, None]
    counts = share_out(root[0], np.array([0, n_sizes]), np.array([program.total]))
    for depth, level in enumerate(below):
        offsets = program.hierarchy.children(depth)
        families = np.append((size * len(level) + offsets[:-1]).reshape(-1), n_sizes * len(level))
        favoured = (size % np.diff(offsets)).reshape(-1)
        counts = share_out(level.T.reshape(-1), families, counts, favoured)
    return np.ascontiguousarray(counts.reshape(n_sizes, -1).T)


def relaxed_estimate(
    mechanism: str, relaxed: Program, *, time_limit: float = TIME_LIMIT
) -> list[np.ndarray]:
    """Rounded group sizes of every level, (n, n_sizes) each, from the mechanism's noisy vectors.

    Cumulative counts are rounded, and their differences taken. Raises SolveFailed if HiGHS does
    not finish within `time_limit` seconds.
    """
    is_cumulative = mechanism == CUMULATIVE
    noisy, (program, column) = relaxed.noisy, _consistent(relaxed)
    of_all = column[0][0, -1:] if is_cumulative else column[0][0]
    program.add_rows(np.zeros(len(of_all), dtype=np.int64), of_all, 1.0, np.array([relaxed.total]))
    if is_cumulative:
        # Monotone counts of the finest regions add to monotone counts of all others.
        later, earlier = column[-1][:, 1:].reshape(-1), column[-1][:, :-1].reshape(-1)
        row = np.arange(len(later))
        program.add_rows(
            np.concatenate([row, row]),
            np.concatenate([later, earlier]),
            np.repeat([1.0, -1.0], len(row)),
            np.zeros(len(row)),
            np.full(len(row), np.inf),
        )
    target = np.concatenate([level.reshape(-1) for level in noisy]).astype(np.float64)
    weight = np.repeat(np.array(relaxed.weights, dtype=np.float64), [level.size for level in noisy])
    result = program.solve(-2 * weight * target, diagonal=2 * weight, time_limit=time_limit)
    if result.status is not SolveStatus.OPTIMAL or result.x is None:
        raise SolveFailed(
            f"The relaxed program of the mechanism {mechanism} did not end at an optimum within "
            f"{time_limit:.0f} s ({result.status}); choose {mechanism}_dp, which is exact and fast."
        )
    solution = np.maximum(result.x, 0.0)
    rounded = [np.rint(solution[columns]).astype(np.int64) for columns in column]
    return [np.diff(level, axis=1, prepend=0) for level in rounded] if is_cumulative else rounded


def _consistent(relaxed: Program) -> tuple[LinearProgram, list[np.ndarray]]:
    """A linear program with a column for every count, in which children add to their parents.

    Also returns each level's columns, (n, n_sizes).
    """
    noisy = relaxed.noisy
    ends = np.cumsum([level.size for level in noisy])
    column = [
        np.arange(end - level.size, end).reshape(level.shape)
        for level, end in zip(noisy, ends, strict=True)
    ]
    program = LinearProgram(int(ends[-1]))
    for depth in range(len(noisy) - 1):
        parents, children = column[depth], column[depth + 1]
        row = np.arange(parents.size).reshape(parents.shape)
        below = row[relaxed.hierarchy.levels[depth + 1].parent]
        program.add_rows(
            np.concatenate([row.reshape(-1), below.reshape(-1)]),
            np.concatenate([parents.reshape(-1), children.reshape(-1)]),
            np.repeat([1.0, -1.0], [parents.size, children.size]),
            np.zeros(parents.size),
        )
    return program, column
