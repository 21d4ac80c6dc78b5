"""Marginal queries in coordinates in which their least-squares problem falls apart.

The attributes of a schema are of two kinds. *Free* ones every query either keeps whole or sums
over, and no bound or structural zero tells their levels apart; the others (for the redistricting
product the group-quarters type and, because nobody in a nursing home is a minor, voting age) form
the *core*. On a free attribute of d levels take an orthonormal basis whose first vector is
constant: a query that keeps the attribute is the identity there, and one that sums over it sees
the first coordinate alone, multiplied by sqrt(d). A coordinate's *component* is the set of free
attributes on which it is not the first. No query mixes components, and within one of them all
coordinates have the same Gram matrix, a small one on the core cells. For a query that keeps the
free attributes U and maps core cells to core rows by the 0/1 matrix C it is

    C'C times the product of d over the free attributes outside U, in components within U,

and 0 in the others. On the core the Gram matrices do not commute, so the small matrices are
carried as they are. Types that a geounit cannot have are left out of its core: their cells are
zero without noise.

Shapes: N geounits that can have the same types, n core cells of those types, m coordinates of the
free attributes, S components. The redistricting product has n = 2 without group quarters, at most
15, m = 126 and S = 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import helmert

from ...census.queries import MarginalQuery
from ...census.schema import Schema
from .problem import QueryMeasurement


@dataclass(frozen=True, eq=False)
class QueryAlgebra:
    """The coordinates for a schema, its queries, its impossible cells and its bounded types.

    core, free : numbers of the attributes of each kind, in the schema's order.
    cell_type : (n_core,) type of each core cell.
    is_possible : (n_core,) whether the core cell is no structural zero.
    """

    schema: Schema
    core: tuple[int, ...]
    free: tuple[int, ...]
    cell_type: np.ndarray
    is_possible: np.ndarray

    @classmethod
    def build(
        cls,
        schema: Schema,
        queries: Sequence[MarginalQuery],
        type_of_cell: np.ndarray,
        forbidden: np.ndarray,
    ) -> QueryAlgebra:
        """From all queries that will be met, the type of each cell and the mask of impossible
        cells, both `(n_cells,)`.
        """
        cubes = [array.reshape(schema.shape) for array in (type_of_cell, forbidden)]

        def is_free(axis: int) -> bool:
            size = schema.shape[axis]
            kept_or_summed = (tuple(range(size)), (0,) * size)
            return all(query.factors[axis] in kept_or_summed for query in queries) and not any(
                np.diff(cube.astype(np.int64), axis=axis).any() for cube in cubes
            )

        axes = range(len(schema.shape))
        free = tuple(axis for axis in axes if is_free(axis))
        core = tuple(axis for axis in axes if axis not in free)
        cell_type, impossible = (cube.transpose(core + free) for cube in cubes)
        n_core = math.prod(schema.shape[axis] for axis in core)
        return cls(
            schema,
            core,
            free,
            cell_type.reshape(n_core, -1)[:, 0],
            ~impossible.reshape(n_core, -1)[:, 0],
        )

    @cached_property
    def free_shape(self) -> tuple[int, ...]:
        """Number of levels of each free attribute."""
        return tuple(self.schema.shape[axis] for axis in self.free)

    @property
    def n_coordinates(self) -> int:
        """m, the number of coordinates of the free attributes."""
        return math.prod(self.free_shape)

    @cached_property
    def components(self) -> tuple[np.ndarray, ...]:
        """Coordinates of each component; the first component is the constant coordinate alone."""
        code = np.zeros(1, dtype=np.int64)
        for bit, size in enumerate(self.free_shape):
            is_first = np.arange(size) == 0
            code = (code[:, None] + np.where(is_first, 0, 1 << bit)).ravel()
        return tuple(np.flatnonzero(code == c) for c in range(1 << len(self.free)))

    @cached_property
    def bases(self) -> tuple[np.ndarray, ...]:
        """Orthonormal basis of each free attribute, one vector a row, the first constant."""
        return tuple(
            helmert(size, full=True) if size > 1 else np.ones((1, 1)) for size in self.free_shape
        )

    @cached_property
    def longest(self) -> int | None:
        """Number of the free attribute that has the most levels, None without any."""
        return max(self.free, key=lambda axis: self.schema.shape[axis], default=None)

    @property
    def n_covariances(self) -> int:
        """How many covariances a geounit has that can have every core cell."""
        return len(self.components) * len(self.cell_type) ** 2

    def cells_of(self, can_have: np.ndarray) -> np.ndarray:
        """Core cells `(n,)` of a geounit that can have the types marked in `can_have` (T,)."""
        return np.flatnonzero(self.is_possible & can_have[self.cell_type])

    def coordinates(self, histograms: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Coordinates `(N, n, m)` of histograms `(N, n_cells)` on the core cells `cells`."""
        cube = self._on_bases(self.by_core(histograms, self.schema.shape)[:, cells])
        return cube.reshape(len(cube), len(cells), self.n_coordinates)

    def histograms(self, x: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Histograms `(N, n_cells)` from coordinates `(N, n, m)`; other cells are 0."""
        part = x.reshape(*x.shape[:2], *self.free_shape)
        for position, basis in enumerate(self.bases, 2):
            part = np.moveaxis(np.moveaxis(part, position, -1) @ basis, -1, position)
        cube = np.zeros((len(x), len(self.cell_type), *self.free_shape))
        cube[:, cells] = part
        return self._by_schema(cube)

    def gram(self, query: MarginalQuery, cells: np.ndarray) -> np.ndarray:
        """Gram matrices `(S, n, n)` of a query in every component."""
        row = self.core_row(query, cells)
        same_row = (row[:, None] == row[None, :]).astype(np.float64)
        kept = [query.shape[axis] > 1 for axis in self.free]
        scale = math.prod(s for s, k in zip(self.free_shape, kept, strict=True) if not k)
        gram = np.zeros((len(self.components), len(cells), len(cells)))
        for component in range(len(self.components)):
            if all(k or not component >> bit & 1 for bit, k in enumerate(kept)):
                gram[component] = scale * same_row
        return gram

    def information(
        self, measurements: Mapping[str, QueryMeasurement], cells: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What noisy answers tell: A `(N, S, n, n)`, the precision-weighted sum of Gram matrices,
        and b `(N, n, m)`, that of Q'y; the weighted least-squares estimate solves A x = b.
        """
        n_geounits = len(next(iter(measurements.values())).precision)
        a = np.zeros((n_geounits, len(self.components), len(cells), len(cells)))
        weighted = np.zeros((n_geounits, len(cells), *self.free_shape))
        for answers in measurements.values():
            query, precision = answers.query, answers.precision.astype(np.float64)
            a += precision[:, None, None, None] * self.gram(query, cells)
            row = self.core_row(query, cells)
            by_core = self.by_core(answers.values, query.shape)[:, row]
            weighted += by_core * precision.reshape(-1, *(1,) * (by_core.ndim - 1))
        b = self._on_bases(weighted)
        return a, b.reshape(n_geounits, len(cells), self.n_coordinates)

    def total_vector(self, n_cells: int) -> np.ndarray:
        """h `(n,)`: the total of x is h'x[:, 0], for the constant coordinate is the first."""
        return np.full(n_cells, math.sqrt(self.n_coordinates))

    def core_row(self, query: MarginalQuery, cells: np.ndarray) -> np.ndarray:
        """Core row `(n,)` of the query that counts each of the core cells."""
        row = np.zeros(1, dtype=np.int64)
        for axis in self.core:
            row = (row[:, None] * query.shape[axis] + np.array(query.factors[axis])).ravel()
        return row[cells]

    def by_core(self, answers: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Rows in schema order `(N, n_rows)` as (N, core rows, free attribute, ...)."""
        order = [0, *(1 + axis for axis in self.core + self.free)]
        cube = np.asarray(answers).reshape(len(answers), *shape).transpose(order)
        return cube.reshape(len(answers), -1, *(shape[axis] for axis in self.free))

    def _by_schema(self, cube: np.ndarray) -> np.ndarray:
        """Histograms `(N, n_cells)` from (N, core cells, free attribute, ...)."""
        axes = self.core + self.free
        cube = cube.reshape(len(cube), *(self.schema.shape[axis] for axis in axes))
        order = [0, *(1 + axes.index(axis) for axis in range(len(axes)))]
        return cube.transpose(order).reshape(len(cube), -1)

    def _on_bases(self, cube: np.ndarray) -> np.ndarray:
        """(N, n, free...) to coordinates along each free attribute."""
        for position, basis in enumerate(self.bases, 2):
            cube = np.moveaxis(np.moveaxis(cube, position, -1) @ basis.T, -1, position)
        return cube
