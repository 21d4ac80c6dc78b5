"""Best linear unbiased estimates of geounits from everything measured below them.

For one geounit, in the coordinates of `tasks.topdown.estimation.query_algebra`, the measurements
in its subtree determine x as far as they do at all: its estimate has the error covariance

    V + k D,    k -> infinity,

with V and D positive semidefinite. D spans what nothing measured below determines (all of x below a
geounit that was bypassed with its subtree), and V is singular where an invariant is exact. Going
up the spine, a parent's estimate from its children has the sums of their means, V and D, and then
takes in its own measurements. Going down, given the parent's histogram its children's estimates
are shifted, in proportion to their covariances, until they add up to it. If the root's estimate
is what goes down, the result is weighted least squares over the whole spine at once.

All functions work on N geounits that can have the same types; shapes are those of
`tasks.topdown.estimation.query_algebra`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RELATIVE_ZERO = 1e-10
"""Eigenvalues below this, relative to the largest of their matrix, count as zero."""


LARGE = 1 << 27
"""Numbers from which an array lies in a temporary file instead of memory: 1 GiB of them."""


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of this shape; large ones in a temporary file that goes away with the array."""
    if math.prod(shape) <= LARGE:
        return np.zeros(shape)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=np.float64, mode="w+", shape=shape)


@dataclass(frozen=True, eq=False)
class LinearEstimates:
    """mean : (N, n, m). variance, diffuse : (N, S, n, n), V and D of every component."""

    mean: np.ndarray
    variance: np.ndarray
    diffuse: np.ndarray

    @classmethod
    def zero(
        cls, n_geounits: int, n_cells: int, n_components: int, n_coordinates: int
    ) -> LinearEstimates:
        """Sums to which nothing has been added."""
        square = (n_geounits, n_components, n_cells, n_cells)
        return cls(zeros((n_geounits, n_cells, n_coordinates)), zeros(square), zeros(square))

    @classmethod
    def unknown(
        cls, n_geounits: int, n_cells: int, n_components: int, n_coordinates: int
    ) -> LinearEstimates:
        """Of geounits below which nothing is measured."""
        nothing = cls.zero(n_geounits, n_cells, n_components, n_coordinates)
        nothing.diffuse[:] = np.eye(n_cells)
        return nothing

    def add(self, parts: LinearEstimates, whole: np.ndarray, cells: np.ndarray) -> None:
        """Add the estimates of disjoint parts to the sums in place.

        `whole` (N of the parts,) is the row of the sum that each belongs to, and never decreases;
        `cells` (n of the parts,) the position of their core cells among those of the sums.
        """
        starts = np.flatnonzero(np.diff(whole, prepend=-1))
        rows = whole[starts]
        square = np.ix_(cells, cells)
        self.mean[rows[:, None], cells] += np.add.reduceat(parts.mean, starts, axis=0)
        for sums, added in (
            (self.variance, parts.variance),
            (self.diffuse, parts.diffuse),
        ):
            total = np.add.reduceat(added, starts, axis=0)
            for component in range(sums.shape[1]):
                sums[rows[:, None, None], component, square[0], square[1]] += total[:, component]


Components = Sequence[np.ndarray]
"""Coordinates of each component; see `QueryAlgebra.components`."""


def with_measurements(
    prior: LinearEstimates, a: np.ndarray, b: np.ndarray, components: Components
) -> LinearEstimates:
    """Estimates that also take in the geounits' own measurements, A `(N, S, n, n)` and b
    `(N, n, m)` of `QueryAlgebra.information`.

    Where D is zero, V (I + A V)^-1 is the new V, and the mean moves by the new V times b - A x.
    """
    n = a.shape[-1]
    is_unknown = (prior.diffuse == np.eye(n)).all(axis=(2, 3)) & ~prior.variance.any(axis=(2, 3))
    if is_unknown.all():
        return _of_measurements(a, b, components)
    variance = np.linalg.solve(np.eye(n) + prior.variance @ a, prior.variance)
    variance = 0.5 * (variance + variance.swapaxes(-1, -2))
    mean = prior.mean.copy()
    for component, columns in enumerate(components):
        x = prior.mean[:, :, columns]
        mean[:, :, columns] += variance[:, component] @ (b[:, :, columns] - a[:, component] @ x)
    diffuse = prior.diffuse.copy()

    is_diffuse = np.asarray(prior.diffuse.any(axis=(2, 3)))
    for component, columns in enumerate(components):
        rows = np.flatnonzero(is_unknown[:, component])
        inverse, null = _pseudo_inverse(a[rows, component])
        variance[rows, component], diffuse[rows, component] = inverse, null
        mean[np.ix_(rows, np.arange(n), columns)] = inverse @ b[np.ix_(rows, np.arange(n), columns)]
        for row in np.flatnonzero(is_diffuse[:, component] & ~is_unknown[:, component]):
            part = (prior.variance[row, component], prior.diffuse[row, component])
            answers = (a[row, component], b[row][:, columns])
            found = _update_diffuse(prior.mean[row][:, columns], *part, *answers)
            mean[row][:, columns], variance[row, component], diffuse[row, component] = found
    return LinearEstimates(mean, variance, diffuse)


