"""Marginal queries in coordinates in which their least-squares problem falls apart.

The attributes of a schema are of two kinds. *Free* ones every query either keeps whole or sums
over, and no bound or structural zero distinguishes their levels; the others (for the redistricting
product the group-quarters type and, because no minors live in nursing homes, voting age) form the
*core*. On a free attribute of d levels take an orthonormal basis whose first vector is constant: a
query that keeps the attribute is the identity there, and one that sums over it sees the first
coordinate alone, multiplied by sqrt(d). A coordinate's *component* is the set of free attributes on
which it is not the first. No query mixes components, and within one of them all coordinates have
the same Gram matrix, a small one on the core cells. For a query that keeps the free attributes U
and maps core cells to core rows by the 0/1 matrix C it is

    C'C times the product of d over the free attributes outside U, in components within U,

and 0 in the others. On the core the Gram matrices do not commute, so the small matrices are
carried without diagonalisation. Types that a geounit cannot have are left out of its core: their
cells are zero without noise.

*Which components are carried.* Noisy answers to a query that keeps U inform the components within U
and no other, an exact total the constant one. So all information is in the components within some
measured U; going up and down a spine never mixes components; and an answer that keeps W sees those
within W. With B free attributes there are 2^B components. For the answers to queries W, those
within some U and some W are needed one by one (`restricted`). In all others that an answer asked
for sees A and b are zero, so that the estimate and V are zero, and D is equal for all components:
it begins with the identity on a block's possible cells, and sums, measurements and wholes act on it
through the core alone. One component without coordinates represents them all. Where parents' counts
are given, as in estimation, they inform every component, and all are carried.

Shapes: N geounits that can have the same types, n core cells of those types, m coordinates of the
free attributes that are carried, S components. The redistricting product has n = 2 without group
quarters, at most 15, m = 126 and S = 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import helmert

from ...census.queries import MarginalQuery, Schema
from .problem import QueryMeasurement


@dataclass(frozen=True, eq=False)
class Cube:
    """The coordinates of the components within one set of free attributes, as a cube of these.

    kept : the set, as bits. shape : the levels of every free attribute in it, 1 for the others.
    codes : the components, as sets of bits, that no earlier cube has.
    columns, places : (k,) their coordinates, among the carried ones and in the cube.
    """

    kept: int
    shape: tuple[int, ...]
    codes: tuple[int, ...]
    columns: np.ndarray
    places: np.ndarray

    def spread(self, x: np.ndarray) -> np.ndarray:
        """(N, z, shape...) from coordinates (N, z, m), zeros where another cube has them."""
        cube = np.zeros((*x.shape[:2], math.prod(self.shape)))
        cube[:, :, self.places] = x[:, :, self.columns]
        return cube.reshape(*x.shape[:2], *self.shape)

    def enter(self, cube: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Coordinates (N, z, m) `x` with the cube's (N, z, shape...) entered."""
        x[:, :, self.columns] = cube.reshape(*x.shape[:2], -1)[:, :, self.places]
        return x


