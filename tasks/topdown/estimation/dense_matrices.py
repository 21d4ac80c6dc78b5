"""Inverses and factors of dense symmetric matrices, compiled.

Kernels of this folder write loops where NumPy has an expression of elements or an assignment of
slices: numba compiles each such expression as a separate function, again in every kernel that calls
it, and the kernels already take a minute to compile. Copies, sorting and medians are NumPy's.

Limits on the sizes of matrices of cells by cells, and of blocks of rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK_ENTRIES = 5 * 10**7
"""Most entries of the children's blocks (0.4 GB); with more, only the diagonal is used."""

MANY, MANY_UNTOLD = 2500, 300
"""Cells above which a pass is wide: in any case, and where no query distinguishes all of them."""


def is_wide(cells: int, n_rows: int) -> bool:
    """Whether a pass has too many cells for matrices of cells by cells, or so many that these would
    be singular, as its queries have at most `n_rows` rows.

    >>> is_wide(2016, n_rows=2016), is_wide(2016, n_rows=252)
    (False, True)
    """
    return cells > MANY or (cells > MANY_UNTOLD and n_rows < cells)


SMALL = 32
"""Matrices up to this size are inverted by a loop, larger ones in halves."""


@njit(cache=True, nogil=True, error_model="numpy")
def definite_inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a symmetric positive definite matrix, which is overwritten.

    In halves by their Schur complement, so that nearly all work is matrix products.
    """
    n = matrix.shape[0]
    if n <= SMALL:
        for p in range(n):
            pivot = 1.0 / matrix[p, p]
            matrix[p, p] = 1.0
            for j in range(n):
                matrix[p, j] *= pivot
            for i in range(n):
                if i != p:
                    factor = matrix[i, p]
                    matrix[i, p] = 0.0
                    for j in range(n):
                        matrix[i, j] -= factor * matrix[p, j]
        return matrix
    h = n // 2
    first = definite_inverse(matrix[:h, :h].copy())
    beside = matrix[:h, h:].copy()
    reach = np.dot(first, beside)
    second = definite_inverse(matrix[h:, h:] - np.dot(beside.T, reach))
    across = np.dot(reach, second)
    matrix[:h, :h] = first + np.dot(across, reach.T)
    matrix[:h, h:] = -across
    matrix[h:, :h] = -across.T
    matrix[h:, h:] = second
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")
def factorise(matrix: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor; all NaN where the matrix is not definite."""
    is_finite = True
    for r in range(matrix.shape[0]):
        is_finite &= np.isfinite(matrix[r, r])
    if is_finite:
        try:
            return np.linalg.cholesky(matrix)
        except Exception:
            is_finite = False
    return np.full(matrix.shape, np.nan)


@njit(cache=True, nogil=True, error_model="numpy")
def solve_factorised(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve L L' y = right for a lower triangular L."""
    n = right.size
    y = right.copy()
    for r in range(n):
        y[r] = (y[r] - np.dot(factor[r, :r], y[:r])) / factor[r, r]
    for r in range(n - 1, -1, -1):
        y[r] /= factor[r, r]
        for s in range(r):
            y[s] -= factor[r, s] * y[r]
    return y
