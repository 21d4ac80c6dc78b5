"""Compiled iterations of `labelled_least_squares`, whose docstring has the problem and its letters.

Arrays of classes and children are (k, c), and those of rows and children (K, c), (R, c) and (T, c):
loops over the children of a parent are the inner ones, and are vectorised. `rows` are
(k, n_labels), the columns of U that each class is counted in, -1 for none.
"""

from __future__ import annotations

import numpy as np
from numba import njit

ITERATIONS = 4000
"""Most iterations; those of a problem that has not come to its tolerance are reported."""
RELAXATION = 1.6
ADAPT_EVERY = 40
"""Iterations between changes of the penalty, each of which costs a factorisation."""


@njit(cache=True, nogil=True)
def _add_rows(rows: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write U'x (K, c) of the children's classes x (k, c) to `out`."""
    out[:] = 0.0
    is_alone = x.shape[1] == 1  # A loop over one child takes longer to begin than to run.
    for j in range(rows.shape[0]):
        for q in range(rows.shape[1]):
            row = rows[j, q]
            if row >= 0 and is_alone:
                out[row, 0] += x[j, 0]
            elif row >= 0:
                for i in range(x.shape[1]):
                    out[row, i] += x[j, i]


@njit(cache=True, nogil=True)
def _add_answers(rows: np.ndarray, answers: np.ndarray, out: np.ndarray) -> None:
    """Add U s (k, c) of the children's s (K, c) to `out`."""
    is_alone = out.shape[1] == 1
    for j in range(rows.shape[0]):
        for q in range(rows.shape[1]):
            row = rows[j, q]
            if row >= 0 and is_alone:
                out[j, 0] += answers[row, 0]
            elif row >= 0:
                for i in range(out.shape[1]):
                    out[j, i] += answers[row, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _held(
    exact: np.ndarray, inverse: np.ndarray, of_row: np.ndarray, x: np.ndarray, short: np.ndarray
) -> None:
    """Move x (k, c) to given sums of its rows, by the least shift in the metric of `inverse`;
    `short` (R, c) has these sums, and then the shifts."""
    is_alone = x.shape[1] == 1
    for j in range(x.shape[0]):
        row = exact[j]
        if row >= 0 and is_alone:
            short[row, 0] -= x[j, 0]
        elif row >= 0:
            for i in range(x.shape[1]):
                short[row, i] -= x[j, i]
    for row in range(short.shape[0]):
        for i in range(x.shape[1]):
            short[row, i] /= of_row[row]
    for j in range(x.shape[0]):
        row = exact[j]
        if row >= 0 and is_alone:
            x[j, 0] += inverse[j] * short[row, 0]
        elif row >= 0:
            for i in range(x.shape[1]):
                x[j, i] += inverse[j] * short[row, i]


@njit(cache=True, nogil=True)
def _enter_pull(
    linear: np.ndarray, penalty: np.ndarray, z: np.ndarray, u: np.ndarray, out: np.ndarray
) -> None:
    """Write the right-hand side of the linear half to `out`, all flat."""
    for n in range(out.size):
        out[n] = linear[n] + penalty[n] * (z[n] - u[n])


@njit(cache=True, nogil=True)
def _enter_product(factor: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """Write products to `out`, which may be one of the factors, all flat."""
    for n in range(out.size):
        out[n] = factor[n] * values[n]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _clipped(
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray, z: np.ndarray, u: np.ndarray
) -> tuple[float, float]:
    """The other half of an iteration, in place: the copy z of x between bounds, and u, all flat;
    the largest distance of x from its copy, and the largest step of that."""
    primal = dual = 0.0
    for n in range(x.size):
        relaxed = RELAXATION * x[n] + (1.0 - RELAXATION) * z[n]
        copy = relaxed + u[n]
        copy = lower[n] if copy < lower[n] else copy
        copy = upper[n] if copy > upper[n] else copy
        step, apart = abs(copy - z[n]), abs(x[n] - copy)
        dual = step if step > dual else dual
        primal = apart if apart > primal else primal
        u[n] += relaxed - copy
        z[n] = copy
    return primal, dual


@njit(cache=True, nogil=True, error_model="numpy")
def iterate(
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
    most: np.ndarray,
    x: np.ndarray,
    z: np.ndarray,
    u: np.ndarray,
    zg: np.ndarray,
    ug: np.ndarray,
    n_iterations: int,
    tolerance: float,
) -> tuple[int, float, float]:
    """Iterations of ADMM on z, u (k, c) and zg, ug (T, c), in place; x (k, c) is the last linear
    half. Returns their number, and the primal and the dual residual in records.
    """
    k, c = linear.shape
    has_parent = parent.size > 0
    inverse = 1.0 / (diagonal + rho * metric)
    inverse_scales = (1.0 / scale).sum()
    share = scale * inverse_scales
    least = np.zeros((k, c))
    of_parent = np.zeros((k, 1))
    # The part of the right-hand side that gives every child's cells the parent's sums.
    if has_parent:
        of_parent[:, 0] = parent / inverse
        answers = np.empty((weights.size, 1))
        _add_rows(rows, parent.reshape(k, 1), answers)
        for row in range(weights.size):
            weight = weights[row] if row < first_bounded else rho * bounded_metric
            answers[row, 0] *= weight
        _add_answers(rows, answers, of_parent)
    inverses, penalties = np.empty((k, c)), np.empty((k, c))
    for j in range(k):
        inverses[j], penalties[j] = inverse[j], rho * metric[j]
    bounded = np.ascontiguousarray(rows[:, rows.shape[1] - 1 :]) - first_bounded
    right, half = np.empty((k, c)), np.empty((k, c))
    sums, of_bounded = np.empty((weights.size, c)), np.empty((zg.shape[0], c))
    wanted, short = np.empty((zg.shape[0], c)), np.empty((of_row.size, c))
    primal = dual = np.inf
    done = 0
    while done < n_iterations:
        done += 1
        for t in range(zg.shape[0]):
            for i in range(c):
                wanted[t, i] = rho * bounded_metric * (zg[t, i] - ug[t, i])
        _enter_pull(linear.ravel(), penalties.ravel(), z.ravel(), u.ravel(), right.ravel())
        if zg.shape[0] > 0:
            _add_answers(bounded, wanted, right)
        if has_parent:
            for j in range(k):
                shift = -of_parent[j, 0]
                for i in range(c):
                    shift += right[j, i]
                for i in range(c):
                    right[j, i] -= shift / share[i]
        _enter_product(inverses.ravel(), right.ravel(), x.ravel())
        if of_row.size > 0:
            short[:] = targets
            _held(exact, inverse, of_row, x, short)
        if weights.size > 0:
            # Woodbury: answers of x, times the small inverse, and back to the cells. Where answers
            # are exact, what goes back may not change them either.
            _add_rows(rows, x, sums)
            sums[:] = np.dot(np.ascontiguousarray(sums.T), inner).T
            half[:] = 0.0
            _add_answers(rows, sums, half)
            _enter_product(inverses.ravel(), half.ravel(), half.ravel())
            if of_row.size > 0:
                short[:] = 0.0
                _held(exact, inverse, of_row, half, short)
            x -= half
        primal, dual = _clipped(x.ravel(), least.ravel(), most.ravel(), z.ravel(), u.ravel())
        if zg.shape[0] > 0:
            _add_rows(rows, x, sums)
            of_bounded[:] = sums[first_bounded:]
            apart, step = _clipped(
                of_bounded.ravel(), lower.ravel(), upper.ravel(), zg.ravel(), ug.ravel()
            )
            primal, dual = max(primal, apart), max(dual, step)
        if primal <= tolerance and dual <= tolerance:
            break
    return done, primal, dual


@njit(cache=True, nogil=True, error_model="numpy")
def transported(
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
    problem with weights scale[i] diagonal[j]: `iterate` with the penalty in the same metric.
    """
    c, k = linear.shape
    x = np.zeros((c, k))
    inverse_scales = (1.0 / scale).sum()
    total, worst_primal, worst_dual = 0, 0.0, 0.0
    for p in range(starts.size - 1):
        a, b = starts[p], starts[p + 1]
        # A part of one class is told by its exact answers.
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
            # Sums of children and of classes are met at once: a child shares what it lacks over its
            # classes, and a class over children what it lacks beyond what these shares bring it;
            # as both lack the same in all, the second step leaves the first's sums alone.
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
            # A penalty that keeps both residuals alike; u is in units of 1 / rho.
            if n % ADAPT_EVERY == 0:
                ratio = np.sqrt(max(primal, 1e-12) / max(rho * dual, 1e-12))
                if ratio > 3.0 or ratio < 1.0 / 3.0:
                    ratio = min(max(ratio, 0.1), 10.0)
                    rho *= ratio
                    u /= ratio
        total += n
        worst_primal, worst_dual = max(worst_primal, primal), max(worst_dual, dual)
    return x, total, worst_primal, worst_dual
