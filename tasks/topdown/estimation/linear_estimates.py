"""Best linear unbiased estimates of geounits from everything measured below them.

For one geounit, in the coordinates of `tasks.topdown.estimation.query_algebra`, the measurements
in its subtree determine x as far as they do at all: its estimate has the error covariance

    V + k D,    k -> infinity,

and `geography.conditioning` says how it follows from measurements, sums of parts, exact totals and
wholes. Here are these steps with means, for N geounits that can have the same types at once; shapes
are those of `tasks.topdown.estimation.query_algebra`. If the root's estimate is what goes down, the
result is weighted least squares over the whole spine at once.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....geography.conditioning import (
    RELATIVE_ZERO,
    given_whole,
    pseudo_inverse,
    root_of,
    see,
    symmetric,
    whole_gains,
    without_rounding,
)

RELATIVE_LEFT = 1e-9
"""What a whole leaves of D, relative to what it was, from which it counts as zero."""

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

    def taken(self, rows: np.ndarray) -> LinearEstimates:
        """Those of some geounits."""
        return LinearEstimates(self.mean[rows], self.variance[rows], self.diffuse[rows])

    def add(self, parts: LinearEstimates, whole: np.ndarray, cells: np.ndarray) -> None:
        """Add the estimates of disjoint parts to the sums in place.

        `whole` (N of the parts,) is the row of the sum that each belongs to, and never decreases;
        `cells` (n of the parts,) the position of their core cells among those of the sums.
        """
        starts = np.flatnonzero(np.diff(whole, prepend=-1))
        rows = whole[starts]
        square = np.ix_(cells, cells)
        self.mean[rows[:, None], cells] += np.add.reduceat(parts.mean, starts, axis=0)
        for sums, added in ((self.variance, parts.variance), (self.diffuse, parts.diffuse)):
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
    """
    n = a.shape[-1]
    is_unknown = (prior.diffuse == np.eye(n)).all(axis=(2, 3)) & ~prior.variance.any(axis=(2, 3))
    if is_unknown.all():
        return _of_measurements(a, b, components)
    # Where nothing is measured nothing of D is seen.
    is_diffuse = prior.diffuse.any(axis=(2, 3)) & a.any(axis=(2, 3)) & ~is_unknown
    if is_diffuse.any():
        prior, a, b = _with_seen(prior, a, b, np.argwhere(is_diffuse), components)
    variance = symmetric(np.linalg.solve(np.eye(n) + prior.variance @ a, prior.variance))
    mean, diffuse = prior.mean.copy(), prior.diffuse.copy()
    for component, columns in enumerate(components):
        x = prior.mean[:, :, columns]
        mean[:, :, columns] += variance[:, component] @ (b[:, :, columns] - a[:, component] @ x)
        rows = np.flatnonzero(is_unknown[:, component])
        inverse, null = pseudo_inverse(a[rows, component])
        variance[rows, component], diffuse[rows, component] = inverse, null
        mean[np.ix_(rows, np.arange(n), columns)] = inverse @ b[np.ix_(rows, np.arange(n), columns)]
    return LinearEstimates(mean, variance, diffuse)


def _with_seen(
    prior: LinearEstimates,
    a: np.ndarray,
    b: np.ndarray,
    diffuse: np.ndarray,
    components: Components,
) -> tuple[LinearEstimates, np.ndarray, np.ndarray]:
    """Estimates that take in the answers which see D, and A and b of all others; `diffuse` (p, 2)
    are the geounits and components where D is neither zero nor all there is."""
    known = LinearEstimates(prior.mean.copy(), prior.variance.copy(), prior.diffuse.copy())
    a, b = a.copy(), b.copy()
    for row, component in diffuse.tolist():
        at, columns = (row, component), components[component]
        found = see(root_of(a[at]), 1.0, known.variance[at], known.diffuse[at])
        if found is not None:
            seen, known.variance[at], known.diffuse[at], rest = found
            x, answers = known.mean[row][:, columns], seen.answers @ b[row][:, columns]
            known.mean[row][:, columns] += seen.gain @ (answers - seen.rows @ x)
            b[row][:, columns] -= seen.rows.T @ answers
            a[at] = rest @ rest.T
    return known, a, b


