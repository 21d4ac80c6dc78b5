"""Eliminating siblings from the equations for a step of all of them at once, compiled.

A step of the children's free cells and the multipliers of all sums solve

    K_i dx_i + B_i' eta_i + E_i' y = force_i       for every child i
    B_i dx_i - G_i eta_i           = miss_i        the rows that concern this child alone
    sum_i E_i dx_i - G y           = miss          the rows that children share

with 0/1 matrices B_i and E_i. Each child's own system is inverted, which leaves one dense system
for the multipliers of the shared rows, whose size does not depend on the number of children (its
Schur complement). Own rows are pins of single children and bounds on types; shared rows are the
parent's cells, and pins of groups of several children.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .dense_matrices import SMALL, definite_inverse
from .quadratic import Constraints, Quadratic, curvature

System = tuple[np.ndarray, np.ndarray, np.ndarray]
"""One child's inverse, response and compliance; see `eliminate`."""
FEW = 4
"""Up to this number of own rows, a child's products are loops rather than calls of BLAS."""


@njit(cache=True, nogil=True)
def n_own_pins(constraints: Constraints) -> int:
    """Number of rows of every child that are pins; 0 where pins hold for groups of children."""
    n_children = constraints.lower.shape[0]
    return constraints.targets.shape[1] if constraints.targets.shape[0] == n_children else 0


@njit(cache=True, nogil=True)
def shared_sums(constraints: Constraints) -> np.ndarray:
    """Required sums of the shared rows: the parent's cells, then the pins of groups."""
    n_parent = constraints.parent.size if constraints.has_parent else 0
    n_groups, n_pins = constraints.targets.shape
    if n_own_pins(constraints) > 0:
        n_groups = 0
    sums = np.empty(n_parent + n_groups * n_pins)
    for j in range(n_parent):
        sums[j] = constraints.parent[j]
    for g in range(n_groups):
        for r in range(n_pins):
            sums[n_parent + g * n_pins + r] = constraints.targets[g, r]
    return sums


@njit(cache=True, nogil=True)
def shared_rows(constraints: Constraints, i: int, cells: np.ndarray) -> np.ndarray:
    """Shared rows that hold each of child i's `cells` (f,), shape (n_labels, f)."""
    n_parent = constraints.parent.size if constraints.has_parent else 0
    n_labels = 0 if n_own_pins(constraints) > 0 else constraints.pin_rows.shape[0]
    first = int(constraints.has_parent)
    rows = np.empty((first + n_labels, cells.size), dtype=np.int64)
    if constraints.has_parent:
        for a in range(cells.size):
            rows[0, a] = cells[a]
    for q in range(n_labels):
        start = n_parent + constraints.group_of_child[i] * constraints.targets.shape[1]
        for a in range(cells.size):
            rows[first + q, a] = start + constraints.pin_rows[q, cells[a]]
    return rows


@njit(cache=True, nogil=True)
def type_of_cell(constraints: Constraints) -> np.ndarray:
    """Type of every cell, (k,)."""
    starts = constraints.type_starts
    types = np.empty(constraints.allowed.shape[1], dtype=np.int64)
    for t in range(starts.size - 1):
        for j in range(starts[t], starts[t + 1]):
            types[j] = t
    return types


