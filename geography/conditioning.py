"""Conditioning of estimates of a vector of counts, where a part of the error has no bound.

*Estimates.* An unbiased estimate of a vector x of n counts has the error covariance V + k D, k
without bound, V and D (n, n) being positive semidefinite. D spans the directions that no
measurement determines, and V is singular where something is exact. Multiples of D are equivalent.
Measurements of disjoint sets of blocks are independent, so that the means, the V and the D of their
sum add up.

*From measurements alone.* Noisy answers y to queries H x give the information A = sum of H'H /
variance and b = sum of H'y / variance. V is the pseudo-inverse of A, the mean V b, and D the
projector on the null space of A.

*With measurements.* Where D is zero, the formula of Woodbury gives

    V+ = (V^-1 + A)^-1 = (I + V A)^-1 V,    x+ = x + V+ (b - A x),

and for an exact total h'x the limit for A = a h h', a without bound. Where D is not zero, let
A = L L': the measurements are L'x with unit noise. Rotated so that L'D L is diagonal, the answers
H x that see D, of noise N, determine the part of x that they see:

    G = lim (V + k D) H' (H (V + k D) H' + N)^-1 = D H' (H D H')^-1,
    V+ = (I - G H) V (I - G H)' + G N G',    D+ = D - G H D,    x+ = x + G (y - H x).

The others do not see D, and act on V+ as above: the exact initial Kalman filter of
[KalmanFilter1997].

*Parts given their whole.* Parts with V and D, whose sums are S and T, follow their whole by the
gain K = lim (V + k D) (S + k T)^-1. With M and N orthonormal bases of the range and the null space
of T, and C the covariance of the whole from everything,

    P = N (N'S N)^+ N',    Q = M (M'T M)^-1 M' (I - S P),    K = V P + D Q,
    x+ = x + K (whole - sum of x),    V+ = (I - K) V (I - K)' + K (S - V) K' + K C K',

and D+ alike, from D, T and the whole's D. A whole that is known has C = 0.

These are conditional distributions of normal variables, whose covariances equal those of weighted
least squares; so these steps, up and down a tree, yield weighted least squares over all of its
measurements at once. `geography.variance` applies them to classes of geounits, and
`tasks.topdown.estimation.spine_estimates` to geounits with their means. Counts have no unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RELATIVE_ZERO = 1e-10
"""Eigenvalues below this, relative to the largest of their matrix, count as zero."""


def pseudo_inverse(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pseudo-inverses and null projectors of positive semidefinite matrices `(..., n, n)`.

    Example: [[4, 0], [0, 0]] has [[1/4, 0], [0, 0]] and [[0, 0], [0, 1]].
    """
    values, vectors = np.linalg.eigh(matrices)
    # Where all are zero, 1e-300 makes them all count as zero.
    is_positive = values > RELATIVE_ZERO * np.maximum(values[..., -1:], 1e-300)
    inverse = np.where(is_positive, 1.0, 0.0) / np.where(is_positive, values, 1.0)
    transposed = vectors.swapaxes(-1, -2)
    null = (vectors * ~is_positive[..., None, :]) @ transposed
    return (vectors * inverse[..., None, :]) @ transposed, null


