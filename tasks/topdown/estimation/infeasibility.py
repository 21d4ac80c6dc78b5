"""Naming the constraint that stands in the way when siblings have no feasible histograms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...solvers.highs import LinearProgram
from .problem import SiblingProblem


def infeasible_constraint(problem: SiblingProblem) -> str | None:
    """Name of a constraint that no histogram of these children can meet, or None.

    Looks for crossed bounds, for a lower bound on a type that is not in the support, for parent
    counts of a type outside the sum of the children's bounds, and for totals outside the bounds
    or the parent. Where totals and the parent's counts are both fixed this is necessary only; see
    `conflicting_constraint`.
    """
    is_crossed = problem.lower > problem.upper
    if is_crossed.any():
        child, kind = np.argwhere(is_crossed)[0]
        return f"the bounds of type {kind} at geounit {problem.geocodes[child]}"
    n_types = problem.lower.shape[1]
    in_support = np.bincount(problem.type_of_cell, minlength=n_types) > 0
    is_absent = (problem.lower > 0) & ~in_support
    if is_absent.any():
        child, kind = np.argwhere(is_absent)[0]
        return (
            f"the lower bound of type {kind} at geounit {problem.geocodes[child]}, a type that "
            "the parent has no records of"
        )
    if problem.parent_counts is not None:
        of_type = np.bincount(problem.type_of_cell, problem.parent_counts, n_types)
        outside = (of_type < problem.lower.sum(axis=0)) | (of_type > problem.upper.sum(axis=0))
        if outside.any():
            return (
                f"the bounds of type {int(np.argmax(outside))} summed over geounits "
                f"{_named(problem.geocodes)}"
            )
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        n_groups = totals.size
        low = np.bincount(group, problem.lower.sum(axis=1), n_groups)
        high = np.bincount(group, np.where(in_support, problem.upper, 0).sum(axis=1), n_groups)
        outside = (totals < low) | (totals > high)
        if outside.any():
            child = int(np.flatnonzero(group == np.argmax(outside))[0])
            return f"the invariant total that includes geounit {problem.geocodes[child]}"
        if problem.parent_counts is not None:
            if int(totals.sum()) != int(problem.parent_counts.sum()):
                return (
                    f"the invariant totals of geounits {_named(problem.geocodes)}, which do not "
                    "add up to the parent's"
                )
    return None


def conflicting_constraint(problem: SiblingProblem) -> str | None:
    """Name of a constraint that has to give way for the others to hold, or None.

    Minimises the total violation of the children's bounds and totals over non-negative counts per
    child and type that add up to the parent's. It suffices to look at types: cells of a type are
    alike to every constraint.
    """
    c, n_types = problem.lower.shape
    size = c * n_types
    column = np.arange(size).reshape(c, n_types)
    grouped = problem.grouped_totals
    n_groups = 0 if grouped is None else grouped[1].size
    program = LinearProgram(3 * size + 2 * n_groups)
    short, over = size + np.arange(size), 2 * size + np.arange(size)
    row = np.arange(size)
    program.add_rows(
        np.tile(row, 3),
        np.concatenate([column.ravel(), short, over]),
        np.repeat([1.0, 1.0, -1.0], size),
        problem.lower.ravel(),
        problem.upper.ravel(),
    )
    if problem.parent_counts is not None:
        counts = np.bincount(problem.type_of_cell, problem.parent_counts, n_types)
        program.add_rows(np.tile(np.arange(n_types), c), column.ravel(), 1.0, counts)
    if grouped is not None:
        group, totals = grouped
        slack = 3 * size + np.arange(2 * n_groups)
        program.add_rows(
            np.concatenate([np.repeat(group, n_types), np.tile(np.arange(n_groups), 2)]),
            np.concatenate([column.ravel(), slack]),
            np.concatenate([np.ones(size), np.repeat([1.0, -1.0], n_groups)]),
            totals,
        )
    cost = np.ones(program.n_columns)
    cost[:size] = 0.0
    upper = np.full(program.n_columns, np.inf)
    in_support = np.bincount(problem.type_of_cell, minlength=n_types) > 0
    upper[:size] = np.where(np.tile(in_support, c), np.inf, 0.0)
    result = program.solve(cost, upper=upper)
    if result.x is None or result.objective < 0.5:
        return None
    violation = result.x[size:]
    worst = int(np.argmax(violation))
    if worst < 2 * size:
        child, kind = divmod(worst % size, n_types)
        side = "lower" if worst < size else "upper"
        return f"the {side} bound of type {kind} at geounit {problem.geocodes[child]}"
    child = int(np.flatnonzero(problem.group_of_child == (worst - 2 * size) % n_groups)[0])
    return f"the invariant total that includes geounit {problem.geocodes[child]}"


def _named(geocodes: Sequence[str] | np.ndarray) -> str:
    """The geounits' geocodes, the first and last where there are many."""
    if len(geocodes) <= 3:
        return ", ".join(geocodes)
    return f"{geocodes[0]} to {geocodes[-1]}"