@njit(cache=True, nogil=True)
def softness_of_rows(
    quadratic: Quadratic, constraints: Constraints, softness: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G of shared rows (n_shared,), of own pins (c, n_own_pins) and of types (c, T): how far sums
    may miss for a unit's move of their multipliers, `softness` times their cells' compliance."""
    c, k = constraints.allowed.shape
    types = type_of_cell(constraints)
    every = np.arange(k)
    shared = np.zeros(shared_sums(constraints).size)
    pins = np.zeros((c, n_own_pins(constraints)))
    of_type = np.zeros((c, constraints.lower.shape[1]))
    for i in range(c):
        rows = shared_rows(constraints, i, every)
        diagonal = curvature(quadratic, i)
        for j in range(k):
            if not constraints.allowed[i, j]:
                continue
            give = softness / diagonal[j]
            of_type[i, types[j]] += give
            for q in range(rows.shape[0]):
                shared[rows[q, j]] += give
            if pins.shape[1] > 0:
                for q in range(constraints.pin_rows.shape[0]):
                    pins[i, constraints.pin_rows[q, j]] += give
    # A row without any cell would leave a line of zeros in the system.
    for r in range(shared.size):
        if shared[r] == 0.0:
            shared[r] = softness
    for i in range(c):
        for r in range(pins.shape[1]):
            if pins[i, r] == 0.0:
                pins[i, r] = softness
    return shared, pins, of_type


@njit(cache=True, nogil=True, error_model="numpy")
def eliminate(inverse: np.ndarray, rows: np.ndarray, give: np.ndarray) -> System:
    """Inverse of one child's system [[K, B'], [B, -G]] as (inverse, response, compliance).

    `inverse` (f, f), the inverse of K, is overwritten; rows (n_labels, f or more) has the rows of B
    with each free cell, -1 for none; G is the diagonal of `give`. The inverse is [[inverse,
    response], [response', -compliance]].
    """
    # The Schur complement of K is B K^-1 B' + G. B is 0/1, so that `reach` = B K^-1 adds rows of
    # the inverse, and no product by B is made.
    f, n_rows = inverse.shape[0], give.size
    reach = np.zeros((n_rows, f))
    for q in range(rows.shape[0]):
        for a in range(f):
            if rows[q, a] >= 0:
                for d in range(f):
                    reach[rows[q, a], d] += inverse[a, d]
    compliance = np.zeros((n_rows, n_rows))
    for r in range(n_rows):
        for q in range(rows.shape[0]):
            for a in range(f):
                if rows[q, a] >= 0:
                    compliance[r, rows[q, a]] += reach[r, a]
        compliance[r, r] += give[r]
    compliance = definite_inverse(compliance)
    # K^-1 less the rows' part: with few rows, loops are faster than the calls of BLAS.
    if n_rows > FEW:
        response = np.dot(reach.T, compliance)
        inverse -= np.dot(response, reach)
        return inverse, response, compliance
    response = np.zeros((f, n_rows))
    for a in range(f):
        for r in range(n_rows):
            for s in range(n_rows):
                response[a, r] += reach[s, a] * compliance[s, r]
            for d in range(f):
                inverse[a, d] -= response[a, r] * reach[r, d]
    return inverse, response, compliance


@njit(cache=True, nogil=True, error_model="numpy")
def step_of_child(
    system: System, force: np.ndarray, miss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solution (dx_i, eta_i) of one child's system for given y; see `eliminate`."""
    inverse, response, compliance = system
    f, n_rows = response.shape
    if f > SMALL or n_rows > FEW:
        step = np.dot(inverse, force) + np.dot(response, miss)
        return step, np.dot(response.T, force) - np.dot(compliance, miss)
    step, multiplier = np.zeros(f), np.zeros(n_rows)
    for a in range(f):
        for d in range(f):
            step[a] += inverse[a, d] * force[d]
        for r in range(n_rows):
            step[a] += response[a, r] * miss[r]
            multiplier[r] += response[a, r] * force[a]
    for r in range(n_rows):
        for s in range(n_rows):
            multiplier[r] -= compliance[r, s] * miss[s]
    return step, multiplier


@njit(cache=True, nogil=True)
def add_child(schur: np.ndarray, inverse: np.ndarray, rows: np.ndarray) -> None:
    """Add a child's part E inverse E' to the matrix of the shared rows."""
    # E has one 1 a column and label: each entry of the inverse is added to one entry for each pair.
    n_labels, f = rows.shape
    for q in range(n_labels):
        for a in range(f):
            line, source = schur[rows[q, a]], inverse[a]
            for p in range(n_labels):
                for d in range(f):
                    line[rows[p, d]] += source[d]


@njit(cache=True, nogil=True)
def add_to_rows(sums: np.ndarray, rows: np.ndarray, values: np.ndarray, factor: float) -> None:
    """Add `factor` times the values (f,) of cells to the sums of their rows, given by the first f
    columns of `rows`, if any.
    """
    for q in range(rows.shape[0]):
        for a in range(values.size):
            if rows[q, a] >= 0:
                sums[rows[q, a]] += factor * values[a]


@njit(cache=True, nogil=True)
def add_of_rows(
    values: np.ndarray, rows: np.ndarray, multipliers: np.ndarray, factor: float
) -> None:
    """Add to the values (f,) of cells `factor` times the multipliers of their rows."""
    for q in range(rows.shape[0]):
        for a in range(values.size):
            if rows[q, a] >= 0:
                values[a] += factor * multipliers[rows[q, a]]
