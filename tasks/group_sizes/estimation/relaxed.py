"""The relaxed baselines: convex quadratic programs by HiGHS, rounded to the nearest integers.

`hierarchical_relaxed` is Model 1 and `cumulative_relaxed` Model 2 of [GroupSizes2021] without
integrality. Rounding keeps counts non-negative but loses the sums: children need not add to parents
nor levels to the total. They are here to compare with, and are slow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runs.errors import SolveFailed
from ...solvers.highs import LinearProgram, SolveStatus
from ..workload.regions import RegionHierarchy

TIME_LIMIT = 1800.0
"""Seconds that the paper allows a mechanism."""


def hierarchical_relaxed(
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    *,
    time_limit: float = TIME_LIMIT,
) -> list[np.ndarray]:
    """Rounded group sizes of every level, (n, n_sizes) each, from noisy counts.

    Raises SolveFailed if HiGHS does not finish within `time_limit` seconds.
    """
    program, column = _consistent(noisy, hierarchy)
    root = column[0][0]
    _fix_sum(program, root, total)
    solution = _solve(program, noisy, weights, time_limit, "hierarchical")
    return [np.rint(solution[columns]).astype(np.int64) for columns in column]


def cumulative_relaxed(
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    *,
    time_limit: float = TIME_LIMIT,
) -> list[np.ndarray]:
    """Rounded group sizes of every level, (n, n_sizes) each, from noisy cumulative counts.

    Cumulative counts are rounded, and their differences taken. Raises as `hierarchical_relaxed`.
    """
    program, column = _consistent(noisy, hierarchy)
    _fix_sum(program, column[0][0, -1:], total)
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
    solution = _solve(program, noisy, weights, time_limit, "cumulative")
    rounded = [np.rint(solution[columns]).astype(np.int64) for columns in column]
    return [np.diff(level, axis=1, prepend=0) for level in rounded]


def _consistent(
    noisy: Sequence[np.ndarray], hierarchy: RegionHierarchy
) -> tuple[LinearProgram, list[np.ndarray]]:
    """A program with a column for every count, in which children add to their parents.

    Also returns each level's columns, (n, n_sizes).
    """
    ends = np.cumsum([level.size for level in noisy])
    column = [
        np.arange(end - level.size, end).reshape(level.shape)
        for level, end in zip(noisy, ends, strict=True)
    ]
    program = LinearProgram(int(ends[-1]))
    for depth in range(len(noisy) - 1):
        parents, children = column[depth], column[depth + 1]
        row = np.arange(parents.size).reshape(parents.shape)
        below = row[hierarchy.levels[depth + 1].parent]
        program.add_rows(
            np.concatenate([row.reshape(-1), below.reshape(-1)]),
            np.concatenate([parents.reshape(-1), children.reshape(-1)]),
            np.repeat([1.0, -1.0], [parents.size, children.size]),
            np.zeros(parents.size),
        )
    return program, column


def _fix_sum(program: LinearProgram, columns: np.ndarray, total: int) -> None:
    program.add_rows(np.zeros(len(columns), dtype=np.int64), columns, 1.0, np.array([total]))


def _solve(
    program: LinearProgram,
    noisy: Sequence[np.ndarray],
    weights: Sequence[int],
    time_limit: float,
    name: str,
) -> np.ndarray:
    target = np.concatenate([level.reshape(-1) for level in noisy]).astype(np.float64)
    weight = np.repeat(np.array(weights, dtype=np.float64), [level.size for level in noisy])
    result = program.solve(-2 * weight * target, diagonal=2 * weight, time_limit=time_limit)
    if result.status is not SolveStatus.OPTIMAL or result.x is None:
        raise SolveFailed(
            f"The relaxed program of the mechanism {name} did not end at an optimum within "
            f"{time_limit:.0f} s ({result.status}); choose {name}_dp, which is exact and fast."
        )
    return np.maximum(result.x, 0.0)
