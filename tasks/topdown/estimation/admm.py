"""The alternating direction method of multipliers for siblings' least squares, compiled.

Approaches the solution of the program that `active_set` solves, for siblings with one common
Hessian H up to their scales s_i. The splitting puts the equalities with the quadratic and the
inequalities into a projection. With penalties s_i R the quadratic step has the common matrix
H + R: the sum over children becomes a shift of every child by lambda / s_i, and the pins one small
solve per group, so an iteration is one product of a (c, k) with a (k, k) matrix ([ADMM2011],
over-relaxed). Some iterations suffice to determine zero cells and binding bounds;
`active_set` then finds the solution exactly.

R is diagonal, and small where the parent's counts are large against the noise: such cells will not
be zero, and their copies in the projection would only slow the others down.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .inverse_covariance import add_product, blocks_inverse
from .quadratic import Constraints, Quadratic, curvature, inverse_of_sum, slope_of, thin_inverse

RELAXATION = 1.6
SETTLED = 1000
"""The zeros count as found once an iteration changes at most one cell in this number."""
FEWEST = 5
"""Iterations made in any case."""
SMALLEST_PENALTY, LARGEST_PENALTY = 0.01, 2.0
"""Penalties in terms of the weight of a cell's own answer, and of the Hessian's mean diagonal."""
NOISE_PENALTY = 3.0
"""Penalty where the noise is as large as the count, in terms of the weight of a cell's answer."""


@njit(cache=True, nogil=True, error_model="numpy")
def _project_bounded_sum(
    values: np.ndarray,
    weight: np.ndarray,
    low: float,
    high: float,
    allowed: np.ndarray,
    out: np.ndarray,
) -> None:
    """Nearest point of {z >= 0, low <= sum z <= high, z = 0 where not allowed} in the norm that
    weighs squares by `weight`.

    Newton's method on the multiplier of the sum, from all allowed cells active.
    """
    n = values.size
    positive = 0.0
    total = 0.0
    reach = 0.0
    for j in range(n):
        out[j] = 0.0
        if allowed[j]:
            reach += 1.0 / weight[j]
            total += values[j]
            if values[j] > 0.0:
                out[j] = values[j]
                positive += values[j]
    if low <= positive <= high or reach == 0.0:
        return
    target = high if positive > high else low
    # The remaining sum falls with theta and is convex, so Newton's method from below reaches the
    # root without passing it, and ends once no further cell becomes zero.
    theta = (total - target) / reach
    for _ in range(n + 2):
        total = 0.0
        reach = 0.0
        for j in range(n):
            if allowed[j] and values[j] > theta / weight[j]:
                total += values[j] - theta / weight[j]
                reach += 1.0 / weight[j]
        if reach == 0.0:
            break
        step = (total - target) / reach
        theta += step
        if step <= 1e-15 * (1.0 + abs(theta)):
            break
    for j in range(n):
        value = values[j] - theta / weight[j]
        out[j] = value if allowed[j] and value > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _own_answers(quadratic: Quadratic, k: int) -> tuple[np.ndarray, float]:
    """Mean noisy answer of every cell (c, k) by queries that distinguish all cells, and its weight;
    zero without such queries.
    """
    c = quadratic.scale.size
    own = np.zeros((c, k))
    total = 0.0
    for q in range(quadratic.labels.shape[0]):
        label = quadratic.labels[q]
        if quadratic.starts[q + 1] - quadratic.starts[q] == k:
            weight = quadratic.weights[0, q]
            total += weight
            for i in range(c):
                for j in range(k):
                    own[i, j] += weight * quadratic.answers[i, label[j]]
    if total > 0.0:
        for i in range(c):
            for j in range(k):
                own[i, j] /= total
    return own, total


