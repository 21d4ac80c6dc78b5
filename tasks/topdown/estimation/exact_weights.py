"""The inverse covariances of siblings' estimates, by which a pass can weigh them.

A pass of least squares minimises a weighted distance to an estimate. When this is the best linear
unbiased estimate m with the error covariance V, the right distance is (x - m)' V^-1 (x - m): it
alone reflects that a type is known precisely because few descendants can have it, or that the sum
of some cells is known better than they are. V is made of small blocks in the coordinates of
`query_algebra`, and its inverse has the form that `inverse_covariance` computes with.

A pass that distinguishes fewer cells uses the inverted covariance of the sums that it
distinguishes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ....geography.conditioning import RELATIVE_ZERO, pseudo_inverse
from ...census.queries import MarginalQuery
from .quadratic import InverseCovariance
from .query_algebra import QueryAlgebra

UNKNOWN = 1e-9
"""Precision assigned to unknown directions, relative to the largest known precision: the least at
which rounding errors in the matrices remain small relative to it.
"""
LEAST = 1e-2
"""The largest such precision, relative to the smallest known one."""


@dataclass(frozen=True, eq=False)
class ExactWeights:
    """Estimates of the children of one parent and their covariances.

    means : (c, n_cells) best linear unbiased estimates, given the parent.
    variance, diffuse : (c, S, n, n) of the estimates from the children's subtrees, on all n core
        cells; see `LinearEstimates`.
    possible : (c, n) the core cells that a child can have.
    """

    algebra: QueryAlgebra
    means: np.ndarray
    variance: np.ndarray
    diffuse: np.ndarray
    possible: np.ndarray

    def inverse_covariance(
        self, cells: np.ndarray, queries: Sequence[MarginalQuery] | None = None
    ) -> InverseCovariance:
        """Inverse covariances for a pass on these `cells` (k,) of the histogram, each representing
        all cells that the `queries` do not distinguish from it; without queries, itself alone.
        """
        sums = sums_of(self.algebra, None if queries is None else tuple(queries))
        levels, classes = sums.level_of_cell[cells], sums.class_of_cell[cells]
        variance, diffuse = sums.covariance(self.variance), sums.covariance(self.diffuse)
        precision = inverses(variance, diffuse, sums.possible(self.possible))
        within, across = sums.on_classes(precision)
        cube = sums.cube(self.means).copy()
        centre = cube[:, classes, levels]
        cube[:, classes, levels] = 0.0
        product = within @ cube + across @ cube.sum(axis=2, keepdims=True)
        kept, numbers = np.unique(classes, return_inverse=True)
        square = np.ix_(np.arange(len(cube)), kept, kept)
        return InverseCovariance(
            np.ascontiguousarray(within[square]),
            np.ascontiguousarray(across[square]),
            numbers.reshape(-1).astype(np.int64),
            np.unique(levels, return_inverse=True)[1].reshape(-1).astype(np.int64),
            np.ascontiguousarray(centre),
            np.ascontiguousarray(product[:, classes, levels]),
            0.5 * (cube * product).sum(axis=(1, 2)),
        )


class Sums:
    """The sums of cells that queries jointly distinguish, as rows of the core and levels of the
    free attributes that any query keeps.

    core : (n_rows, n) 0/1 matrix from core cells to rows of the core. codes : numbers of the
    algebra's components that the sums have, in their own order. class_of_cell, level_of_cell :
    (n_cells,) of the sum that holds a cell.
    """

    def __init__(self, algebra: QueryAlgebra, query: MarginalQuery) -> None:
        self.algebra, self.query = algebra, query
        self.core = algebra.core_matrix(query)
        # The free attributes that are kept, the longest last, and their numbers of levels.
        shape = [query.shape[axis] for axis in algebra.free]
        self._kept = sorted((b for b, size in enumerate(shape) if size > 1), key=lambda b: shape[b])
        self._sizes = [algebra.free_shape[bit] for bit in self._kept]
        self.codes = [
            sum(1 << bit for place, bit in enumerate(self._kept) if code >> place & 1)
            for code in range(1 << len(self._kept))
        ]
        self._n_levels = self._sizes[-1] if self._sizes else 1
        rows = np.arange(query.n_rows)[None]
        place_of_row = np.argsort(self._arranged(rows).ravel())
        place = place_of_row[query.row_of_cell]
        self.class_of_cell, self.level_of_cell = np.divmod(place, self._n_levels)

    def covariance(self, of_cells: np.ndarray) -> np.ndarray:
        """Covariance of the sums (c, 2^kept, n_rows, n_rows), from the core cells' (c, S, n, n):
        a sum's variance is multiplied by the number of coordinates that it covers.
        """
        summed = math.prod(self.algebra.free_shape) / math.prod(self._sizes)
        return summed * (self.core @ of_cells[:, self.codes] @ self.core.T)

    def possible(self, core_cells: np.ndarray) -> np.ndarray:
        """(c, n_rows) whether a row has a core cell that is possible, from (c, n)."""
        return core_cells @ self.core.T > 0

    def on_classes(self, matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W and G of `InverseCovariance` (c, U, U) from the components (c, 2^kept, n_rows, n_rows):
        the contrasts among levels, and the addition of the sum over levels."""
        n_rows, others = matrices.shape[-1], self._sizes[:-1]
        n_classes = n_rows * math.prod(others)
        halves = []
        for is_contrast in (0, 1) if self._sizes else (0,):
            half = np.zeros((len(matrices), n_classes, n_classes))
            for code, projector in enumerate(self._projectors):
                component = matrices[:, code | is_contrast << len(others)]
                product = component[:, :, None, :, None] * projector[None, None, :, None, :]
                half += product.reshape(half.shape)
            halves.append(half)
        if len(halves) == 1:
            return halves[0], np.zeros_like(halves[0])
        return halves[1], (halves[0] - halves[1]) / self._n_levels

    @cached_property
    def _projectors(self) -> list[np.ndarray]:
        """Projectors by code, for the kept free attributes except the longest: on the mean of an
        attribute's levels, or on the contrasts among them.
        """
        found = [np.ones((1, 1))]
        for size in self._sizes[:-1]:
            mean = np.full((size, size), 1.0 / size)
            found = [np.kron(one, part) for part in (mean, np.eye(size) - mean) for one in found]
        return found

    def cube(self, histograms: np.ndarray) -> np.ndarray:
        """The sums as (c, U, levels)."""
        return self._arranged(self.query.answer(histograms))

    def _arranged(self, answers: np.ndarray) -> np.ndarray:
        """Answers to the query (c, rows) as (c, U, levels)."""
        cube = self.algebra.by_core(answers, self.query.shape)
        order = [bit for bit in range(len(self.algebra.free)) if bit not in self._kept]
        axes = [0, 1, *(2 + bit for bit in [*order, *self._kept])]
        arranged = np.ascontiguousarray(cube.transpose(axes))
        return arranged.reshape(len(cube), -1, self._n_levels)