@dataclass(frozen=True, eq=False)
class QueryAlgebra:
    """The coordinates for a schema, its queries, its impossible cells and its bounded types.

    core, free : numbers of the attributes of each kind, in the schema's order.
    cell_type : (n_core,) type of each core cell.
    is_possible : (n_core,) whether the core cell is no structural zero.
    sets : sets of free attributes, as bits, none within another, within which components are
        carried one by one; None for all.
    has_others : whether one more component, the last, represents all others.
    """

    schema: Schema
    core: tuple[int, ...]
    free: tuple[int, ...]
    cell_type: np.ndarray
    is_possible: np.ndarray
    sets: tuple[int, ...] | None = None
    has_others: bool = False

    @classmethod
    def build(
        cls,
        schema: Schema,
        queries: Sequence[MarginalQuery],
        type_of_cell: np.ndarray,
        forbidden: np.ndarray,
    ) -> QueryAlgebra:
        """The algebra from all queries in use, the type of each cell and the mask of impossible
        cells, both `(n_cells,)`.
        """
        cubes = [array.reshape(schema.shape) for array in (type_of_cell, forbidden)]

        # Where every query keeps an attribute whole or sums it away, and no type or structural zero
        # depends on its levels, its contrasts are measured apart from each other.
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

    def restricted(
        self, measured: Sequence[MarginalQuery], asked: Sequence[MarginalQuery] | None = None
    ) -> QueryAlgebra:
        """This algebra reduced to the components that noisy answers to the queries `measured`
        inform and answers to the queries `asked`, any by default, see; the module's docstring says
        how.
        """
        axes_measured = {self.kept_axes(query) for query in measured} or {0}
        seen = {self._every} if asked is None else {self.kept_axes(query) for query in asked}
        # An answer that keeps a set sees the components within it: a measured and a requested one
        # share the components within both sets.
        both = {u & w for u in axes_measured for w in seen}
        largest = [u for u in both if not any(u & w == u != w for w in both)]
        sets = tuple(sorted(largest, key=lambda u: (-u.bit_count(), u)))
        others = any(all(w & ~kept for kept in sets) for w in seen)
        return replace(self, sets=None if sets == (self._every,) else sets, has_others=others)

    def kept_axes(self, query: MarginalQuery) -> int:
        """The free attributes that a query keeps, as bits."""
        return sum(1 << bit for bit, axis in enumerate(self.free) if query.shape[axis] > 1)

    @property
    def _every(self) -> int:
        """All free attributes that have levels to keep, as bits."""
        return sum(1 << bit for bit, size in enumerate(self.free_shape) if size > 1)

    @cached_property
    def n_coordinates(self) -> int:
        """m, the number of coordinates of the free attributes that are carried."""
        return len(self._carried)

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """The components that are carried one by one, as sets of free attributes by bits."""
        if self.sets is None:
            return tuple(range(1 << len(self.free)))
        return tuple(sorted({code for kept in self.sets for code in subsets(kept)}))

    @cached_property
    def components(self) -> tuple[np.ndarray, ...]:
        """Coordinates of each component; the first component is the constant coordinate alone."""
        shape = self.free_shape
        found = [np.searchsorted(self._carried, _places(code, shape)) for code in self.codes]
        nothing = [np.zeros(0, dtype=np.int64)] if self.has_others else []
        return (*found, *nothing)

    @cached_property
    def cubes(self) -> tuple[Cube, ...]:
        """Cubes that together have every carried coordinate once."""
        found, left = [], set(self.codes)
        for kept in self.sets or ((1 << len(self.free)) - 1,):
            shape = tuple(
                size if kept >> bit & 1 else 1 for bit, size in enumerate(self.free_shape)
            )
            own = sorted(left.intersection(subsets(kept)))
            left.difference_update(own)
            columns = np.concatenate([self.components[self.codes.index(code)] for code in own])
            places = np.concatenate([_places(code, shape) for code in own])
            order = np.argsort(columns)
            found.append(Cube(kept, shape, tuple(own), columns[order], places[order]))
        return tuple(found)

    @cached_property
    def _carried(self) -> np.ndarray:
        """(m,) the coordinates that are carried, among all of the free attributes."""
        return np.sort(np.concatenate([_places(code, self.free_shape) for code in self.codes]))

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

    def cells_of(self, type_is_possible: np.ndarray) -> np.ndarray:
        """Core cells `(n,)` of a geounit that can have the types of `type_is_possible` (T,)."""
        return np.flatnonzero(self.is_possible & type_is_possible[self.cell_type])

    def coordinates(self, histograms: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Coordinates `(N, n, m)` of histograms `(N, n_cells)` on the core cells `cells`."""
        cube = self._on_bases(self.by_core(histograms, self.schema.shape)[:, cells])
        flat = cube.reshape(len(cube), len(cells), math.prod(self.free_shape))
        return flat if self.sets is None else flat[:, :, self._carried]

    def histograms(self, x: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Histograms `(N, n_cells)` from coordinates `(N, n, m)`; other cells are 0."""
        if self.sets is not None:
            every = np.zeros((*x.shape[:2], math.prod(self.free_shape)))
            every[:, :, self._carried] = x
            x = every
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
        kept = self.kept_axes(query)
        left = [size for bit, size in enumerate(self.free_shape) if not kept >> bit & 1]
        gram = np.zeros((len(self.components), len(cells), len(cells)))
        for component, code in enumerate(self.codes):
            if not code & ~kept:
                gram[component] = math.prod(left) * same_row
        return gram

    def information(
        self,
        measurements: Mapping[str, QueryMeasurement],
        cells: np.ndarray,
        rows: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Information of noisy answers: A `(N, S, n, n)`, the precision-weighted sum of Gram
        matrices, and b `(N, n, m)`, the weighted sum of Q'y; the weighted least-squares estimate
        solves A x = b.

        Restricted to the geounits `rows` (N,), if given.
        """
        if rows is None:
            rows = np.arange(len(next(iter(measurements.values())).precision))
        n_geounits = len(rows)
        a = np.zeros((n_geounits, len(self.components), len(cells), len(cells)))
        for answers in measurements.values():
            precision = answers.precision[rows].astype(np.float64)
            a += precision[:, None, None, None] * self.gram(answers.query, cells)
        b = np.empty((n_geounits, len(cells), self.n_coordinates))
        for cube in self.cubes:
            weighted = np.zeros((n_geounits, len(cells), *cube.shape))
            for answers in measurements.values():
                kept = self.kept_axes(answers.query)
                if all(code & ~kept for code in cube.codes):
                    continue
                by_core, scale = self._summed(answers, cube)
                precision = answers.precision[rows].astype(np.float64) * scale
                by_core = by_core[rows[:, None], self.core_row(answers.query, cells)]
                weighted += by_core * precision.reshape(-1, *(1,) * (by_core.ndim - 1))
            b = cube.enter(self._on_bases(weighted), b)
        return a, b

    def _summed(self, answers: QueryMeasurement, cube: Cube) -> tuple[np.ndarray, float]:
        """Answers (N, core rows, levels or 1 of each free attribute) that a cube's coordinates see,
        summed over the attributes that the cube does not keep, and their factor: on an attribute of
        d levels they are the first coordinate, which is the sum over sqrt(d), or sqrt(d) times an
        existing sum.
        """
        by_core, scale = self.by_core(answers.values, answers.query.shape), 1.0
        for bit, size in enumerate(self.free_shape):
            if not cube.kept >> bit & 1 and size > 1:
                if by_core.shape[2 + bit] == 1:
                    scale *= math.sqrt(size)
                else:
                    scale /= math.sqrt(size)
                    by_core = by_core.sum(axis=2 + bit, keepdims=True)
        return by_core, scale

    def total_vector(self, n_cells: int) -> np.ndarray:
        """h `(n,)`: the total of x is h'x[:, 0], for the constant coordinate is the first."""
        return np.full(n_cells, math.sqrt(math.prod(self.free_shape)))

    def core_matrix(self, query: MarginalQuery) -> np.ndarray:
        """(core rows, n_core) 0/1 matrix from core cells to the core rows of a query."""
        n_rows = math.prod(query.shape[axis] for axis in self.core)
        row = self.core_row(query, np.arange(len(self.cell_type)))
        return (row == np.arange(n_rows)[:, None]).astype(np.float64)

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
        """(N, n, free...) to coordinates along each free attribute that the cube keeps."""
        for position, basis in enumerate(self.bases, 2):
            if cube.shape[position] == len(basis):
                cube = np.moveaxis(np.moveaxis(cube, position, -1) @ basis.T, -1, position)
        return cube


def subsets(bits: int) -> list[int]:
    """All subsets of a set of bits, ascending.

    >>> subsets(0b101)
    [0, 1, 4, 5]
    """
    found = [0]
    for bit in range(bits.bit_length()):
        if bits >> bit & 1:
            found += [one | 1 << bit for one in found]
    return found


def _places(code: int, shape: tuple[int, ...]) -> np.ndarray:
    """Places of a component's coordinates in a cube of this shape, ascending."""
    found = np.zeros(1, dtype=np.int64)
    for bit, size in enumerate(shape):
        levels = np.arange(1, size) if code >> bit & 1 else np.zeros(1, dtype=np.int64)
        found = (found[:, None] * size + levels).ravel()
    return found
