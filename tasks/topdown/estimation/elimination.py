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

from .dense_matrices import definite_inverse
from .quadratic import Constraints, Quadratic, curvature

System = tuple[np.ndarray, np.ndarray, np.ndarray]
"""One child's inverse, response and compliance; see `eliminate`."""


@njit(cache=True, nogil=True)
def n_own_pins(constraints: Constraints) -> int:
    """Number of rows of every child that are pins; 0 where pins hold for groups of children."""
    n_children = constraints.lower.shape[0]
    return constraints.targets.shape[1] if constraints.targets.shape[0] == n_children else 0


@njit(cache=True, nogil=True)
def shared_sums(constraints: Constraints) -> np.ndarray:
    """Required sums of the shared rows: the parent's cells, then the pins of groups."""
    parent = constraints.parent if constraints.has_parent else constraints.parent[:0]
    if n_own_pins(constraints) > 0:
        return parent.copy()
    return np.concatenate((parent, constraints.targets.ravel()))


@njit(cache=True, nogil=True)
def shared_rows(constraints: Constraints, i: int, cells: np.ndarray) -> np.ndarray:
    """Shared rows that hold each of child i's `cells` (f,), shape (n_labels, f)."""
    n_parent = constraints.parent.size if constraints.has_parent else 0
    n_labels = 0 if n_own_pins(constraints) > 0 else constraints.pin_rows.shape[0]
    first = int(constraints.has_parent)
    rows = np.empty((first + n_labels, cells.size), dtype=np.int64)
    if constraints.has_parent:
        rows[0] = cells
    for q in range(n_labels):
        start = n_parent + constraints.group_of_child[i] * constraints.targets.shape[1]
        rows[first + q] = start + constraints.pin_rows[q][cells]
    return rows


@njit(cache=True, nogil=True)
def softness_of_rows(
    quadratic: Quadratic, constraints: Constraints, softness: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G of shared rows (n_shared,), of own pins (c, n_own_pins) and of types (c, T): how far sums
    may miss for a unit's move of their multipliers, `softness` times their cells' compliance."""
    c, k = constraints.allowed.shape
    types = np.repeat(np.arange(constraints.lower.shape[1]), np.diff(constraints.type_starts))
    shared = np.zeros(shared_sums(constraints).size)
    pins = np.zeros((c, n_own_pins(constraints)))
    of_type = np.zeros((c, constraints.lower.shape[1]))
    for i in range(c):
        give = np.where(constraints.allowed[i], softness / curvature(quadratic, i), 0.0)
        for j in range(k):
            of_type[i, types[j]] += give[j]
        add_to_rows(shared, shared_rows(constraints, i, np.arange(k)), give, 1.0)
        if pins.shape[1] > 0:
            add_to_rows(pins[i], constraints.pin_rows, give, 1.0)
    # A row without any cell would leave a line of zeros in the system.
    shared = np.where(shared == 0.0, softness, shared)
    return shared, np.where(pins == 0.0, softness, pins), of_type


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
    reach, compliance = np.zeros((n_rows, f)), np.zeros((n_rows, n_rows))
    if n_rows == 0:
        return inverse, np.zeros((f, n_rows)), compliance
    for q in range(rows.shape[0]):
        for a in range(f):
            if rows[q, a] >= 0:
                for d in range(f):
                    reach[rows[q, a], d] += inverse[a, d]
    for r in range(n_rows):
        add_to_rows(compliance[r], rows, reach[r], 1.0)
        compliance[r, r] += give[r]
    compliance = definite_inverse(compliance)
    response = np.dot(reach.T, compliance)
    inverse -= np.dot(response, reach)
    return inverse, response, compliance


@njit(cache=True, nogil=True, error_model="numpy")
def step_of_child(
    system: System, force: np.ndarray, miss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solution (dx_i, eta_i) of one child's system for given y; see `eliminate`."""
    inverse, response, compliance = system
    if miss.size == 0:
        return np.dot(inverse, force), np.zeros(0)
    step = np.dot(inverse, force) + np.dot(response, miss)
    return step, np.dot(response.T, force) - np.dot(compliance, miss)


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