@lru_cache(maxsize=64)
def sums_of(algebra: QueryAlgebra, queries: tuple[MarginalQuery, ...] | None) -> Sums:
    """The common refinement of the queries and of the types; without, the cells themselves.

    Parents with equal queries share it and its cached results.
    """
    shape = algebra.schema.shape
    if queries is None:
        return Sums(algebra, MarginalQuery("", tuple(map(tuple, map(range, shape)))))
    types = algebra.cell_type.reshape([shape[axis] for axis in algebra.core])
    factors = []
    for axis in range(len(shape)):
        told_apart = np.array([query.factors[axis] for query in queries]).T
        if axis in algebra.core:
            lines = np.moveaxis(types, algebra.core.index(axis), 0)
            told_apart = np.hstack([told_apart, lines.reshape(len(lines), -1)])
        number = np.unique(told_apart, axis=0, return_inverse=True)[1]
        factors.append(tuple(number.reshape(-1).tolist()))
    return Sums(algebra, MarginalQuery("", tuple(factors)))


def inverses(variance: np.ndarray, diffuse: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """Inverses of the covariances V + k D for k without bound, definite.

    Where V is singular because something is known exactly, the constraints fix the known part, and
    any precision serves; unknown directions get nearly none; impossible rows get one of their own.

    Args:
        variance, diffuse: (c, S, n, n).
        possible: (c, n); other rows and columns are zero.

    Example: for V of a known total, [[1, -1], [-1, 1]], and D = 0, the inverse on the contrast,
    and the mean precision on the total.
    """
    inverse, null = pseudo_inverse(variance)
    count = len(null[0, 0]) - np.trace(null, axis1=2, axis2=3)
    total = np.trace(variance, axis1=2, axis2=3)
    typical = np.divide(count, total, out=np.ones(count.shape), where=total > 0.0)
    found = inverse + typical[..., None, None] * null
    largest = np.linalg.eigvalsh(inverse)[..., -1].max(axis=1, initial=0.0)
    for child, component in np.argwhere(diffuse.any(axis=(2, 3))):
        found[child, component] = _with_unknown(
            variance[child, component],
            diffuse[child, component],
            typical[child, component],
            UNKNOWN * (largest[child] or 1.0),
        )
    is_pair = possible[:, None, :, None] & possible[:, None, None, :]
    diagonal = np.eye(variance.shape[-1]) * typical[..., None, None]
    return np.where(is_pair, found, diagonal)


def _with_unknown(
    variance: np.ndarray, diffuse: np.ndarray, typical: float, least: float
) -> np.ndarray:
    """One inverse with unknown directions, which get the precision `least`, or less where that is
    large relative to the smallest known precision.
    """
    values, vectors = np.linalg.eigh(diffuse)
    is_unknown = values > RELATIVE_ZERO * values[-1]
    known, unknown = vectors[:, ~is_unknown], vectors[:, is_unknown]
    values, vectors = np.linalg.eigh(known.T @ variance @ known)
    is_positive = values > RELATIVE_ZERO * np.maximum(values.max(initial=0.0), 1e-300)
    if is_positive.any():
        least = min(least, LEAST / values[is_positive].max())
    precision = np.where(is_positive, 1.0 / np.where(is_positive, values, 1.0), typical)
    root = known @ vectors
    return (root * precision) @ root.T + least * (unknown @ unknown.T)
