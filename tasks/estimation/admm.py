"""The alternating direction method of multipliers for siblings' least squares, compiled.

Approaches the solution of

    minimise    sum_i s_i (x_i' H x_i / 2 - b_i' x_i)
    subject to  sum_i x_i = p                        (unless the parent is absent)
                sum_{i in group g} P x_i = t_g       (pinned margins; often one total per child)
                x_i >= 0,  lower_iT <= sum of x_i over cells of type T <= upper_iT

for children i = 1..c with scales s_i > 0 and one common k x k matrix H. The splitting puts the
equalities with the quadratic and the inequalities into a projection. With penalty r s_i the
quadratic step has the common matrix M = H + r I: the sum over children becomes a shift of every
child by lambda / s_i, and the pins one small solve per group, so an iteration is one product of a
(c, k) with a (k, k) matrix (Boyd et al. 2011, over-relaxed). A few iterations already tell which
cells are zero and which bounds bind; `active_set` then finds the solution exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

RELAXATION = 1.6


@njit(cache=True, nogil=True, error_model="numpy")
def _project_bounded_sum(values, low, high, allowed, out):
    """Nearest point of {z >= 0, low <= sum z <= high, z = 0 where not allowed}.

    Newton's method on the shift of the values, from all allowed cells active.
    """
    n = values.size
    positive = 0.0
    total = 0.0
    count = 0
    for j in range(n):
        out[j] = 0.0
        if allowed[j]:
            count += 1
            total += values[j]
            if values[j] > 0.0:
                out[j] = values[j]
                positive += values[j]
    if low <= positive <= high or count == 0:
        return
    target = high if positive > high else low
    theta = (total - target) / count
    for _ in range(n + 2):
        total = 0.0
        active = 0
        for j in range(n):
            if allowed[j] and values[j] > theta:
                total += values[j] - theta
                active += 1
        step = (total - target) / active
        theta += step
        if step <= 1e-15 * (1.0 + abs(theta)):
            break
    for j in range(n):
        out[j] = values[j] - theta if allowed[j] and values[j] > theta else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _approach(
    hessian,
    b,
    scale,
    parent,
    has_parent,
    pin_rows,
    n_pins,
    group_of_child,
    targets,
    type_starts,
    lower,
    upper,
    allowed,
    start,
    iterations,
):
    c, k = b.shape
    n_groups = targets.shape[0]
    inverse_scale = 1.0 / scale
    sum_inverse = inverse_scale.sum()
    r = max(np.trace(hessian) / k, 1e-300)
    inverse = hessian.copy()
    for j in range(k):
        inverse[j, j] += r
    inverse = np.linalg.inv(inverse)
    pins = np.zeros((n_pins, k))
    for q in range(pin_rows.shape[0]):
        for j in range(k):
            pins[pin_rows[q, j], j] = 1.0
    reach = np.ascontiguousarray(np.dot(inverse, pins.T))
    gram = np.linalg.pinv(np.dot(pins, reach)) if n_pins else np.zeros((0, 0))
    moves_of_residual = np.dot(np.ascontiguousarray(gram), np.ascontiguousarray(reach.T))
    group_inverse = np.zeros(n_groups)
    if n_pins:
        for i in range(c):
            group_inverse[group_of_child[i]] += inverse_scale[i]
    z = start.copy()
    u = np.zeros((c, k))
    right = np.empty((c, k))
    for _ in range(iterations):
        for i in range(c):
            for j in range(k):
                right[i, j] = b[i, j] + r * (z[i, j] - u[i, j])
        x = np.dot(right, inverse)
        if has_parent:
            shift = parent.copy()
            for i in range(c):
                for j in range(k):
                    shift[j] -= x[i, j]
            for i in range(c):
                for j in range(k):
                    x[i, j] += shift[j] * inverse_scale[i] / sum_inverse
        if n_pins:
            residual = targets.copy()
            for i in range(c):
                for q in range(pin_rows.shape[0]):
                    for j in range(k):
                        residual[group_of_child[i], pin_rows[q, j]] -= x[i, j]
            for g in range(n_groups):
                residual[g] /= group_inverse[g]
            moves = np.dot(residual, moves_of_residual)
            for i in range(c):
                for j in range(k):
                    x[i, j] += moves[group_of_child[i], j] * inverse_scale[i]
        for i in range(c):
            for j in range(k):
                u[i, j] += RELAXATION * x[i, j] + (1.0 - RELAXATION) * z[i, j]
            for t in range(type_starts.size - 1):
                start_t = type_starts[t]
                stop = type_starts[t + 1]
                if start_t < stop:
                    _project_bounded_sum(
                        u[i, start_t:stop],
                        lower[i, t],
                        upper[i, t],
                        allowed[i, start_t:stop],
                        z[i, start_t:stop],
                    )
            for j in range(k):
                u[i, j] -= z[i, j]
    return z


def approach(
    hessian: np.ndarray,
    b: np.ndarray,
    scale: np.ndarray,
    parent: np.ndarray | None,
    pin_rows: np.ndarray,
    group_of_child: np.ndarray,
    targets: np.ndarray,
    type_starts: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    allowed: np.ndarray,
    start: np.ndarray,
    iterations: int,
) -> np.ndarray:
    """A point `(c, k)` near the solution, which meets the inequalities exactly.

    hessian (k, k); the other arguments as in `active_set.solve`.
    """
    return _approach(
        hessian,
        b,
        scale,
        np.zeros(b.shape[1]) if parent is None else parent,
        parent is not None,
        pin_rows,
        targets.shape[1],
        group_of_child,
        targets,
        type_starts,
        lower,
        upper,
        allowed,
        start,
        iterations,
    )
