"""The constraints of a declared census in the solver's terms, family by family.

Bounds and exact answers of one query, whose rows are the cells' types, and exact totals of all
children are what the solvers know by themselves. Everything else is rows of a linear program
(`LinearRows`): a family that has such is no network, and HiGHS rounds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from spineflow.tasks.answers.noisy import Constraint, read_constraints
from spineflow.tasks.census.census import Bound, Universe
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.topdown.estimation.problem import NO_BOUND, LinearRows
from spineflow.tasks.topdown.measurement.declared_constraints import (
    PART,
    LevelUnits,
    constraint_name,
)

TOTAL = "total"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Sums of cells between bounds, for geounits or groups of them.

    matrix : (R, n_cells) weights of the cells. group : (n,) the group of each of the shard's
    geounits, -1 for none. lower, upper : (n_groups, R).
    """

    name: str
    matrix: sparse.csr_array
    group: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True, eq=False)
class DeclaredConstraints:
    """Constraints of a shard's geounits; see `estimation.problem.SiblingProblem`.

    type_of_cell : (n_cells,). lower, upper : (n, T). total : (n,) exact totals, -1 where there is
    none. group, group_total : (n,) unit that a geounit is a part of, -1 for none, and the units'
    exact totals.
    """

    type_of_cell: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    total: np.ndarray
    group: np.ndarray
    group_total: np.ndarray
    rows: tuple[_Rows, ...]

    @classmethod
    def read(
        cls,
        path: Path,
        schema: Schema,
        universe: Universe,
        geocode: np.ndarray,
        units: Mapping[str, tuple[LevelUnits, np.ndarray]],
    ) -> DeclaredConstraints:
        """From a constraints file; `units` has, by invariant, how its units lie among the shard's
        geounits, and their paths.
        """
        found = read_constraints(path, geocode)
        typed = _typed_query(universe)
        query = marginal_query(schema, typed)
        n = len(geocode)
        lower = np.zeros((n, query.n_rows), dtype=np.int64)
        upper = np.full((n, query.n_rows), NO_BOUND, dtype=np.int64)
        rows: list[_Rows] = []
        every = np.arange(n)
        for number, bound in enumerate(universe.bounds):
            aligned = _aligned_rows(bound, schema, query) if bound.query == typed else None
            pair = _bound_values(found, number, marginal_query(schema, bound.query).n_rows, n)
            if aligned is None:
                matrix = _matrix(schema, bound.query, schema.cells_where(bound.where))
                rows.append(_Rows(bound.name, matrix, every, *pair))
                continue
            lower[:, aligned] = np.maximum(lower[:, aligned], pair[0][:, aligned])
            upper[:, aligned] = np.minimum(upper[:, aligned], pair[1][:, aligned])
        total = np.full(n, -1, dtype=np.int64)
        group, group_total = np.full(n, -1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for invariant in universe.invariants:
            here, paths = units[invariant.name]
            own = found.get((constraint_name(invariant.name), "="))
            parts = np.unique(here.unit[here.kind == PART])
            position = np.full(len(paths) + 1, -1)
            position[parts] = np.arange(parts.size)
            place = np.where(here.kind == PART, position[here.unit], -1)
            of_parts = (
                read_constraints(path, paths[parts])[constraint_name(invariant.name), "="].values
                if parts.size
                else np.zeros((0, 1), dtype=np.int64)
            )
            is_total = marginal_query(schema, invariant.query).n_rows == 1
            if is_total and own is not None:
                total = np.where((total < 0) & own.holds, own.values[:, 0], total)
            if is_total and parts.size and not group_total.size:
                group, group_total = place, of_parts[:, 0]
            elif is_total and parts.size:
                rows.append(
                    _Rows(
                        invariant.name,
                        _matrix(schema, TOTAL),
                        place,
                        of_parts,
                        of_parts,
                    )
                )
            if is_total:
                continue
            held = own is not None and invariant.query == typed
            if held:
                lower[own.holds] = np.maximum(lower[own.holds], own.values[own.holds])
                upper[own.holds] = np.minimum(upper[own.holds], own.values[own.holds])
            matrix = _matrix(schema, invariant.query)
            if own is not None and not held:
                whole = np.where(own.holds, every, -1)
                rows.append(_Rows(invariant.name, matrix, whole, own.values, own.values))
            if parts.size:
                rows.append(_Rows(invariant.name, matrix, place, of_parts, of_parts))
        for relation in universe.relations:
            value = found[constraint_name(relation.name), relation.sign].values
            low = value if relation.sign != "<=" else np.full_like(value, -NO_BOUND)
            high = value if relation.sign != ">=" else np.full_like(value, NO_BOUND)
            matrix = sparse.csr_array(relation.own[None, :].astype(np.float64))
            rows.append(_Rows(relation.name, matrix, every, low, high))
        return cls(query.row_of_cell, lower, upper, total, group, group_total, tuple(rows))

    def totals(self, start: int, stop: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Groups of the siblings `start` to `stop`, and the exact total of each; None without."""
        total, group = self.total[start:stop], self.group[start:stop]
        if ((total < 0) & (group < 0)).any():
            return None, None
        if (total >= 0).all():
            return np.arange(stop - start), total
        key = np.where(total >= 0, np.arange(stop - start), (stop - start) + group)
        distinct, first, position = np.unique(key, return_index=True, return_inverse=True)
        value = np.where(total >= 0, total, self.group_total[np.maximum(group, 0)])
        return position.reshape(-1), value[first]

    def linear_rows(self, start: int, stop: int, support: np.ndarray) -> tuple[LinearRows, ...]:
        """What else the siblings `start` to `stop` must satisfy, on the cells of their support."""
        found = []
        is_partly = self.totals(start, stop)[0] is None
        total, group = self.total[start:stop], self.group[start:stop]
        ones = sparse.csr_array(np.ones((1, support.size)))
        if is_partly and (total >= 0).any():
            child = np.where(total >= 0, np.arange(stop - start), -1)
            found.append(LinearRows("total", ones, child, total[:, None], total[:, None]))
        if is_partly and (group >= 0).any():
            values = self.group_total[:, None]
            found.append(LinearRows("total", ones, group, values, values))
        for rows in self.rows:
            of_children = rows.group[start:stop]
            if (of_children >= 0).any():
                matrix = sparse.csr_array(rows.matrix[:, support])
                found.append(
                    LinearRows(rows.name, matrix, *_kept(of_children, rows.lower, rows.upper))
                )
        return tuple(found)


def _kept(
    group: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The groups that occur, numbered anew, and their bounds."""
    used = np.unique(group[group >= 0])
    position = np.searchsorted(used, np.maximum(group, 0))
    return np.where(group >= 0, position, -1), lower[used], upper[used]


def _typed_query(universe: Universe) -> str:
    """The query whose rows are the cells' types: the first bounded or exact one of several rows."""
    named = [bound.query for bound in universe.bounds]
    named += [invariant.query for invariant in universe.invariants]
    return next((name for name in named if name != TOTAL), TOTAL)


def _aligned_rows(bound: Bound, schema: Schema, query: MarginalQuery) -> np.ndarray | None:
    """Rows whose cells a bound is all on; None if it is on some cells of a row only."""
    inside = schema.cells_where(bound.where)
    some = np.unique(query.row_of_cell[inside])
    rest = np.unique(query.row_of_cell[~inside])
    return some if not np.intersect1d(some, rest).size else None


def _matrix(schema: Schema, query: str, inside: np.ndarray | None = None) -> sparse.csr_array:
    matrix = marginal_query(schema, query).matrix.astype(np.float64)
    return matrix if inside is None else sparse.csr_array(matrix.multiply(inside[None, :]))


def _bound_values(
    found: Mapping[tuple[str, str], Constraint], number: int, n_rows: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    lower = found.get((constraint_name(f"bound_{number}", "_lb"), ">="))
    upper = found.get((constraint_name(f"bound_{number}", "_ub"), "<="))
    return (
        np.zeros((n, n_rows), dtype=np.int64) if lower is None else lower.values,
        np.full((n, n_rows), NO_BOUND, dtype=np.int64) if upper is None else upper.values,
    )


def names_of(rows: Sequence[LinearRows]) -> str:
    """The names of linear rows, for messages."""
    return ", ".join(dict.fromkeys(row.name for row in rows))
