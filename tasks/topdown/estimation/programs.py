"""The constraints of siblings as rows of a linear program."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ...solvers.highs import LinearProgram
from .problem import NO_BOUND, LinearRows, SiblingProblem, sum_rows


def add_constraints(
    program: LinearProgram,
    problem: SiblingProblem,
    column: np.ndarray,
    base: np.ndarray | None = None,
) -> bool:
    """Add parent sums, totals of groups, bounds of types and linear rows; False if fixed cells
    break one.

    `column` (c, k) gives the program's column of each cell, -1 where the cell is fixed; `base`
    (c, k) is what each cell holds besides its column, 0 by default.
    """
    c, k = column.shape
    n_types = problem.lower.shape[1]
    base = np.zeros((c, k)) if base is None else base
    free = column >= 0
    child, cell = np.nonzero(free)
    columns = column[free]
    possible = True
    if problem.parent_counts is not None:
        counts = problem.parent_counts - base.sum(axis=0)
        possible &= _add_sums(program, cell, columns, 1.0, counts, counts)
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        totals = totals - np.bincount(group, base.sum(axis=1), totals.size)
        possible &= _add_sums(program, group[child], columns, 1.0, totals, totals)
    of_type = sum_rows(base, problem.type_of_cell, n_types)
    row = child * n_types + problem.type_of_cell[cell]
    upper = np.where(problem.upper >= NO_BOUND, np.inf, problem.upper)
    possible &= _add_sums(
        program, row, columns, 1.0, (problem.lower - of_type).ravel(), (upper - of_type).ravel()
    )
    for rows in problem.rows:
        possible &= _add_linear(program, rows, column, base)
    return bool(possible)


def _add_linear(
    program: LinearProgram, rows: LinearRows, column: np.ndarray, base: np.ndarray
) -> bool:
    """Bound weighted sums of columns; False if a row without columns excludes 0."""
    n_rows = rows.lower.shape[1]
    matrix = sparse.coo_array(rows.matrix)
    children = np.flatnonzero(rows.group_of_child >= 0)
    child = np.repeat(children, matrix.nnz)
    cell = np.tile(matrix.col, children.size)
    value = np.tile(matrix.data, children.size)
    row = rows.group_of_child[child] * n_rows + np.tile(matrix.row, children.size)
    held = rows.sums(base)
    lower, upper = (rows.lower - held).ravel(), (rows.upper - held).ravel()
    lower = np.where(rows.lower.ravel() <= -NO_BOUND, -np.inf, lower)
    upper = np.where(rows.upper.ravel() >= NO_BOUND, np.inf, upper)
    columns = column[child, cell]
    free = columns >= 0
    return _add_sums(program, row[free], columns[free], value[free], lower, upper)


def _add_sums(
    program: LinearProgram,
    row: np.ndarray,
    columns: np.ndarray,
    value: np.ndarray | float,
    lower: np.ndarray,
    upper: np.ndarray,
) -> bool:
    """Bound weighted sums of columns by row; False if a row without columns excludes 0."""
    used, position = np.unique(row, return_inverse=True)
    empty = np.ones(lower.size, dtype=bool)
    empty[used] = False
    program.add_rows(position.reshape(-1), columns, value, lower[used], upper[used])
    return not np.any(empty & ((lower > 0) | (upper < 0)))
