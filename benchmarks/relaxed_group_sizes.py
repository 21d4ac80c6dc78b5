"""The relaxed programs of [GroupSizes2021]: Model 1 and Model 2 without integers, by HiGHS.

They are convex quadratic programs, whose solutions are rounded to the nearest integers. Rounding
keeps counts non-negative but loses the sums: children need not add to parents nor levels to the
total. They are here to compare with, and are slow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from spineflow.tasks.group_sizes.ingest.regions import RegionHierarchy
from spineflow.tasks.runs.errors import SolveFailed
from spineflow.tasks.solvers.highs import LinearProgram, SolveStatus

HIERARCHICAL, CUMULATIVE = "hierarchical", "cumulative"
RELAXED = (HIERARCHICAL, CUMULATIVE)
"""The programs; each measures the vector of the exact mechanism of its name with `_dp`."""

TIME_LIMIT = 1800.0
"""Seconds that the paper allows a mechanism."""


def relaxed_estimate(
    mechanism: str,
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    total: int,
    weights: Sequence[int],
    *,
    time_limit: float = TIME_LIMIT,
) -> list[np.ndarray]:
    """Rounded group sizes of every level, (n, n_sizes) each, from the mechanism's noisy vectors.

    Cumulative counts are rounded, and their differences taken. Raises SolveFailed if HiGHS does
    not finish within `time_limit` seconds.
    """
    is_cumulative = mechanism == CUMULATIVE
    program, column = _consistent(noisy, hierarchy)
    of_all = column[0][0, -1:] if is_cumulative else column[0][0]
    program.add_rows(np.zeros(len(of_all), dtype=np.int64), of_all, 1.0, np.array([total]))
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
    weight = np.repeat(np.array(weights, dtype=np.float64), [level.size for level in noisy])
    result = program.solve(-2 * weight * target, diagonal=2 * weight, time_limit=time_limit)
    if result.status is not SolveStatus.OPTIMAL or result.x is None:
        raise SolveFailed(
            f"The relaxed program of the mechanism {mechanism} did not end at an optimum within "
            f"{time_limit:.0f} s ({result.status}); choose {mechanism}_dp, which is exact and fast."
        )
    solution = np.maximum(result.x, 0.0)
    rounded = [np.rint(solution[columns]).astype(np.int64) for columns in column]
    return [np.diff(level, axis=1, prepend=0) for level in rounded] if is_cumulative else rounded


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