def without_rounding(matrices: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Positive semidefinite matrices `(..., n, n)` less the eigenvalues that count as zero relative
    to `largest` (...).
    """
    values, vectors = np.linalg.eigh(matrices)
    values = np.where(values > RELATIVE_ZERO * largest[..., None], values, 0.0)
    return (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)


def root_of(information: np.ndarray) -> np.ndarray:
    """L (n, r) of A = L L', its columns orthogonal and nonzero."""
    values, vectors = np.linalg.eigh(information)
    is_positive = values > RELATIVE_ZERO * max(values[-1], 1e-300)
    return vectors[:, is_positive] * np.sqrt(values[is_positive])


class PartialObservation(NamedTuple):
    """Effect of s answers that see D on the estimate of x; see the module's docstring.

    rows : (s, n) H. gain : (n, s) G. size : (s,) the diagonal of H D H'.
    noise : (s, s) H V H' + N. covariance : (n, n) V before.
    answers : (s, n) the answers as combinations of b, y = answers @ b.
    """

    rows: np.ndarray
    gain: np.ndarray
    size: np.ndarray
    noise: np.ndarray
    covariance: np.ndarray
    answers: np.ndarray


def see(
    root: np.ndarray, noise: float, v: np.ndarray, d: np.ndarray
) -> tuple[PartialObservation, np.ndarray, np.ndarray, np.ndarray] | None:
    """Effect of measurements L'x on V + k D: the answers that see D, V and D after them, and the
    columns (n, r - s) of L for all others. None if none sees D.

    Args:
        root: (n, r) L, its columns orthogonal; see `root_of`.
        noise: variance of every measurement; 0 for an exact total, whose L is the vector h.
    """
    if not root.size:
        return None
    size, vectors = np.linalg.eigh(root.T @ d @ root)
    norms = (root**2).sum(axis=0)
    # Turned so that H D H' is diagonal: answers for which it is zero carry no information on D, and
    # are left for the ordinary steps.
    sees = size > RELATIVE_ZERO * np.trace(d) * norms.max()
    if not sees.any():
        return None
    rows = (root @ vectors[:, sees]).T
    gain = d @ rows.T / size[sees]
    of_answers = rows @ v @ rows.T + noise * np.eye(len(rows))
    cross = gain @ rows @ v
    # (I - G H) V (I - G H)' + G N G', multiplied out.
    after = symmetric(v + gain @ of_answers @ gain.T - cross - cross.T)
    left = without_rounding(symmetric(d - gain @ rows @ d), np.asarray(np.trace(d)))
    answers = vectors[:, sees].T @ (root / norms).T
    step = PartialObservation(rows, gain, size[sees], of_answers, v.copy(), answers)
    return step, after, left, root @ vectors[:, ~sees]


def whole_gains(sums: np.ndarray, diffuse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P and Q (..., n, n) of the gain V P + D Q by which parts follow their whole.

    Args:
        sums, diffuse: (..., n, n) S and T, the sums of the parts' V and D.

    Example: S = 2 and T = 0 of two parts with V = 1: P is 1/2, and each part moves by one half.
    """
    along, _ = pseudo_inverse(sums)
    along_diffuse = np.zeros_like(along)
    # Few wholes have unbounded errors after a measurement; the others are computed at once.
    for at in map(tuple, np.argwhere(diffuse.any(axis=(-1, -2)))):
        along[at], along_diffuse[at] = _diffuse_gains(sums[at], diffuse[at])
    return along, along_diffuse


def _diffuse_gains(s: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P and Q of one whole whose T is not zero."""
    values, vectors = np.linalg.eigh(t)
    is_positive = values > RELATIVE_ZERO * np.trace(t)
    # Along M the parts' unbounded errors alone determine the shares; along N the errors of V do.
    m, n = vectors[:, is_positive], vectors[:, ~is_positive]
    inverse, _ = pseudo_inverse(n.T @ s @ n)
    along = n @ inverse @ n.T
    return along, (m / values[is_positive]) @ (m.T @ (np.eye(len(s)) - s @ along))


def condition_on_total(
    v: np.ndarray, gain: np.ndarray, cells: np.ndarray, both: np.ndarray
) -> np.ndarray:
    """(I - K) V (I - K)' + K (S - V) K' + K C K' (N, n, n) of parts, given their wholes.

    Args:
        v: (N, n, n) of parts, which have the `cells` (n,) among the w cells of their wholes.
        gain: (N, n, w) K. both: (N, w, w) S + C of the whole of each part.
    """
    cross = gain[:, :, cells] @ v
    found = v - cross - cross.swapaxes(1, 2) + gain @ both @ gain.swapaxes(1, 2)
    return symmetric(found)


def symmetric(matrices: np.ndarray) -> np.ndarray:
    """The symmetric parts of matrices (..., n, n), which rounding leaves."""
    return 0.5 * (matrices + matrices.swapaxes(-1, -2))
