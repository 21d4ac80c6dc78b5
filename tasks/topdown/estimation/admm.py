"""The alternating direction method of multipliers for siblings' least squares, compiled.

Approaches the solution of the program that `active_set` solves, as if siblings had one common
Hessian H up to their scales s_i: that of the child with the largest. The splitting puts the
equalities with the quadratic and the inequalities into a projection. With penalties s_i R, R a
multiple of H's diagonal, the quadratic step has the common matrix H + R: the sum over children
becomes a shift of every child by lambda / s_i, and the pins one small solve per group, so an
iteration is one product of a (c, k) with a (k, k) matrix ([ADMM2011], over-relaxed). Some
iterations suffice to determine zero cells and binding bounds; `active_set` then finds the solution
exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .active_set import add_to_rows
from .dual_kernels import project_to_sum
from .quadratic import Constraints, Quadratic, curvature, inverse_of_child, slope_of

RELAXATION, PENALTY = 1.6, 2.0
"""Over-relaxation, and the penalty relative to the Hessian's diagonal."""
SETTLED = 1000
"""The zeros count as found once an iteration changes at most one cell in this number."""
FEWEST = 5
"""Iterations made in any case."""


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
    """
    positive = 0.0
    for j in range(values.size):
        out[j] = values[j] if allowed[j] and values[j] > 0.0 else 0.0
        positive += out[j]
    if low <= positive <= high:
        return
    out[:] = np.where(allowed, values, 0.0)
    left = np.empty(values.size, dtype=np.int64)
    project_to_sum(out, allowed / weight, high if positive > high else low, left)
    for j in range(values.size):
        out[j] = max(out[j], 0.0)


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
    quadratic: Quadratic, constraints: Constraints, iterations: int
) -> tuple[np.ndarray, int]:
    """A point `(c, k)` near the solution, which meets the inequalities exactly.

    Begins with equal shares of the parent, with zeros at the root, or where estimates are weighed
    with these. Stops when the zeros settle, after `iterations` at most.
    """
    c, k = constraints.allowed.shape
    z, u, linear = np.zeros((c, k)), np.zeros((c, k)), np.empty((c, k))
    if quadratic.covariance.within.shape[0] > 0:
        z[:] = np.maximum(quadratic.covariance.centre, 0.0)
    elif constraints.has_parent:
        z[:] = constraints.parent / c
    start, inverse_scale = z.copy(), 1.0 / quadratic.scale
    # The largest scale is 1.
    child, scratch = int(np.argmax(quadratic.scale)), np.empty(quadratic.answers.shape[1])
    penalty = PENALTY * curvature(quadratic, child)
    inverse = inverse_of_child(quadratic, child, np.arange(k), penalty)
    for i in range(c):
        slope_of(quadratic, i, start[i], scratch, linear[i])
        linear[i] = linear[i] * inverse_scale[i] - penalty * start[i]
    n_pins = constraints.targets.shape[1]
    pins = np.zeros((n_pins, k))
    for q in range(constraints.pin_rows.shape[0]):
        for j in range(k):
            pins[constraints.pin_rows[q, j], j] = 1.0
    reach = np.dot(pins, inverse)
    # Pins by several labels are partly redundant, as in the total of all cells.
    gram = np.linalg.pinv(np.dot(reach, pins.T)) if n_pins else np.zeros((0, 0))
    moves_of_residual = np.dot(np.ascontiguousarray(gram), reach)
    was_zero = np.zeros((c, k), dtype=np.bool_)
    for iteration in range(iterations):
        x = start + np.dot(linear + penalty * (z - u), inverse)
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
