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

from .active_set import add_to_rows
from .dual_kernels import project_to_sum
from .quadratic import (
    Constraints,
    InverseCovariance,
    Quadratic,
    add_product,
    blocks_inverse,
    curvature,
    inverse_of_sum,
    slope_of,
    thin_inverse,
)

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
def _own_answers(quadratic: Quadratic, k: int) -> tuple[np.ndarray, float]:
    """Mean noisy answer of every cell (c, k) by queries that distinguish all cells, and its weight;
    zero without such queries.
    """
    own, total = np.zeros((quadratic.scale.size, k)), 0.0
    for q in range(quadratic.labels.shape[0]):
        if quadratic.starts[q + 1] - quadratic.starts[q] == k:
            weight = quadratic.weights[0, q]
            total += weight
            own += weight * quadratic.answers[:, quadratic.labels[q]]
    return own / total if total > 0.0 else own, total


@njit(cache=True, nogil=True, error_model="numpy")
def _penalties(
    start: np.ndarray, weight: np.ndarray, noise: np.ndarray, diagonal: np.ndarray
) -> np.ndarray:
    """Penalties (k,) of cells by the weight and noise of their own answers (k,), and the Hessian's
    diagonal (k,).
    """
    mean = start.sum(axis=0) / start.shape[0]
    wanted = NOISE_PENALTY * weight * noise / np.maximum(mean, 1e-9)
    return np.minimum(np.maximum(wanted, SMALLEST_PENALTY * weight), LARGEST_PENALTY * diagonal)


