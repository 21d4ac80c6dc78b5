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

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy import linalg, sparse

TOLERANCE = 1e-5
"""Largest distance, in records, between a cell and its copy, and of a copy's last step."""
ITERATIONS = 4000
"""Most iterations; those of a problem that has not come to its tolerance are reported."""
RELAXATION = 1.6
ADAPT_EVERY = 40
"""Iterations between changes of the penalty, each of which costs a factorisation."""


@dataclass(frozen=True, eq=False)
class LabelledProblem:
    """The problem of the module's docstring.

    scale : (c,) s. diagonal : (k,) of D. linear : (c, k) b.
    rows, weights : (n_labels, k) the columns of U that each class is counted in, -1 for none, and
        (K,) the diagonal of W.
    parent : (k,) X, or None at the root.
    exact, targets : (k,) row of A of each class, and (c, R) h; None where there are no such.
    bounded, lower, upper : (k,) row of G of each class, and (c, T) l, u; None likewise.
    allowed : (c, k).
    """

    scale: np.ndarray
    diagonal: np.ndarray
    linear: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    parent: np.ndarray | None
    exact: np.ndarray | None
    targets: np.ndarray | None
    bounded: np.ndarray | None
    lower: np.ndarray | None
    upper: np.ndarray | None
    allowed: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelledSolution:
    """`x` (c, k), which meets the sums of the parent and the exact answers up to rounding error.

    primal : largest distance between x and non-negativity, bounds and what a child can have, in
        records. dual : largest step of the copy in the last iteration, in records, which is what
        stationarity lacks.
    """

    x: np.ndarray
    iterations: int
    primal: float
    dual: float


def solve(problem: LabelledProblem, tolerance: float = TOLERANCE) -> LabelledSolution:
    """Solve the problem; parts that share no column of U, row of A or of G on their own."""
    c, k = problem.linear.shape
    part = _parts(problem)
    is_joined = np.zeros(int(part.max(initial=-1)) + 1, dtype=bool)
    is_joined[part[(problem.rows >= 0).any(axis=0)]] = True
    if problem.bounded is not None:
        is_joined[part[problem.bounded >= 0]] = True
    is_joined[part[problem.diagonal <= 0.0]] = True
    if problem.exact is not None:
        # A class that is alone in its row of A has the row's answer, whatever was measured.
        is_alone = (np.bincount(part) == 1)[part] & (problem.exact >= 0)
        is_joined[part[is_alone]] = False
    x = np.zeros((c, k))
    iterations, primal, dual = 0, 0.0, 0.0
    separable = np.flatnonzero(~is_joined[part])
    if separable.size:
        order = separable[np.argsort(part[separable], kind="stable")]
        starts = np.flatnonzero(np.r_[True, np.diff(part[order]) != 0])
        targets, has_exact = np.zeros((c, starts.size)), np.zeros(starts.size, dtype=bool)
        if problem.exact is not None and problem.targets is not None:
            row = problem.exact[order[starts]]
            targets, has_exact = problem.targets[:, row], row >= 0
        solved, iterations, primal, dual = _separable(
            problem.scale,
            problem.diagonal[order],
            problem.linear[:, order],
            np.append(starts, order.size),
            np.zeros(0) if problem.parent is None else problem.parent[order].astype(np.float64),
            has_exact,
            targets.astype(np.float64),
            problem.allowed[:, order],
            tolerance,
        )
        x[:, order] = solved
    joined = np.flatnonzero(is_joined[part])
    for number in np.unique(part[joined]) if joined.size else ():
        members = np.flatnonzero(part == number)
        solution = _Joined(_restricted(problem, members)).solve(tolerance)
        x[:, members] = solution.x
        iterations += solution.iterations
        primal, dual = max(primal, solution.primal), max(dual, solution.dual)
    return LabelledSolution(x, int(iterations), float(primal), float(dual))


def _parts(problem: LabelledProblem) -> np.ndarray:
    """Number `(k,)` of the part of each class: classes of one row of U, A or G share it."""
    k = problem.diagonal.size
    labels = [row for row in (*problem.rows, problem.exact, problem.bounded) if row is not None]
    return connected_parts(k, labels)


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
    rows = problem.rows[:, members]
    used = np.unique(rows[rows >= 0])
    position = np.full(problem.weights.size + 1, -1, dtype=np.int64)
    position[used] = np.arange(used.size)
    rows = position[rows]
    exact, targets = _renumbered(problem.exact, members, problem.targets)
    bounded, lower = _renumbered(problem.bounded, members, problem.lower)
    _, upper = _renumbered(problem.bounded, members, problem.upper)
    return LabelledProblem(
        problem.scale,
        problem.diagonal[members],
        problem.linear[:, members],
        rows[(rows >= 0).any(axis=1)],
        problem.weights[used],
        None if problem.parent is None else problem.parent[members],
        exact,
        targets,
        bounded,
        lower,
        upper,
        problem.allowed[:, members],
    )


