"""The multi-pass rounder with its tree of queries: problem (7.7) of [TopDown2022].

Given a real solution x~ of the least squares, choose y in {0, 1} per cell so that floor(x~) + y
meets every constraint, and its answers to a tree of nested queries are nearest to the answers of x~
in the L1 norm. Later passes hold the answers of earlier ones.

Let d be the fractional target of a query row: the sum over its cells of x~ - floor(x~). The cost
of n ones is |d - n|. Interpolating between the integers keeps it convex and moves its kinks to
integers: slopes -1 up to floor(d), 1 - 2 frac(d) for one step, then +1. If queries, held answers
and types of cells are all nested, they form a tree in each child, and every cell is summed over the
children once: a network flow, which `network_flow` solves. If not, HiGHS solves a linear program.

The queries of a pass form a chain of refinements. With many cells, `exchange` afterwards moves ones
to improve queries outside these chains, and an early pass is solved on the classes of cells that
its rows distinguish, since later passes use only its answers. An optimum on classes is an optimum
on cells if cells can attain it, which they nearly always can.

The optimum need not be unique. Fractional parts are in units of 2^-24, coarser than the usual
error of x~, so that every machine finds the same ties, which are broken by position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import sparse

from ...census.queries import MarginalQuery, incidence
from ...solvers.highs import LinearProgram, SolveStatus
from . import network_flow
from .exchange import exchange_records
from .network_flow import UNIT
from .problem import (
    NO_BOUND,
    Pins,
    SiblingProblem,
    Solution,
    SolveRecord,
    add_constraints,
    is_refined,
    rows_by_child,
    rows_on_support,
    sum_rows,
)

SNAP = 1e-5
"""A least-squares value within this of an integer counts as that integer."""


@dataclass(frozen=True)
class RoundingPass:
    """One pass: real targets, the tree of queries, and the held answers.

    target : (c, k) with fractional parts in units of 1 / UNIT.
    labels : row of every cell in each query of the tree, coarsest first.
    held : answers of earlier passes.
    """

    problem: SiblingProblem
    target: np.ndarray
    labels: Sequence[np.ndarray]
    held: Pins = Pins()


@dataclass(frozen=True)
class _Level:
    """A level of the children's trees: a labelling of the cells and bounds on each row's ones.

    `n_used` counts the rows that meet the support; `low` and `high` are (c, n_rows).
    """

    n_used: int
    label: np.ndarray
    is_counted: bool
    low: np.ndarray
    high: np.ndarray


def solve_passes(
    problem: SiblingProblem,
    target: np.ndarray,
    passes: Sequence[Sequence[MarginalQuery]],
    asked: Sequence[MarginalQuery] = (),
) -> Solution:
    """Round `target` of shape `(c, k)`; each pass is a chain of nested queries, coarsest first.

    If any of the queries `asked` is in no chain, an exchange of ones follows the last pass and
    moves the answers to all of them towards the answers of `target`; see `exchange`.

    If a pass has no 0/1 solution, `round_anywhere` drops the agreement with earlier passes and the
    0/1 box, never a constraint of the problem.
    """
    target = snap_to_grid(target)
    result = None
    if asked and len(passes) > 1:
        result = _solved_passes(problem, target, passes, early=_round_classes)
    if result is None or result.x is None:
        result = _solved_passes(problem, target, passes)
    if result.x is not None and asked:
        return _with_exchange(result, problem, target, passes, asked)
    return retry_anywhere(result, problem, target)


def retry_anywhere(result: Solution, problem: SiblingProblem, target: np.ndarray) -> Solution:
    """`result`, or if it failed the result of `round_anywhere`, with the iterations of both."""
    if result.x is not None:
        return result
    x, record = round_anywhere(problem, target)
    return Solution(x, replace(record, iterations=result.record.iterations + record.iterations))


def round_pass(rounding: RoundingPass) -> Solution:
    """Solve a pass as a network flow if it is one, and as a linear program if not."""
    return round_by_flow(rounding) or round_by_highs(rounding)


def _solved_passes(
    problem: SiblingProblem,
    target: np.ndarray,
    passes: Sequence[Sequence[MarginalQuery]],
    early: Callable[[RoundingPass], Solution] = round_pass,
) -> Solution:
    """The result of the last pass, or of the first pass without a solution.

    `early` solves all passes but the last; only their answers to their own queries are used.
    """
    held, iterations, solver = Pins(), 0, "flow"
    result = Solution(target.astype(np.int64), SolveRecord())
    for number, queries in enumerate(passes, 1):
        labels = [rows_on_support(query, problem.cells) for query in queries]
        rounding = RoundingPass(problem, target, labels, held)
        is_last = number == len(passes)
        result = round_pass(rounding) if is_last else early(rounding)
        iterations += result.record.iterations
        if result.x is None:
            return Solution(None, replace(result.record, iterations=iterations))
        if result.record.solver == "highs":
            solver = "highs"
        if not is_last:
            held = held.with_answers(labels, result.x)
    return Solution(result.x, replace(result.record, iterations=iterations, solver=solver))


def _round_classes(rounding: RoundingPass) -> Solution:
    """Solve a pass on the classes of cells that its rows distinguish.

    `x` of the result has each class's count at its first cell; it is no histogram.
    """
    labels, held = rounding.labels, rounding.held
    coarse, classes, first = rounding.problem.coarsened([*labels, *held.labels])
    target = snap_to_grid(sum_rows(rounding.target, classes))
    result = round_pass(
        RoundingPass(coarse, target, [label[first] for label in labels], held.at(first))
    )
    if result.x is None:
        return result
    x = np.zeros(rounding.target.shape, dtype=np.int64)
    x[:, first] = result.x
    return Solution(x, result.record)


def _with_exchange(
    result: Solution,
    problem: SiblingProblem,
    target: np.ndarray,
    passes: Sequence[Sequence[MarginalQuery]],
    asked: Sequence[MarginalQuery],
) -> Solution:
    """`result` after an exchange, if the chains of `passes` lack any of the queries `asked`.
    Answers to the chains stay, except single cells."""
    k = problem.cells.size
    chained = [rows_on_support(query, problem.cells) for queries in passes for query in queries]
    labels = [rows_on_support(query, problem.cells) for query in asked]
    if result.x is None or all(
        any(np.array_equal(label, own) for own in chained) for label in labels
    ):
        return result
    held = [label for label in chained if int(label.max(initial=-1)) + 1 < k]
    open_labels = [label for label in labels if not any(is_refined(label, other) for other in held)]
    if not open_labels:
        return result
    x, moves = exchange_records(problem, target, result.x, held, open_labels)
    solver, iterations = f"{result.record.solver}, exchange", result.record.iterations + moves
    return Solution(x, replace(result.record, iterations=iterations, solver=solver))


def snap_to_grid(target: np.ndarray) -> np.ndarray:
    """`target` with near-integers snapped and fractional parts in units of 1 / UNIT."""
    whole = np.rint(target)
    return np.where(np.abs(target - whole) <= SNAP, whole, np.rint(target * UNIT) / UNIT)


def round_by_flow(rounding: RoundingPass) -> Solution | None:
    """Solve a pass as a network flow; None if it is not one."""
    network = to_network(rounding)
    if network is None:
        return None
    is_optimal, y, paths = network_flow.solve(network)
    record = SolveRecord(solver="flow", iterations=paths)
    if not is_optimal:
        return Solution(None, replace(record, status=SolveStatus.INFEASIBLE))
    return Solution(np.floor(rounding.target).astype(np.int64) + y, record)


def to_network(rounding: RoundingPass) -> network_flow.Network | None:
    """A pass as a network, or None if it is not one.

    It is a network if there are no linear rows, if queries, held answers and types are nested, and
    if there is a parent or each group with a fixed total is a single child.
    """
    problem, target = rounding.problem, rounding.target
    if problem.rows:
        return None
    c, k = target.shape
    base = np.floor(target)
    levels = _levels(rounding, base)
    group_of_child, group_residual = np.full(c, -1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    residual = np.zeros(0, dtype=np.int64)
    if problem.parent_counts is not None:
        residual = (problem.parent_counts - base.sum(axis=0)).astype(np.int64)
        group_of_child, group_residual = np.zeros(c, dtype=np.int64), residual.sum(keepdims=True)
    if problem.grouped_totals is not None:
        group, totals = problem.grouped_totals
        n_groups = totals.size
        totals = totals - np.bincount(group, base.sum(axis=1), n_groups)
        if n_groups == c:
            ones = totals[group, None]
            levels.append(_Level(1, np.zeros(k, dtype=np.int64), False, ones, ones))
        elif problem.parent_counts is None:
            return None
        else:
            group_of_child, group_residual = group.astype(np.int64), totals.astype(np.int64)

    levels.sort(key=lambda level: level.n_used)
    labels = np.array([level.label for level in levels], dtype=np.int64)
    if not all(is_refined(coarse, fine) for coarse, fine in pairwise(labels)):
        return None
    return network_flow.Network(
        np.rint((target - base) * UNIT).astype(np.int64, order="C"),
        labels,
        np.cumsum([0, *(level.low.size for level in levels)]),
        np.array([level.is_counted for level in levels]),
        np.concatenate([level.low.ravel() for level in levels]).astype(np.int64),
        np.concatenate([level.high.ravel() for level in levels]).astype(np.int64),
        np.lexsort(labels[::-1]),
        residual,
        group_of_child,
        group_residual,
    )


def _levels(rounding: RoundingPass, base: np.ndarray) -> list[_Level]:
    """Levels of the queries, held answers and types of a pass, less the counts of `base`."""
    problem = rounding.problem
    c, n_types = problem.lower.shape
    levels = []
    for label in rounding.labels:
        n_rows = int(label.max(initial=-1)) + 1
        none, unbounded = np.zeros((c, n_rows)), np.full((c, n_rows), NO_BOUND)
        levels.append(_Level(n_rows, label, True, none, unbounded))
    for label, answers in zip(rounding.held.labels, rounding.held.targets, strict=True):
        ones = answers - sum_rows(base, label, answers.shape[1])
        levels.append(_Level(answers.shape[1], label, False, ones, ones))
    of_type = sum_rows(base, problem.type_of_cell, n_types)
    used_types = int(np.count_nonzero(np.bincount(problem.type_of_cell, minlength=n_types)))
    low, high = problem.lower - of_type, problem.upper - of_type
    levels.append(_Level(used_types, problem.type_of_cell, False, low, high))
    return levels


def round_by_highs(rounding: RoundingPass) -> Solution:
    """Solve a pass as a linear program, or as an integer program if its solution is not integral.

    A piecewise linear cost becomes three columns, one for each slope.
    """
    problem, target = rounding.problem, rounding.target
    base = np.floor(target)
    fraction = target - base
    free = fraction > 0.0
    n_free = int(free.sum())
    column = np.full(target.shape, -1, dtype=np.int64)
    column[free] = np.arange(n_free)

    def counted(label: np.ndarray, n: int) -> sparse.csr_array:
        """0/1 matrix (c n, n_free) of the free cells in each row of a labelling, by child."""
        return rows_by_child(incidence(label, n), len(target))[:, free.ravel()]

    unit_cost = np.zeros(n_free)
    steps = []
    for label in rounding.labels:
        rows = counted(label, int(label.max(initial=-1)) + 1)
        size, row_target = np.diff(rows.indptr), rows @ fraction[free]
        unit_cost += rows[size == 1].sum(axis=0) * (1.0 - 2.0 * fraction[free])
        steps.append((rows[size > 1], size[size > 1], row_target[size > 1]))

    program = LinearProgram(n_free + 3 * sum(size.size for _, size, _ in steps))
    cost = np.zeros(program.n_columns)
    upper = np.ones(program.n_columns)
    cost[:n_free] = unit_cost
    offset = n_free
    for rows, size, row_target in steps:
        n, whole = size.size, np.floor(row_target)
        slopes = offset + np.arange(3 * n).reshape(3, n)
        cost[slopes[0]], upper[slopes[0]] = -1.0, whole
        cost[slopes[1]] = 1.0 - 2.0 * (row_target - whole)
        cost[slopes[2]], upper[slopes[2]] = 1.0, np.maximum(size - whole - 1, 0)
        others, one = sparse.csr_array((n, offset - n_free)), sparse.eye_array(n)
        program.add_matrix(sparse.hstack([rows, others, -one, -one, -one]), np.zeros(n))
        offset += 3 * n
    for label, answers in zip(rounding.held.labels, rounding.held.targets, strict=True):
        rows = counted(label, answers.shape[1])
        fixed = (answers - sum_rows(base, label, answers.shape[1])).ravel()
        is_used = np.diff(rows.indptr) > 0
        program.add_matrix(rows[is_used], fixed[is_used])
    if not add_constraints(program, problem, column, base):
        return Solution(None, SolveRecord(solver="highs", status=SolveStatus.INFEASIBLE))
    return _solve_integral(program, cost, 0.0, upper, base, free)


def _solve_integral(
    program: LinearProgram,
    cost: np.ndarray,
    lower: np.ndarray | float,
    upper: np.ndarray,
    base: np.ndarray,
    free: np.ndarray,
) -> Solution:
    """Solve a program, as an integer program if its solution is not integral; add the solution to
    `base` at the cells `free`."""
    x = base.astype(np.int64)
    if program.n_columns == 0:
        return Solution(x, SolveRecord(solver="highs"))
    result = program.solve(cost, lower, upper)
    if result.x is not None and np.abs(result.x - np.rint(result.x)).max() > 1e-6:
        result = program.solve(cost, lower, upper, integral=np.ones(program.n_columns, dtype=bool))
    record = SolveRecord(solver="highs", status=result.status, iterations=result.iterations)
    if result.x is None:
        return Solution(None, record)
    x[free] += np.rint(result.x[: np.count_nonzero(free)]).astype(np.int64)
    return Solution(x, record)


def round_anywhere(problem: SiblingProblem, target: np.ndarray) -> Solution:
    """Nearest integer histogram in the L1 norm that meets every constraint of the problem.

    The fail-safe: cells may move by more than one, and no answer is held. It has a solution if the
    problem has one.
    """
    c, k = target.shape
    base = np.floor(target)
    fraction = target - base
    n = c * k
    column = np.arange(n).reshape(c, k)
    program = LinearProgram(4 * n)
    one = sparse.eye_array(n)
    # y = first step up + further steps up - steps down, in this order of columns.
    program.add_matrix(sparse.hstack([one, -one, -one, one]), np.zeros(n))
    if not add_constraints(program, problem, column, base):
        infeasible = SolveRecord(solver="highs", status=SolveStatus.INFEASIBLE, relaxed=True)
        return Solution(None, infeasible)
    cost = np.concatenate([np.zeros(n), (1.0 - 2.0 * fraction).ravel(), np.ones(2 * n)])
    lower = np.concatenate([-base.ravel(), np.zeros(3 * n)])
    upper = np.concatenate([np.full(n, np.inf), np.ones(n), np.full(n, np.inf), base.ravel()])
    x, record = _solve_integral(program, cost, lower, upper, base, np.ones((c, k), dtype=bool))
    return Solution(x, replace(record, relaxed=True))