def _of_measurements(a: np.ndarray, b: np.ndarray, components: Components) -> LinearEstimates:
    """Estimates of geounits of which nothing else is known; those that measured alike share one
    inverse."""
    alike, code = np.unique(a.reshape(len(a), -1), axis=0, return_inverse=True)
    inverse, null = _pseudo_inverse(alike.reshape(-1, *a.shape[1:]))
    variance, diffuse = inverse[code.reshape(-1)], null[code.reshape(-1)]
    mean = np.empty_like(b)
    for component, columns in enumerate(components):
        mean[:, :, columns] = variance[:, component] @ b[:, :, columns]
    return LinearEstimates(mean, variance, diffuse)


def with_totals(estimates: LinearEstimates, h: np.ndarray, totals: np.ndarray) -> LinearEstimates:
    """Estimates given the exact totals `(N,)`, h'x of the constant coordinate; h is `(n,)`."""
    mean, variance = estimates.mean.copy(), estimates.variance.copy()
    diffuse = estimates.diffuse.copy()
    v, d = variance[:, 0], diffuse[:, 0]
    vh, dh = v @ h, d @ h
    known, unknown = vh @ h, dh @ h
    size = np.abs(v).max(axis=(1, 2), initial=0.0) * (h @ h)
    is_unknown = unknown > RELATIVE_ZERO * (h @ h)
    is_known = ~is_unknown & (known > RELATIVE_ZERO * size)
    gain = np.zeros_like(vh)
    gain[is_unknown] = dh[is_unknown] / unknown[is_unknown, None]
    gain[is_known] = vh[is_known] / known[is_known, None]
    mean[:, :, 0] += gain * (totals - mean[:, :, 0] @ h)[:, None]
    cross = gain[:, :, None] * vh[:, None, :]
    v_left = v - cross - cross.swapaxes(1, 2)
    v_left += known[:, None, None] * gain[:, :, None] * gain[:, None, :]
    d_left = d - np.where(is_unknown[:, None, None], gain[:, :, None] * dh[:, None, :], 0.0)
    variance[:, 0] = _without_rounding(v_left, np.trace(v, axis1=1, axis2=2))
    diffuse[:, 0] = _without_rounding(d_left, np.trace(d, axis1=1, axis2=2))
    return LinearEstimates(mean, variance, diffuse)


@dataclass(frozen=True, eq=False)
class Shift:
    """How far sums are from what their parts must add up to, as multiples of covariances.

    along_variance, along_diffuse : (N, n, m); a part moves by its V times the first plus its D
    times the second.
    """

    along_variance: np.ndarray
    along_diffuse: np.ndarray

    def applied(
        self, parts: LinearEstimates, whole: np.ndarray, cells: np.ndarray, components: Components
    ) -> np.ndarray:
        """Means `(N of the parts, n, m)` of the parts that add up; arguments as of
        `LinearEstimates.add`."""
        mean = parts.mean.copy()
        rows = whole[:, None], cells
        for covariance, along in (
            (parts.variance, self.along_variance),
            (parts.diffuse, self.along_diffuse),
        ):
            if covariance.any():
                shift = along[rows]
                for component, columns in enumerate(components):
                    mean[:, :, columns] += covariance[:, component] @ shift[:, :, columns]
        return mean