def _renumbered(
    label: np.ndarray | None, members: np.ndarray, values: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """A labelling of some classes with its rows numbered anew, and the values (c, n) of these."""
    if label is None or values is None or (label[members] < 0).all():
        return None, None
    own = label[members]
    used = np.unique(own[own >= 0])
    number = np.where(own >= 0, np.searchsorted(used, np.maximum(own, 0)), -1)
    return number, values[:, used]


@njit(cache=True, nogil=True)
def _add_rows(rows: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write U'x (K,) of one child's classes x (k,) to `out`."""
    out[:] = 0.0
    for q in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            if rows[q, j] >= 0:
                out[rows[q, j]] += x[j]


@njit(cache=True, nogil=True)
def _held(
    exact: np.ndarray, inverse: np.ndarray, of_row: np.ndarray, x: np.ndarray, h: np.ndarray
) -> None:
    """Move x (k,) to the sums h (R,) of its rows, by the least shift in the metric of `inverse`."""
    sums = h.copy()
    for j in range(x.size):
        if exact[j] >= 0:
            sums[exact[j]] -= x[j]
    sums /= of_row
    for j in range(x.size):
        if exact[j] >= 0:
            x[j] += inverse[j] * sums[exact[j]]


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(
    scale: np.ndarray,
    linear: np.ndarray,
    diagonal: np.ndarray,
    metric: np.ndarray,
    rho: float,
    rows: np.ndarray,
    weights: np.ndarray,
    inner: np.ndarray,
    parent: np.ndarray,
    exact: np.ndarray,
    of_row: np.ndarray,
    targets: np.ndarray,
    first_bounded: int,
    lower: np.ndarray,
    upper: np.ndarray,
    bounded_metric: float,
    allowed: np.ndarray,
    x: np.ndarray,
    z: np.ndarray,
    u: np.ndarray,
    zg: np.ndarray,
    ug: np.ndarray,
    n_iterations: int,
    tolerance: float,
) -> tuple[int, float, float]:
    """Iterations of ADMM on z, u (c, k) and zg, ug (c, T), in place; x (c, k) is the last linear
    half. Returns their number, and the primal and the dual residual in records.
    """
    c, k = linear.shape
    has_parent = parent.size > 0
    inverse = 1.0 / (diagonal + rho * metric)
    shift = np.zeros(k)
    inverse_scales = 0.0
    for i in range(c):
        inverse_scales += 1.0 / scale[i]
    answers = np.empty(weights.size)
    full_weights = weights.copy()
    full_weights[first_bounded:] = rho * bounded_metric
    of_parent = np.zeros(k)
    if has_parent:
        _add_rows(rows, parent, answers)
        answers *= full_weights
        of_parent[:] = parent / inverse
        for q in range(rows.shape[0]):
            for j in range(k):
                if rows[q, j] >= 0:
                    of_parent[j] += answers[rows[q, j]]
    right = np.empty((c, k))
    sums = np.empty((c, weights.size))
    half = np.empty(k)
    primal = dual = np.inf
    done = 0
    while done < n_iterations:
        done += 1
        shift[:] = -of_parent
        for i in range(c):
            for j in range(k):
                right[i, j] = linear[i, j] + rho * metric[j] * (z[i, j] - u[i, j])
            if zg.shape[1] > 0:
                wanted = rho * bounded_metric * (zg[i] - ug[i])
                for j in range(k):
                    row = rows[rows.shape[0] - 1, j]
                    if row >= first_bounded:
                        right[i, j] += wanted[row - first_bounded]
            if has_parent:
                shift += right[i]
        for i in range(c):
            if has_parent:
                right[i] -= shift / (scale[i] * inverse_scales)
            for j in range(k):
                x[i, j] = inverse[j] * right[i, j]
            if of_row.size > 0:
                _held(exact, inverse, of_row, x[i], targets[i])
            _add_rows(rows, x[i], answers)
            sums[i] = answers
        if weights.size > 0:
            sums = np.dot(sums, inner)
        primal = dual = 0.0
        zeros = np.zeros(of_row.size)
        for i in range(c):
            if weights.size > 0:
                half[:] = 0.0
                for q in range(rows.shape[0]):
                    for j in range(k):
                        if rows[q, j] >= 0:
                            half[j] += sums[i, rows[q, j]]
                half *= inverse
                if of_row.size > 0:
                    _held(exact, inverse, of_row, half, zeros)
                for j in range(k):
                    x[i, j] -= half[j]
            for j in range(k):
                relaxed = RELAXATION * x[i, j] + (1.0 - RELAXATION) * z[i, j]
                copy = max(0.0, relaxed + u[i, j]) if allowed[i, j] else 0.0
                dual = max(dual, abs(copy - z[i, j]))
                primal = max(primal, abs(x[i, j] - copy))
                u[i, j] += relaxed - copy
                z[i, j] = copy
            if zg.shape[1] > 0:
                _add_rows(rows, x[i], answers)
                for t in range(zg.shape[1]):
                    relaxed = RELAXATION * answers[first_bounded + t]
                    relaxed += (1.0 - RELAXATION) * zg[i, t]
                    copy = min(max(lower[i, t], relaxed + ug[i, t]), upper[i, t])
                    dual = max(dual, abs(copy - zg[i, t]))
                    primal = max(primal, abs(answers[first_bounded + t] - copy))
                    ug[i, t] += relaxed - copy
                    zg[i, t] = copy
        if primal <= tolerance and dual <= tolerance:
            break
    return done, primal, dual


class _Joined:
    """Classes that rows of U or G join, as the iterations take them."""

    def __init__(self, problem: LabelledProblem) -> None:
        self.problem = problem
        c, k = problem.linear.shape
        positive = problem.diagonal[problem.diagonal > 0.0]
        usual = float(np.median(positive)) if positive.size else 1.0
        if not positive.size and problem.weights.size:
            usual = float(problem.weights.mean())
        self.metric = np.where(problem.diagonal > 0.0, problem.diagonal, usual)
        self.bounded_metric = usual
        self.rows, self.weights = problem.rows, problem.weights
        self.first_bounded = problem.weights.size
        self.lower = self.upper = np.zeros((c, 0))
        if problem.bounded is not None and problem.lower is not None and problem.upper is not None:
            own = np.where(problem.bounded >= 0, problem.bounded + self.first_bounded, -1)
            self.rows = np.vstack([self.rows.reshape(-1, k), own])
            self.weights = np.append(self.weights, np.ones(problem.lower.shape[1]))
            self.lower = problem.lower.astype(np.float64)
            self.upper = problem.upper.astype(np.float64)
        self.rows = np.ascontiguousarray(self.rows.reshape(-1, k))
        self.exact, self.targets = np.full(k, -1), np.zeros((c, 0))
        if problem.exact is not None and problem.targets is not None:
            self.exact, self.targets = problem.exact, problem.targets.astype(np.float64)

    def solve(self, tolerance: float) -> LabelledSolution:
        """Iterate, with another penalty where one residual runs ahead of the other."""
        problem = self.problem
        c, k = problem.linear.shape
        parent = np.zeros(0) if problem.parent is None else problem.parent.astype(np.float64)
        z = self._start(parent)
        x, u = z.copy(), np.zeros((c, k))
        zg = np.zeros((c, self.lower.shape[1]))
        ug = np.zeros_like(zg)
        rho, done, primal, dual = 1.0, 0, np.inf, np.inf
        inner, of_row = self._factored(rho)
        while done < ITERATIONS:
            n, primal, dual = _iterate(
                problem.scale,
                np.ascontiguousarray(problem.linear),
                problem.diagonal,
                self.metric,
                rho,
                self.rows,
                self.weights,
                inner,
                parent,
                self.exact,
                of_row,
                self.targets,
                self.first_bounded,
                self.lower,
                self.upper,
                self.bounded_metric,
                np.ascontiguousarray(problem.allowed),
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
            if not 1 / 3 < ratio < 3:
                factor = min(max(ratio, 0.1), 10.0)
                rho, u, ug = rho * factor, u / factor, ug / factor
                inner, of_row = self._factored(rho)
        return LabelledSolution(x, done, primal, dual)

    def _start(self, parent: np.ndarray) -> np.ndarray:
        """Every row of exact answers shared out as the parent's; zero without a parent."""
        problem = self.problem
        c, k = problem.linear.shape
        if not parent.size:
            return np.zeros((c, k))
        if not self.targets.shape[1]:
            return np.repeat(parent[None, :] / c, c, axis=0)
        row = np.bincount(np.maximum(self.exact, 0), parent, self.targets.shape[1])
        share = self.targets / np.maximum(row, 1.0)
        return np.where(problem.allowed, share[:, np.maximum(self.exact, 0)] * parent, 0.0)

    def _factored(self, rho: float) -> tuple[np.ndarray, np.ndarray]:
        """Inverse (K, K) of W^-1 + U' P U, and the sums (R,) of the inverse metric by row of A.

        P is the inverse of D + rho e on what the exact answers leave free.
        """
        k, n_rows = self.rows.shape[1], self.weights.size
        inverse = 1.0 / (self.problem.diagonal + rho * self.metric)
        members = self.rows >= 0
        q, j = np.nonzero(members)
        columns = sparse.csr_array((np.ones(q.size), (j, self.rows[q, j])), (k, n_rows))
        weights = self.weights.copy()
        weights[self.first_bounded :] = rho * self.bounded_metric
        matrix = (columns.T @ (columns * inverse[:, None])).toarray()
        matrix[np.diag_indices(n_rows)] += 1.0 / weights
        of_row: np.ndarray = np.zeros(0)
        if self.targets.shape[1]:
            held = self.exact >= 0
            n_exact = self.targets.shape[1]
            of_row = np.bincount(self.exact[held], inverse[held], n_exact)
            of_row[of_row == 0.0] = 1.0
            where = (self.exact[held], np.flatnonzero(held))
            into = sparse.csr_array((inverse[held], where), (n_exact, k))
            crossed = into @ columns
            scaled = sparse.csr_array(crossed / of_row[:, None])
            matrix -= (crossed.T @ scaled).toarray()
        if not n_rows:
            return matrix, of_row
        return np.ascontiguousarray(linalg.inv(matrix, check_finite=False)), of_row


@njit(cache=True, nogil=True, error_model="numpy")
def _separable(
    scale: np.ndarray,
    diagonal: np.ndarray,
    linear: np.ndarray,
    starts: np.ndarray,
    parent: np.ndarray,
    has_exact: np.ndarray,
    targets: np.ndarray,
    allowed: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, int, float, float]:
    """Parts starts[p] to starts[p + 1] of the classes, one after the other, each a transport
    problem with weights scale[i] diagonal[j]: `_iterate` with the penalty in the same metric.
    """
    c, k = linear.shape
    x = np.zeros((c, k))
    inverse_scales = 0.0
    for i in range(c):
        inverse_scales += 1.0 / scale[i]
    total, worst_primal, worst_dual = 0, 0.0, 0.0
    for p in range(starts.size - 1):
        a, b = starts[p], starts[p + 1]
        if b - a == 1 and has_exact[p]:
            for i in range(c):
                x[i, a] = targets[i, p]
            continue
        inverses = 0.0
        for j in range(a, b):
            inverses += 1.0 / diagonal[j]
        rho = 1.0
        z, u = np.zeros((c, b - a)), np.zeros((c, b - a))
        for i in range(c):
            for j in range(a, b):
                z[i, j - a] = max(0.0, linear[i, j] / diagonal[j]) if allowed[i, j] else 0.0
        short = np.zeros(c)
        primal = dual = np.inf
        n = 0
        for n in range(1, ITERATIONS + 1):
            for i in range(c):
                for j in range(a, b):
                    wanted = linear[i, j] / diagonal[j] + rho * (z[i, j - a] - u[i, j - a])
                    x[i, j] = wanted / (1.0 + rho)
            mean = 0.0
            if has_exact[p]:
                for i in range(c):
                    short[i] = (targets[i, p] - x[i, a:b].sum()) / inverses
                    mean += short[i]
            for j in range(a, b):
                beta = 0.0
                if parent.size > 0:
                    missing = parent[j]
                    for i in range(c):
                        missing -= x[i, j]
                    beta = (diagonal[j] * missing - mean) / inverse_scales
                for i in range(c):
                    added = beta / scale[i]
                    if has_exact[p]:
                        added += short[i]
                    x[i, j] += added / diagonal[j]
            primal = dual = 0.0
            for i in range(c):
                for j in range(a, b):
                    relaxed = RELAXATION * x[i, j] + (1.0 - RELAXATION) * z[i, j - a]
                    copy = max(0.0, relaxed + u[i, j - a]) if allowed[i, j] else 0.0
                    dual = max(dual, abs(copy - z[i, j - a]))
                    primal = max(primal, abs(x[i, j] - copy))
                    u[i, j - a] += relaxed - copy
                    z[i, j - a] = copy
            if primal <= tolerance and dual <= tolerance:
                break
            if n % ADAPT_EVERY == 0:
                ratio = np.sqrt(max(primal, 1e-12) / max(rho * dual, 1e-12))
                if ratio > 3.0 or ratio < 1.0 / 3.0:
                    ratio = min(max(ratio, 0.1), 10.0)
                    rho *= ratio
                    u /= ratio
        total += n
        worst_primal, worst_dual = max(worst_primal, primal), max(worst_dual, dual)
    return x, total, worst_primal, worst_dual