@njit(cache=True, nogil=True, error_model="numpy")
def _first_point_by_covariance(
    quadratic: Quadratic, constraints: Constraints
) -> tuple[np.ndarray, np.ndarray]:
    """As `first_point`: the estimates with negative values set to 0, and penalties by the cells'
    own precisions.
    """
    c, k = constraints.allowed.shape
    start = np.empty((c, k))
    for i in range(c):
        for j in range(k):
            centre = quadratic.covariance.centre[i, j]
            start[i, j] = centre if centre >= 0.0 else 0.0
    penalty, weight, mean = np.empty(k), np.zeros(k), np.zeros(k)
    total = quadratic.scale.sum()
    for i in range(c):
        diagonal = curvature(quadratic, i)
        for j in range(k):
            weight[j] += diagonal[j] / total
            mean[j] += start[i, j] / c
    for j in range(k):
        # The standard deviation of one child's cell, by the mean precision.
        noise = 1.0 / np.sqrt(weight[j] * total / c)
        wanted = NOISE_PENALTY * weight[j] * noise / max(mean[j], 1e-9)
        penalty[j] = min(max(wanted, SMALLEST_PENALTY * weight[j]), LARGEST_PENALTY * weight[j])
    return start, penalty


@njit(cache=True, nogil=True, error_model="numpy")
def _mean_covariance(quadratic: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """The children's mean matrix, less their scales, as W and G of `InverseCovariance`."""
    total, covariance = quadratic.scale.sum(), quadratic.covariance
    c, n = covariance.within.shape[:2]
    within, across = np.zeros((n, n)), np.zeros((n, n))
    for i in range(c):
        for u in range(n):
            for v in range(n):
                within[u, v] += covariance.within[i, u, v]
                across[u, v] += covariance.across[i, u, v]
    for u in range(n):
        for v in range(n):
            within[u, v] /= total
            across[u, v] /= total
    return within, across


@njit(cache=True, nogil=True, error_model="numpy")
def _linear_terms_by_covariance(
    quadratic: Quadratic, within: np.ndarray, across: np.ndarray
) -> np.ndarray:
    """Terms (c, k) by which the mean matrix has every child's own gradient at its centre."""
    covariance = quadratic.covariance
    classes, levels = covariance.class_of_cell, covariance.level_of_cell
    c, k = covariance.centre.shape
    linear = np.empty((c, k))
    for i in range(c):
        for j in range(k):
            linear[i, j] = covariance.pull[i, j] / quadratic.scale[i]
        add_product(within, across, classes, levels, covariance.centre[i], linear[i])
    return linear


@njit(cache=True, nogil=True, error_model="numpy")
def first_point(quadratic: Quadratic, constraints: Constraints) -> tuple[np.ndarray, np.ndarray]:
    """The first point (c, k), and the penalties (k,)."""
    c, k = constraints.allowed.shape
    if quadratic.covariance.within.shape[0] > 0:
        return _first_point_by_covariance(quadratic, constraints)
    own, weight = _own_answers(quadratic, k)
    diagonal, of_first = 0.0, curvature(quadratic, 0)
    for j in range(k):
        diagonal += of_first[j] / (k * quadratic.scale[0])
    start = np.empty((c, k))
    penalty = np.full(k, diagonal)
    if not constraints.has_parent:
        slope = np.empty(k)
        scratch = np.empty(quadratic.answers.shape[1])
        nothing = np.zeros(k)
        for i in range(c):
            slope_of(quadratic, i, nothing, scratch, slope)
            of_child = curvature(quadratic, i)
            for j in range(k):
                start[i, j] = max(own[i, j] if weight > 0.0 else slope[j] / of_child[j], 0.0)
    else:
        for i in range(c):
            for j in range(k):
                start[i, j] = constraints.parent[j] / c
    if weight == 0.0:
        return start, penalty
    # Impossible counts reveal the size of the noise: the children's answers as far as they do not
    # add to the parent's, or answers below zero.
    if constraints.has_parent:
        excess = np.empty(k)
        for j in range(k):
            total = 0.0
            for i in range(c):
                total += own[i, j]
            excess[j] = abs(constraints.parent[j] - total)
        noise = np.median(excess) / np.sqrt((1.0 / quadratic.scale).sum())
    else:
        below = np.empty(c * k)
        n = 0
        for i in range(c):
            for j in range(k):
                if own[i, j] < 0.0:
                    below[n] = -own[i, j]
                    n += 1
        noise = np.median(below[:n]) if n > 0 else 0.0
    # Half of all normal errors are within 0.6745 standard deviations; a median is robust to the few
    # cells that are far off for other reasons.
    noise /= 0.6745
    for j in range(k):
        mean = 0.0
        for i in range(c):
            mean += start[i, j]
        mean /= c
        wanted = NOISE_PENALTY * weight * noise / max(mean, 1e-9)
        penalty[j] = min(max(wanted, SMALLEST_PENALTY * weight), LARGEST_PENALTY * diagonal)
    return start, penalty


@njit(cache=True, nogil=True, error_model="numpy")
def _mean_matrix(quadratic: Quadratic) -> tuple[float, np.ndarray]:
    """Diagonal and coarse part of the children's mean matrix, less their scales."""
    total = quadratic.scale.sum()
    share = np.zeros(quadratic.diagonal.size)
    for i in range(quadratic.scale.size):
        share[quadratic.profile[i]] += quadratic.scale[i] / total
    n = quadratic.coarse.shape[1]
    coarse = np.zeros((n, n))
    diagonal = 0.0
    for m in range(share.size):
        diagonal += share[m] * quadratic.diagonal[m]
        for r in range(n):
            for s in range(n):
                coarse[r, s] += share[m] * quadratic.coarse[m, r, s]
    return diagonal, coarse


@njit(cache=True, nogil=True, error_model="numpy")
def _applied(
    right: np.ndarray, inverse: np.ndarray, diagonal: np.ndarray, rows: np.ndarray, is_thin: bool
) -> np.ndarray:
    """Rows of `right` (c, k) times the inverse of D + A' C A."""
    if not is_thin:
        return np.dot(right, inverse)
    # By Woodbury's identity the inverse is 1/D - 1/D A' M A 1/D, where `inverse` is M; A adds cells
    # to answers, so that only M is a product of matrices.
    c, k = right.shape
    x = np.empty((c, k))
    answers = np.zeros((c, inverse.shape[0]))
    for i in range(c):
        for j in range(k):
            x[i, j] = right[i, j] / diagonal[j]
        for s in range(rows.shape[0]):
            for j in range(k):
                answers[i, rows[s, j]] += x[i, j]
    answers = np.dot(answers, inverse)
    for i in range(c):
        for s in range(rows.shape[0]):
            for j in range(k):
                x[i, j] -= answers[i, rows[s, j]] / diagonal[j]
    return x


@njit(cache=True, nogil=True, error_model="numpy")
def _linear_terms(quadratic: Quadratic, start: np.ndarray) -> np.ndarray:
    """Minus the gradient at zero (c, k), less the scales, with the proximal term's."""
    linear = np.empty(start.shape)
    scratch, nothing = np.empty(quadratic.answers.shape[1]), np.zeros(start.shape[1])
    proximal = quadratic.proximal.sum() / quadratic.proximal.size
    for i in range(start.shape[0]):
        slope_of(quadratic, i, nothing, scratch, linear[i])
        for j in range(start.shape[1]):
            linear[i, j] = linear[i, j] / quadratic.scale[i] + proximal * start[i, j]
    return linear


@njit(cache=True, nogil=True, error_model="numpy")
def _meet_parent(x: np.ndarray, parent: np.ndarray, inverse_scale: np.ndarray) -> None:
    """Move the children's cells to their parent's sums, in proportion to 1 / scale."""
    shift = np.empty(parent.size)
    for j in range(parent.size):
        shift[j] = parent[j]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            shift[j] -= x[i, j]
    # Children have one matrix but for their scales, so that the multiplier of the parent's sums
    # moves each child by the same vector over its scale, and that vector need not be solved for.
    reach = inverse_scale.sum()
    for j in range(parent.size):
        shift[j] /= reach
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += shift[j] * inverse_scale[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _meet_pins(
    x: np.ndarray,
    constraints: Constraints,
    moves_of_residual: np.ndarray,
    inverse_scale: np.ndarray,
) -> None:
    """Move the cells of every group of children to its pins, in proportion to 1 / scale."""
    group = constraints.group_of_child
    targets = constraints.targets
    residual = targets.copy()
    reach = np.zeros(residual.shape[0])
    for i in range(x.shape[0]):
        reach[group[i]] += inverse_scale[i]
        for q in range(constraints.pin_rows.shape[0]):
            for j in range(x.shape[1]):
                residual[group[i], constraints.pin_rows[q, j]] -= x[i, j]
    moves = np.dot(residual, moves_of_residual)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += moves[group[i], j] * inverse_scale[i] / reach[group[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def _project(
    values: np.ndarray, penalty: np.ndarray, constraints: Constraints, z: np.ndarray
) -> None:
    """Write the nearest points that meet the inequalities to z (c, k)."""
    starts = constraints.type_starts
    for i in range(values.shape[0]):
        for t in range(starts.size - 1):
            first, last = starts[t], starts[t + 1]
            if first < last:
                _project_bounded_sum(
                    values[i, first:last],
                    penalty[first:last],
                    constraints.lower[i, t],
                    constraints.upper[i, t],
                    constraints.allowed[i, first:last],
                    z[i, first:last],
                )


@njit(cache=True, nogil=True, error_model="numpy")
def approach(
    quadratic: Quadratic,
    constraints: Constraints,
    start: np.ndarray,
    penalty: np.ndarray,
    iterations: int,
) -> tuple[np.ndarray, int]:
    """A point `(c, k)` near the solution, which meets the inequalities exactly.

    start (c, k) a first point; penalty (k,) the diagonal of R. Stops when the zeros settle, after
    `iterations` at most.
    """
    c, k = start.shape
    inverse_scale = 1.0 / quadratic.scale
    rows = quadratic.coarse_rows
    if quadratic.covariance.within.shape[0] > 0:
        within, across = _mean_covariance(quadratic)
        diagonal, is_thin = penalty, False
        inverse = blocks_inverse(
            within,
            across,
            quadratic.covariance.class_of_cell,
            quadratic.covariance.level_of_cell,
            penalty,
        )
        linear = _linear_terms_by_covariance(quadratic, within, across)
    else:
        mean, coarse = _mean_matrix(quadratic)
        diagonal = mean + penalty
        # Two products by the answers then cost less than one by a (k, k) matrix.
        is_thin = 2 * coarse.shape[0] <= k
        if is_thin:
            inverse = thin_inverse(diagonal, coarse, rows)
        else:
            inverse = inverse_of_sum(diagonal, coarse, rows)
        linear = _linear_terms(quadratic, start)
    n_pins = constraints.targets.shape[1]
    pins = np.zeros((n_pins, k))
    for q in range(constraints.pin_rows.shape[0]):
        for j in range(k):
            pins[constraints.pin_rows[q, j], j] = 1.0
    reach = _applied(pins, inverse, diagonal, rows, is_thin)
    # Pins by several labels are partly redundant, as in the total of all cells.
    gram = np.linalg.pinv(np.dot(reach, pins.T)) if n_pins else np.zeros((0, 0))
    moves_of_residual = np.dot(np.ascontiguousarray(gram), reach)
    z, u = start.copy(), np.zeros((c, k))
    right = np.empty((c, k))
    was_zero = np.zeros((c, k), dtype=np.bool_)
    for iteration in range(iterations):
        for i in range(c):
            for j in range(k):
                right[i, j] = linear[i, j] + penalty[j] * (z[i, j] - u[i, j])
        x = _applied(right, inverse, diagonal, rows, is_thin)
        if constraints.has_parent:
            _meet_parent(x, constraints.parent, inverse_scale)
        if n_pins:
            _meet_pins(x, constraints, moves_of_residual, inverse_scale)
        # The relaxed point is put into u; the part removed by the projection is the new multiplier.
        for i in range(c):
            for j in range(k):
                u[i, j] += RELAXATION * x[i, j] + (1.0 - RELAXATION) * z[i, j]
        _project(u, penalty, constraints, z)
        changes = 0
        for i in range(c):
            for j in range(k):
                u[i, j] -= z[i, j]
                is_zero = z[i, j] == 0.0
                changes += is_zero != was_zero[i, j]
                was_zero[i, j] = is_zero
        # Only the zeros and the binding bounds are needed: `active_set` finds the values exactly.
        if iteration >= FEWEST and changes * SETTLED <= c * k:
            break
    return z, iteration + 1