def shift_to(sums: LinearEstimates, value: np.ndarray, components: Components) -> Shift:
    """The shift that makes parts, whose estimates were summed, add up to `value` (N, n, m)."""
    distance = value - sums.mean
    along_variance, along_diffuse = np.zeros_like(distance), np.zeros_like(distance)
    for component, columns in enumerate(components):
        inverse, _ = _pseudo_inverse(sums.variance[:, component])
        along_variance[:, :, columns] = inverse @ distance[:, :, columns]
        for row in np.flatnonzero(sums.diffuse[:, component].any(axis=(1, 2))):
            matrices = sums.variance[row, component], sums.diffuse[row, component]
            along = _shift_diffuse(distance[row][:, columns], *matrices)
            along_variance[row][:, columns], along_diffuse[row][:, columns] = along
    return Shift(along_variance, along_diffuse)


def gain_matrices(sums: LinearEstimates) -> tuple[np.ndarray, np.ndarray]:
    """A and B (N, S, n, n) of the gain V A + D B by which a part follows its whole, whose estimate
    from its parts is `sums`: the limit of (V + k D) (S + k D_S)^-1 for k without bound."""
    n = sums.variance.shape[-1]
    along, _ = _pseudo_inverse(sums.variance)
    along_diffuse = np.zeros_like(along)
    for row, component in np.argwhere(sums.diffuse.any(axis=(2, 3))):
        matrices = sums.variance[row, component], sums.diffuse[row, component]
        found = _shift_diffuse(np.eye(n), *matrices)
        along[row, component], along_diffuse[row, component] = found
    return along, along_diffuse


def _pseudo_inverse(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pseudo-inverses and null projectors of positive semidefinite matrices `(..., n, n)`."""
    values, vectors = np.linalg.eigh(matrices)
    is_positive = values > RELATIVE_ZERO * np.maximum(values[..., -1:], 1e-300)
    inverse = np.where(is_positive, 1.0, 0.0) / np.where(is_positive, values, 1.0)
    transposed = vectors.swapaxes(-1, -2)
    null = (vectors * ~is_positive[..., None, :]) @ transposed
    return (vectors * inverse[..., None, :]) @ transposed, null


def _without_rounding(matrices: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Positive semidefinite matrices `(N, n, n)` less the eigenvalues that count as zero beside
    `largest` (N,)."""
    values, vectors = np.linalg.eigh(matrices)
    values = np.where(values > RELATIVE_ZERO * largest[:, None], values, 0.0)
    return (vectors * values[:, None, :]) @ vectors.swapaxes(-1, -2)


def _split(matrix: np.ndarray, largest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvectors of a positive semidefinite matrix: with positive eigenvalues, these, null."""
    values, vectors = np.linalg.eigh(matrix)
    is_positive = values > RELATIVE_ZERO * largest
    return vectors[:, is_positive], values[is_positive], vectors[:, ~is_positive]


def _update_diffuse(
    x: np.ndarray, v: np.ndarray, d: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, V and D after the measurements A, b, where D is neither zero nor all there is.

    With A = L L', the measurements are L'x with unit noise, rotated to make L'D L diagonal. Those
    that see D determine what they see of it, and the others update V as usual: the exact initial
    Kalman filter of [KalmanFilter1997].
    """
    vectors, values, _ = _split(a, np.abs(a).max(initial=0.0))
    if not values.size:
        return x, v, d
    root = vectors * np.sqrt(values)
    answers = (vectors / np.sqrt(values)).T @ b
    sees, size, does_not_see = _split(root.T @ d @ root, np.trace(d) * values.max())
    if size.size:
        h, y = (root @ sees).T, sees.T @ answers
        gain = d @ h.T / size
        x = x + gain @ (y - h @ x)
        cross = gain @ h @ v
        v = v + gain @ (h @ v @ h.T + np.eye(size.size)) @ gain.T - cross - cross.T
        d = _without_rounding((d - gain @ h @ d)[None], np.trace(d)[None])[0]
    h, y = (root @ does_not_see).T, does_not_see.T @ answers
    gain = np.linalg.solve(h @ v @ h.T + np.eye(len(h)), h @ v).T
    return x + gain @ (y - h @ x), v - gain @ h @ v, d


def _shift_diffuse(
    distance: np.ndarray, v: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Limits of W^-1 times the distance, and of k times that, for W = V + k D; on the null space
    of D the first is what V asks for, and D takes up the rest."""
    m, size, n = _split(d, np.trace(d))
    inverse, _ = _pseudo_inverse((n.T @ v @ n)[None])
    along = n @ (inverse[0] @ (n.T @ distance))
    return along, m @ ((m.T @ (distance - v @ along)) / size[:, None])
