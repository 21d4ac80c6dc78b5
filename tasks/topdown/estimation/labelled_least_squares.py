"""Least squares of siblings on many cells: queries as labels, nothing of cells x cells.

The problem of one pass (see `interleaved`), on k classes of cells and c children whose precisions
are proportional, child i's s_i times those of all:

    minimise  sum_i s_i (1/2 x_i' (D + U W U') x_i - b_i' x_i)   over x >= 0 with
    sum_i x_i = X,   A x_i = h_i,   l_i <= G x_i <= u_i,   x = 0 where a child can have none.

D is diagonal: the weights of query rows that count one class alone. U (k, K) has a column for each
row that counts several, W their weights. The rows of A, exact answers, are disjoint; those of G are
sums between bounds. A query whose rows are sums of rows of A is constant, and left out.

**Alternating directions.** x and a copy z >= 0 of it agree in the end (ADMM, with the penalty
rho s_i e in the metric e of D, over-relaxed; rho follows the residuals). The copy is clipped. The
other half is linear: with M = D + rho diag(e) + U W U', the children's sum is met by a shift that
is the same for all but for 1 / s_i, since M is; an exact answer by a shift of its row, since the
rows of A are disjoint and M without U is diagonal; and U is left to Woodbury's formula, whose
matrix (K, K) is the only dense one. An iteration is thus linear in c k, beside c K^2.

**Separable parts.** A row of A without U or G, as all are in a pass that asks for cells alone, is a
small transport problem: the same iteration in closed form, compiled, without a matrix.

Both stop by residuals in records, or by a limit of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from ...census.queries import incidence
from ...solvers.highs import SolveStatus
from .labelled_kernels import ADAPT_EVERY, ITERATIONS, iterate, transported
from .problem import NO_BOUND, Pins, SiblingProblem, SolveRecord, is_refined, numbered

TOLERANCE = 1e-5
"""Largest distance, in records, between a cell and its copy, and of a copy's last step."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What the classes of a pass must meet beside the parent's sums, in the letters above.

    exact, targets : row of A of each class (k,), -1 for none, and h (c, R).
    bounded, lower, upper : row of G of each class (k,), -1 for none, and l, u (c, T).
    allowed : (c, k) classes that a child can have records of.
    """

    exact: np.ndarray
    targets: np.ndarray
    bounded: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    allowed: np.ndarray

    @classmethod
    def of(cls, problem: SiblingProblem, pins: Pins) -> Sums | None:
        """The sums that a problem and its pins hold; None where they have another form: linear
        rows, exact answers that do not nest, totals of groups that other answers do not settle."""
        if problem.rows:
            return None
        c, k = problem.n_children, problem.cells.size
        label, n_types = problem.type_of_cell, problem.lower.shape[1]
        is_exact = (problem.lower == problem.upper).all(axis=0)
        labels, targets = [*pins.labels], [*pins.targets]
        if is_exact.all():
            labels.append(label)
            targets.append(problem.lower.astype(np.float64))
        grouped = problem.grouped_totals
        if grouped is not None and grouped[1].size == c:
            labels.append(np.zeros(k, dtype=np.int64))
            targets.append(grouped[1][grouped[0], None].astype(np.float64))
        held = Pins(tuple(labels), tuple(targets)).finest()
        if len(held.labels) > 1:
            return None
        nothing = np.full(k, -1)
        upper = np.minimum(problem.upper, NO_BOUND)
        allowed = (upper > 0)[:, label]
        if held.labels:
            exact, values = held.labels[0], held.targets[0]
            allowed &= (values > 0)[:, exact]
            if is_refined(label, exact):
                none = np.zeros((c, 0))
                return cls(exact, values, nothing, none, none, allowed)
            if is_exact.any() and not is_exact.all():
                return None
        elif grouped is not None and grouped[1].size < c and not is_exact.all():
            return None
        elif is_exact.any():
            exact = numbered(is_exact)[label]
            values = problem.lower[:, is_exact].astype(np.float64)
            allowed &= np.where(exact >= 0, (values > 0)[:, exact], True)
        else:
            exact, values = nothing, np.zeros((c, 0))
        # An upper bound of 0 is said by `allowed`; one above the parent's count says nothing.
        most = np.full(n_types, NO_BOUND)
        if problem.parent_counts is not None:
            most = np.bincount(label, problem.parent_counts, n_types)
        binds = ((problem.lower > 0) | ((upper > 0) & (upper < most))).any(axis=0)
        own = binds & ~is_exact
        bounded = numbered(own)[label]
        return cls(exact, values, bounded, problem.lower[:, own], upper[:, own], allowed)

    def restricted(self, members: np.ndarray) -> Sums:
        """Those of some classes that share no row with others."""
        exact, targets = _renumbered(self.exact[members], self.targets)
        bounded, lower, upper = _renumbered(self.bounded[members], self.lower, self.upper)
        return Sums(exact, targets, bounded, lower, upper, self.allowed[:, members])


@dataclass(frozen=True, eq=False)
class LabelledProblem:
    """The problem of the module's docstring.

    scale : (c,) s. diagonal : (k,) of D. linear : (c, k) b.
    rows, weights : (n_labels, k) the columns of U that each class is counted in, -1 for none, and
        (K,) the diagonal of W.
    parent : (k,) X, or None at the root.
    """

    scale: np.ndarray
    diagonal: np.ndarray
    linear: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    parent: np.ndarray | None
    sums: Sums


def solve(problem: LabelledProblem, tolerance: float = TOLERANCE) -> tuple[np.ndarray, SolveRecord]:
    """Solve the problem; parts that share no column of U, row of A or of G on their own.

    Returns x (c, k), which meets the sums of the parent and the exact answers up to rounding error,
    and how that ended: by the largest distance, in records, between x and non-negativity, bounds
    and what a child can have, and by the largest step of the copy in the last iteration, in
    records, which is what stationarity lacks.
    """
    (c, k), sums = problem.linear.shape, problem.sums
    part = connected_parts(k, [*problem.rows, sums.exact, sums.bounded])
    is_joined = np.zeros(int(part.max(initial=-1)) + 1, dtype=bool)
    is_joined[part[(problem.rows >= 0).any(axis=0)]] = True
    is_joined[part[sums.bounded >= 0]] = True
    is_joined[part[problem.diagonal <= 0.0]] = True
    # A class that is alone in its row of A has the row's answer, whatever was measured.
    is_alone = (np.bincount(part) == 1)[part] & (sums.exact >= 0)
    is_joined[part[is_alone]] = False
    x = np.zeros((c, k))
    iterations, primal, dual = 0, 0.0, 0.0
    separable = np.flatnonzero(~is_joined[part])
    if separable.size:
        order = separable[np.argsort(part[separable], kind="stable")]
        starts = np.flatnonzero(np.r_[True, np.diff(part[order]) != 0])
        row = sums.exact[order[starts]]
        targets, has_exact = np.zeros((c, starts.size)), row >= 0
        targets[:, has_exact] = sums.targets[:, row[has_exact]]
        solved, iterations, primal, dual = transported(
            problem.scale,
            problem.diagonal[order],
            problem.linear[:, order],
            np.append(starts, order.size),
            np.zeros(0) if problem.parent is None else problem.parent[order].astype(np.float64),
            has_exact,
            targets,
            sums.allowed[:, order],
            tolerance,
        )
        x[:, order] = solved
    joined = np.flatnonzero(is_joined[part])
    for number in np.unique(part[joined]) if joined.size else ():
        members = np.flatnonzero(part == number)
        x[:, members], n, off, step = _solve_joined(_restricted(problem, members), tolerance)
        iterations, primal, dual = iterations + n, max(primal, off), max(dual, step)
    return x, SolveRecord(
        solver="admm",
        status=SolveStatus.OPTIMAL if max(primal, dual) <= tolerance else SolveStatus.LIMIT,
        iterations=int(iterations),
        primal_residual=float(primal),
        dual_residual=float(dual),
        objective_gap=np.nan,
    )


def connected_parts(k: int, labels: list[np.ndarray]) -> np.ndarray:
    """Number `(k,)` of the part of each of k members, which those that share a row of one of the
    labellings (k,) have in common; -1 stands for no row.
    """
    first, second, offset = [], [], k
    for label in labels:
        members = np.flatnonzero(label >= 0)
        first.append(members)
        second.append(label[members] + offset)
        offset += int(label.max(initial=-1)) + 1
    ends = [np.concatenate(side) if side else np.zeros(0, np.int64) for side in (first, second)]
    graph = sparse.coo_array((np.ones(ends[0].size, dtype=np.int8), tuple(ends)), (offset, offset))
    _, part = sparse.csgraph.connected_components(graph.tocsr(), directed=False)
    return np.unique(part[:k], return_inverse=True)[1].reshape(-1)


def _restricted(problem: LabelledProblem, members: np.ndarray) -> LabelledProblem:
    """The problem of some classes that share no row with others."""
    rows, weights = _renumbered(problem.rows[:, members], problem.weights[None])
    return LabelledProblem(
        problem.scale,
        problem.diagonal[members],
        problem.linear[:, members],
        rows[(rows >= 0).any(axis=1)],
        weights[0],
        None if problem.parent is None else problem.parent[members],
        problem.sums.restricted(members),
    )


def _renumbered(label: np.ndarray, *values: np.ndarray) -> Iterator[np.ndarray]:
    """A labelling with the rows that it has numbered anew, and the values (c, n) of these."""
    used = np.unique(label[label >= 0])
    yield np.where(label >= 0, np.searchsorted(used, label), -1)
    yield from (of_rows[:, used] for of_rows in values)


def _solve_joined(
    problem: LabelledProblem, tolerance: float
) -> tuple[np.ndarray, int, float, float]:
    """Solve a problem whose classes rows of U or G join: iterate, with another penalty where one
    residual runs ahead of the other. Returns x (c, k), the iterations and both residuals."""
    sums, k = problem.sums, problem.diagonal.size
    positive = problem.diagonal[problem.diagonal > 0.0]
    usual = float(np.median(positive)) if positive.size else 1.0
    if not positive.size and problem.weights.size:
        usual = float(problem.weights.mean())
    metric = np.where(problem.diagonal > 0.0, problem.diagonal, usual)
    first_bounded, n_bounded = problem.weights.size, sums.lower.shape[1]
    rows, weights = problem.rows.reshape(-1, k), problem.weights
    if n_bounded:
        own = np.where(sums.bounded >= 0, sums.bounded + first_bounded, -1)
        rows, weights = np.vstack([rows, own]), np.append(weights, np.ones(n_bounded))
    shape = weights.size, k
    members = sum((incidence(row, weights.size) for row in rows), sparse.csr_array(shape))
    lower, upper, targets = (_of_children(of) for of in (sums.lower, sums.upper, sums.targets))
    parent = np.zeros(0) if problem.parent is None else problem.parent.astype(np.float64)
    most = np.where(np.ascontiguousarray(sums.allowed.T), np.inf, 0.0)
    linear, z = _of_children(problem.linear), _start(problem, parent, targets)
    x, u = z.copy(), np.zeros(z.shape)
    zg, ug = np.zeros(lower.shape), np.zeros(lower.shape)
    rho, done, primal, dual = 1.0, 0, np.inf, np.inf
    is_new = True
    while done < ITERATIONS:
        if is_new:
            weights[first_bounded:] = rho * usual
            inverse = 1.0 / (problem.diagonal + rho * metric)
            inner, of_row = _factored(inverse, members, weights, sums.exact, len(targets))
        n, primal, dual = iterate(
            problem.scale,
            linear,
            problem.diagonal,
            metric,
            rho,
            np.ascontiguousarray(rows.T),
            weights,
            inner,
            parent,
            sums.exact,
            of_row,
            targets,
            first_bounded,
            lower,
            upper,
            usual,
            most,
            x,
            z,
            u,
            zg,
            ug,
            ADAPT_EVERY,
            tolerance,
        )
        done += n
        if primal <= tolerance and dual <= tolerance:
            break
        # The dual residual is rho times the step of the copy, in units of the metric.
        ratio = np.sqrt(max(primal, 1e-12) / max(rho * dual, 1e-12))
        is_new = not 1 / 3 < ratio < 3
        if is_new:
            factor = min(max(ratio, 0.1), 10.0)
            rho, u, ug = rho * factor, u / factor, ug / factor
    return x.T, done, primal, dual


def _start(problem: LabelledProblem, parent: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Every row of exact answers shared out as the parent's (k, c); zero without a parent."""
    c, k = problem.linear.shape
    if not parent.size:
        return np.zeros((k, c))
    if not len(targets):
        return np.repeat(parent[:, None] / c, c, axis=1)
    exact = np.maximum(problem.sums.exact, 0)
    share = targets / np.maximum(np.bincount(exact, parent, len(targets)), 1.0)[:, None]
    return np.where(problem.sums.allowed.T, share[exact] * parent[:, None], 0.0)


def _factored(
    inverse: np.ndarray,
    members: sparse.csr_array,
    weights: np.ndarray,
    exact: np.ndarray,
    n_exact: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Inverse (K, K) of W^-1 + U' P U, and the sums (R,) of the inverse metric by row of A.

    P is the `inverse` (k,) of D + rho e on what the exact answers leave free; `members` is U'.
    """
    of_exact = incidence(exact, n_exact)
    of_row = of_exact @ inverse
    of_row[of_row == 0.0] = 1.0
    if not weights.size:
        return np.zeros((0, 0)), of_row
    scaled = sparse.diags_array(inverse) @ members.T
    matrix = (members @ scaled).toarray()
    matrix[np.diag_indices(weights.size)] += 1.0 / weights
    crossed = of_exact @ scaled
    matrix -= (crossed.T @ (sparse.diags_array(1.0 / of_row) @ crossed)).toarray()
    return np.ascontiguousarray(linalg.inv(matrix, check_finite=False)), of_row


def _of_children(values: np.ndarray) -> np.ndarray:
    """Numbers (c, n) of children as (n, c), where loops over children are vectorised."""
    return np.ascontiguousarray(values.T, dtype=np.float64)
