"""Siblings' least squares weighed by inverse covariances, as compiled code takes it.

A covariance that `query_algebra` describes has an inverse of the same form. Take one free
attribute, whose levels the cells are numbered by, and call the combinations of all others classes:
for the redistricting product the races, and the combinations of type, voting age and Hispanic
origin. Two cells of classes u and v are then coupled by one matrix on the classes if they are of
the same level, plus another whatever their levels:

    (x - m)' P (x - m) = sum over levels of y_l' W y_l  +  s' G s,    y = x - m,    s = sum of y_l.

Without its zero cells this is a matrix of small blocks, one for each level, and a term of the rank
of the classes. G need not be definite; the sum is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .dense_matrices import definite_inverse


class InverseCovariance(NamedTuple):
    """The children's matrices and the targets of their cells (c, k).

    within, across (c, U, U): W and G of every child, on the U classes.
    class_of_cell, level_of_cell (k,): numbers of both.
    centre (c, k): the estimates m. pull (c, k): minus the gradient at the centre, which cells
        outside the support leave there. rest (c,): the objective at the centre.

    All of it is empty where a problem weighs queries instead.
    """

    within: np.ndarray
    across: np.ndarray
    class_of_cell: np.ndarray
    level_of_cell: np.ndarray
    centre: np.ndarray
    pull: np.ndarray
    rest: np.ndarray

    @classmethod
    def none(cls) -> InverseCovariance:
        """Empty matrices, for a problem that weighs queries."""
        square, number = np.zeros((0, 0, 0)), np.zeros(0, dtype=np.int64)
        return cls(square, square, number, number, np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))

    def matrix(self, i: int) -> np.ndarray:
        """(k, k) child i's matrix."""
        u, level = self.class_of_cell, self.level_of_cell
        is_same = level[:, None] == level[None, :]
        return self.across[i][np.ix_(u, u)] + is_same * self.within[i][np.ix_(u, u)]

    def scales(self) -> np.ndarray:
        """(c,) mean precision of each child's cells, relative to the largest."""
        diagonal = np.diagonal(self.within + self.across, axis1=1, axis2=2)
        means = diagonal[:, self.class_of_cell].mean(axis=1)
        return means / means.max()


@njit(cache=True, nogil=True, error_model="numpy")
def cells_by_level(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(order, starts): positions sorted by level, stably, and where each level's begin."""
    order = np.argsort(levels, kind="mergesort")
    n_levels = levels[order[-1]] + 1 if levels.size else 0
    return order, np.searchsorted(levels[order], np.arange(n_levels + 1))


@njit(cache=True, nogil=True, error_model="numpy")
def add_product(
    within: np.ndarray,
    across: np.ndarray,
    classes: np.ndarray,
    levels: np.ndarray,
    y: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add the matrix of W and G on cells of these `classes` and `levels` (k,), times `y` (k,), to
    `out`."""
    n = within.shape[0]
    sums = np.zeros(n)
    by_level = np.zeros((levels.max() + 1, n))
    for j in range(y.size):
        if y[j] != 0.0:
            sums[classes[j]] += y[j]
            by_level[levels[j], classes[j]] += y[j]
    moved = np.dot(across, sums)
    products = np.dot(by_level, within)
    for j in range(y.size):
        out[j] = out[j] + moved[classes[j]] + products[levels[j], classes[j]]


@njit(cache=True, nogil=True, error_model="numpy")
def _product(covariance: InverseCovariance, i: int, y: np.ndarray) -> np.ndarray:
    """Child i's matrix times `y` (k,)."""
    out, classes, levels = np.zeros(y.size), covariance.class_of_cell, covariance.level_of_cell
    add_product(covariance.within[i], covariance.across[i], classes, levels, y, out)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def covariance_slope(covariance: InverseCovariance, i: int, x: np.ndarray, out: np.ndarray) -> None:
    """Write minus the gradient of child i's objective at its cells `x` (k,) to `out`."""
    out[:] = covariance.pull[i] - _product(covariance, i, x - covariance.centre[i])


@njit(cache=True, nogil=True, error_model="numpy")
def covariance_distance(covariance: InverseCovariance, x: np.ndarray) -> float:
    """The objective at `x` (c, k)."""
    total = 0.0
    for i in range(x.shape[0]):
        y = x[i] - covariance.centre[i]
        product = _product(covariance, i, y)
        total += 0.5 * np.dot(y, product) - np.dot(covariance.pull[i], y) + covariance.rest[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def blocks_inverse(
    within: np.ndarray,
    across: np.ndarray,
    classes: np.ndarray,
    levels: np.ndarray,
    extra: np.ndarray,
) -> np.ndarray:
    """Inverse (f, f) of the matrix on cells of these `classes` and `levels` (f,), with `extra`
    (f,) on the diagonal.

    With B the blocks of the levels and A the 0/1 matrix of the classes, Woodbury's formula in the
    form that a G without an inverse allows:
    B^-1 - B^-1 A' (I + G A B^-1 A')^-1 G A B^-1.
    """
    f, n = classes.size, within.shape[0]
    order, starts = cells_by_level(levels)
    inverse, reach = np.zeros((f, f)), np.zeros((f, n))
    for level in range(starts.size - 1):
        first, size = starts[level], starts[level + 1] - starts[level]
        if size == 0:
            continue
        cells = order[first : first + size]
        block = within[classes[cells]][:, classes[cells]] + np.diag(extra[cells])
        block = definite_inverse(block)
        for a in range(size):
            here = cells[a]
            for b in range(size):
                there = cells[b]
                inverse[here, there] = block[a, b]
                reach[here, classes[there]] += block[a, b]
    compliance = np.zeros((n, n))
    for a in range(f):
        for u in range(n):
            compliance[classes[a], u] += reach[a, u]
    solved = np.linalg.solve(np.dot(across, compliance) + np.eye(n), across)
    return inverse - np.dot(np.dot(reach, 0.5 * (solved + solved.T)), reach.T)