def _of_measurements(a: np.ndarray, b: np.ndarray, components: Components) -> LinearEstimates:
    """Estimates of geounits of which nothing else is known; those that measured alike share one
    inverse."""
    alike, code = np.unique(a.reshape(len(a), -1), axis=0, return_inverse=True)
    inverse, null = pseudo_inverse(alike.reshape(-1, *a.shape[1:]))
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
    variance[:, 0] = without_rounding(v_left, np.trace(v, axis1=1, axis2=2))
    diffuse[:, 0] = without_rounding(d_left, np.trace(d, axis1=1, axis2=2))
    return LinearEstimates(mean, variance, diffuse)


@dataclass(frozen=True, eq=False)
class Gains:
    """How parts follow their wholes, of which `sums` is known from the parts alone: by V P + D Q.

    along, along_diffuse : (N, S, n, n) P and Q of every whole.
    """

    sums: LinearEstimates
    components: Components
    along: np.ndarray
    along_diffuse: np.ndarray

    @classmethod
    def of(cls, sums: LinearEstimates, components: Components) -> Gains:
        """From the sums over the parts."""
        return cls(sums, components, *whole_gains(sums.variance, sums.diffuse))

    def shift(self, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far the sums are from the wholes' means (N, n, m), times P and times Q; a part moves
        by its V times the first and its D times the second."""
        distance = means - self.sums.mean
        shifts = np.zeros_like(distance), np.zeros_like(distance)
        for along, shift in zip((self.along, self.along_diffuse), shifts, strict=True):
            if along.any():
                for component, columns in enumerate(self.components):
                    shift[:, :, columns] = along[:, component] @ distance[:, :, columns]
        return shifts

    def means(
        self,
        parts: LinearEstimates,
        whole: np.ndarray,
        cells: np.ndarray,
        shifts: tuple[np.ndarray, np.ndarray],
    ) -> np.ndarray:
        """Means `(N of the parts, n, m)` of parts given their wholes, from the wholes' `shift`,
        which spares a gain for each part; `whole` and `cells` as of `LinearEstimates.add`."""
        mean = parts.mean.copy()
        rows = whole[:, None], cells
        for covariance, along in zip((parts.variance, parts.diffuse), shifts, strict=True):
            if covariance.any():
                shift = along[rows]
                for component, columns in enumerate(self.components):
                    mean[:, :, columns] += covariance[:, component] @ shift[:, :, columns]
        return mean

    def enter_given(
        self,
        into: LinearEstimates,
        parts: LinearEstimates,
        rows: np.ndarray,
        whole: np.ndarray,
        cells: np.ndarray,
        wholes: LinearEstimates,
    ) -> None:
        """Enter in `into`, zeros yet, the estimates of the parts `rows` given those of the `wholes`
        from everything; `whole` (N of the rows,) and `cells` as of `means`."""
        mean, distance = parts.mean[rows], wholes.mean[whole] - self.sums.mean[whole]
        for component, columns in enumerate(self.components):
            v, d = parts.variance[rows, component], parts.diffuse[rows, component]
            at = whole, component
            gain, is_diffuse = v @ self.along[at][:, cells], d.any()
            if is_diffuse:
                gain = gain + d @ self.along_diffuse[at][:, cells]
            mean[:, :, columns] += gain @ distance[:, :, columns]
            both = self.sums.variance[at] + wholes.variance[at]
            into.variance[rows, component] = given_whole(v, gain, cells, both)
            if is_diffuse:
                both = self.sums.diffuse[at] + wholes.diffuse[at]
                left = given_whole(d, gain, cells, both)
                size = np.abs(d).max(axis=(1, 2), keepdims=True)
                is_left = np.abs(left) > RELATIVE_LEFT * size
                into.diffuse[rows, component] = np.where(is_left, left, 0.0)
        into.mean[rows] = mean