@njit(cache=True, nogil=True, error_model="numpy")
def _first_point_by_covariance(quadratic: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """As `first_point`: the estimates with negative values set to 0, and penalties by the cells'
    own precisions.
    """
    start, total = np.maximum(quadratic.covariance.centre, 0.0), quadratic.scale.sum()
    weight = np.zeros(start.shape[1])
    for i in range(start.shape[0]):
        weight += curvature(quadratic, i) / total
    # The standard deviation of one child's cell, by the mean precision.
    noise = 1.0 / np.sqrt(weight * total / start.shape[0])
    return start, _penalties(start, weight, noise, weight)


@njit(cache=True, nogil=True, error_model="numpy")
def first_point(quadratic: Quadratic, constraints: Constraints) -> tuple[np.ndarray, np.ndarray]:
    """The first point (c, k), and the penalties (k,)."""
    if quadratic.covariance.within.shape[0] > 0:
        return _first_point_by_covariance(quadratic)
    c, k = constraints.allowed.shape
    own, weight = _own_answers(quadratic, k)
    diagonal = np.full(k, curvature(quadratic, 0).sum() / (k * quadratic.scale[0]))
    start = np.maximum(own, 0.0)
    for i in range(c):
        if constraints.has_parent:
            start[i] = constraints.parent / c
        elif weight == 0.0:
            slope_of(quadratic, i, np.zeros(k), np.empty(quadratic.answers.shape[1]), start[i])
            start[i] = np.maximum(start[i] / curvature(quadratic, i), 0.0)
    if weight == 0.0:
        return start, diagonal
    # Impossible counts reveal the size of the noise: the children's answers as far as they do not
    # add to the parent's, or answers below zero.
    if constraints.has_parent:
        excess = np.abs(constraints.parent - own.sum(axis=0))
        noise = np.median(excess) / np.sqrt((1.0 / quadratic.scale).sum())
    else:
        answers = own.ravel()
        below = answers[answers < 0.0]
        noise = -np.median(below) if below.size > 0 else 0.0
    # Half of all normal errors are within 0.6745 standard deviations; a median is robust to the few
    # cells that are far off for other reasons.
    deviation = np.full(k, noise / 0.6745)
    return start, _penalties(start, np.full(k, weight), deviation, diagonal)


@njit(cache=True, nogil=True, error_model="numpy")
def _mean_covariance(quadratic: Quadratic) -> InverseCovariance:
    """The children's mean matrix, less their scales, as that of a single child."""
    total, covariance = quadratic.scale.sum(), quadratic.covariance
    n = covariance.within.shape[1]
    return InverseCovariance(
        (covariance.within.sum(axis=0) / total).reshape((1, n, n)),
        (covariance.across.sum(axis=0) / total).reshape((1, n, n)),
        covariance.class_of_cell,
        covariance.level_of_cell,
        covariance.centre,
        covariance.pull,
        covariance.rest,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _mean_matrix(quadratic: Quadratic) -> tuple[float, np.ndarray]:
    """Diagonal and coarse part of the children's mean matrix, less their scales."""
    total = quadratic.scale.sum()
    diagonal, coarse = 0.0, np.zeros_like(quadratic.coarse[0])
    for m in range(quadratic.diagonal.size):
        share = quadratic.scale[quadratic.profile == m].sum() / total
        diagonal += share * quadratic.diagonal[m]
        coarse += share * quadratic.coarse[m]
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
    x = right / diagonal
    answers = np.zeros((right.shape[0], inverse.shape[0]))
    for i in range(right.shape[0]):
        add_to_rows(answers[i], rows, x[i], 1.0)
    answers = np.dot(answers, inverse)
    for i in range(right.shape[0]):
        for s in range(rows.shape[0]):
            for j in range(diagonal.size):
                x[i, j] -= answers[i, rows[s, j]] / diagonal[j]
    return x


@njit(cache=True, nogil=True, error_model="numpy")
def _linear_terms(quadratic: Quadratic, start: np.ndarray) -> np.ndarray:
    """Minus the gradient at zero (c, k), less the scales, with the proximal term's."""
    linear, nothing = np.empty(start.shape), np.zeros(start.shape[1])
    scratch = np.empty(quadratic.answers.shape[1])
    proximal = quadratic.proximal.sum() / quadratic.proximal.size
    for i in range(start.shape[0]):
        slope_of(quadratic, i, nothing, scratch, linear[i])
        linear[i] = linear[i] / quadratic.scale[i] + proximal * start[i]
    return linear


@njit(cache=True, nogil=True, error_model="numpy")
def _meet_parent(x: np.ndarray, parent: np.ndarray, inverse_scale: np.ndarray) -> None:
    """Move the children's cells to their parent's sums, in proportion to 1 / scale."""
    # Children have one matrix but for their scales, so that the multiplier of the parent's sums
    # moves each child by the same vector over its scale, and that vector need not be solved for.
    shift, reach = parent.copy(), inverse_scale.sum()
    for i in range(x.shape[0]):
        for j in range(parent.size):
            shift[j] -= x[i, j]
    for i in range(x.shape[0]):
        for j in range(parent.size):
            x[i, j] += shift[j] / reach * inverse_scale[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _meet_pins(
    x: np.ndarray,
    constraints: Constraints,
    moves_of_residual: np.ndarray,
    inverse_scale: np.ndarray,
) -> None:
    """Move the cells of every group of children to its pins, in proportion to 1 / scale."""
    group, residual = constraints.group_of_child, constraints.targets.copy()
    reach = np.zeros(residual.shape[0])
    for i in range(x.shape[0]):
        reach[group[i]] += inverse_scale[i]
        add_to_rows(residual[group[i]], constraints.pin_rows, x[i], -1.0)
    moves = np.dot(residual, moves_of_residual)
    for i in range(x.shape[0]):
        x[i] += moves[group[i]] * (inverse_scale[i] / reach[group[i]])


@njit(cache=True, nogil=True, error_model="numpy")
def _project(
    values: np.ndarray, penalty: np.ndarray, constraints: Constraints, z: np.ndarray
) -> None:
    """Write the points that meet the inequalities and are nearest in the norm that weighs squares
    by `penalty` (k,) to z (c, k)."""
    starts = constraints.type_starts
    for i in range(values.shape[0]):
        for t in range(starts.size - 1):
            own = slice(starts[t], starts[t + 1])
            allowed, wish, out = constraints.allowed[i, own], values[i, own], z[i, own]
            low, high, positive = constraints.lower[i, t], constraints.upper[i, t], 0.0
            for j in range(out.size):
                out[j] = wish[j] if allowed[j] and wish[j] > 0.0 else 0.0
                positive += out[j]
            if out.size > 0 and not low <= positive <= high:
                out[:] = np.where(allowed, wish, 0.0)
                left, total = np.empty(out.size, dtype=np.int64), high if positive > high else low
                project_to_sum(out, allowed / penalty[own], total, left)
                for j in range(out.size):
                    out[j] = max(out[j], 0.0)


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
        mean_child = _mean_covariance(quadratic)
        diagonal, is_thin = penalty, False
        inverse = blocks_inverse(mean_child, 0, np.arange(k), penalty)
        # The terms by which the mean matrix has every child's own gradient at its centre.
        linear = np.empty((c, k))
        for i in range(c):
            linear[i] = quadratic.covariance.pull[i] / quadratic.scale[i]
            add_product(mean_child, 0, quadratic.covariance.centre[i], linear[i])
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
    was_zero = np.zeros((c, k), dtype=np.bool_)
    for iteration in range(iterations):
        x = _applied(linear + penalty * (z - u), inverse, diagonal, rows, is_thin)
        if constraints.has_parent:
            _meet_parent(x, constraints.parent, inverse_scale)
        if n_pins:
            _meet_pins(x, constraints, moves_of_residual, inverse_scale)
        # The relaxed point is put into u; the part removed by the projection is the new multiplier.
        u += RELAXATION * x + (1.0 - RELAXATION) * z
        _project(u, penalty, constraints, z)
        u -= z
        is_zero = z == 0.0
        changes = np.count_nonzero(is_zero != was_zero)
        was_zero = is_zero
        # Only the zeros and the binding bounds are needed: `active_set` finds the values exactly.
        if iteration >= FEWEST and changes * SETTLED <= c * k:
            break
    return z, iteration + 1
