"""Declarations that contradict each other, found before any input is read.

All constraints but invariants are homogeneous: nobody anywhere meets them all. A contradiction is a
set of declarations that leave no other census: they cannot hold together in one area where every
universe has a record, every bound from below has something to bound, and every relation has records
that it speaks of. All together are tried as a linear program over classes of cells that no
declaration tells apart; where they clash, those without which the others clash too are taken out
one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .census import Bound, Census, Universe, Zero
from .queries import marginal_query
from .schema import Schema


@dataclass(frozen=True, eq=False)
class _Entry:
    """A declaration: its name, and rows (weights by universe, lower, upper) on the first cell of
    each class that no declaration tells apart.
    """

    name: str
    rows: tuple[tuple[Mapping[str, np.ndarray], float, float], ...]


def refuse_contradictions(
    census: Census, schemas: Mapping[str, Schema], zeros: Mapping[str, Sequence[Zero]]
) -> None:
    """Raise ValueError, naming the declarations that clash, if some cannot hold together.

    `schemas` are those of the universes that are run, `zeros` their structural zeros.
    """
    schemas = {name: universe.schema for name, universe in census.universes.items()} | dict(schemas)
    cells = {name: _distinguished(census, name, schemas, zeros) for name in schemas}
    entries = list(_entries(census, schemas, zeros, cells))
    spoken_of = [name for entry in entries for row in entry.rows for name in row[0]]
    sizes = {name: cells[name].size for name in dict.fromkeys([*spoken_of, *zeros])}
    if not entries or _is_possible(entries, sizes):
        return
    kept = list(entries)
    for entry in reversed(entries):
        fewer = [other for other in kept if other is not entry]
        if not _is_possible(fewer, sizes):
            kept = fewer
    names = [entry.name for entry in kept]
    if len(names) == 1:
        raise ValueError(f"{names[0]} can hold for nobody; take it out or correct it")
    listed = " and ".join(names) if len(names) == 2 else ", ".join(names)
    raise ValueError(f"{listed} contradict each other; correct one of them")


def _distinguished(
    census: Census,
    name: str,
    schemas: Mapping[str, Schema],
    zeros: Mapping[str, Sequence[Zero]],
) -> np.ndarray:
    """Cells of a universe, one of each class that no declaration tells apart.

    A declaration speaks of levels of attributes; levels that all of them treat alike are one.
    """
    schema = schemas[name]
    conditions = [zero.where for zero in zeros.get(name, ())]
    queries = []
    for other, universe in census.universes.items():
        for bound in _bounds(universe, schemas[other]):
            if other == name:
                conditions.append(bound.where)
                queries.append(bound.query)
            if bound.per == name and bound.by is not None:
                queries.append(bound.by)
        for relation in universe.declared.relations:
            for term in (*relation.left, *relation.right):
                if (term.universe or other) == name:
                    conditions.append(term.where)
    labels_of_levels = [list[tuple[int, ...]]() for _ in schema.attributes]
    for condition in conditions:
        for attribute, allowed in schema.positions(condition).items():
            axis = schema.attributes.index(attribute)
            inside = np.isin(np.arange(schema.shape[axis]), allowed)
            labels_of_levels[axis].append(tuple(inside.astype(int)))
    for query in queries:
        for axis, factor in enumerate(marginal_query(schema, query).factors):
            labels_of_levels[axis].append(factor)
    levels = []
    for size, labels in zip(schema.shape, labels_of_levels, strict=True):
        rows = np.array([[0] * size, *labels])
        levels.append(np.sort(np.unique(rows, axis=1, return_index=True)[1]))
    return np.ravel_multi_index(np.meshgrid(*levels, indexing="ij"), schema.shape).ravel()


def _entries(
    census: Census,
    schemas: Mapping[str, Schema],
    zeros: Mapping[str, Sequence[Zero]],
    cells: Mapping[str, np.ndarray],
) -> Iterator[_Entry]:
    for universe in zeros:
        schema, own = schemas[universe], cells[universe]
        for zero in zeros[universe]:
            mask = schema.cells_where(zero.where)[own].astype(np.float64)
            rows = (({universe: mask}, 0.0, 0.0),)
            yield _Entry(f"structural zero {zero.name!r} of {universe}", rows)
        declared = census.universes[universe]
        for bound in _bounds(declared, schema):
            of_bound = tuple(_bound_rows(schemas, cells, universe, bound))
            yield _Entry(f"bound {bound.name!r} of {universe}", of_bound)
        for relation in declared.relations:
            weights = {universe: relation.own[own].astype(np.float64)}
            for side in relation.others:
                weights[side.universe] = side.weights[cells[side.universe]].astype(np.float64)
            low = 0.0 if relation.sign != "<=" else -np.inf
            high = 0.0 if relation.sign != ">=" else np.inf
            spoken_of = {universe: (relation.own[own] != 0).astype(np.float64)}
            both = (weights, low, high), (spoken_of, 1.0, np.inf)
            yield _Entry(f"relation {relation.name!r} of {universe}", both)


def _bounds(universe: Universe, schema: Schema) -> list[Bound]:
    """The bounds of a universe on what a schema tells."""
    askable = {n for one in universe.bounded_queries if one.is_askable(schema) for n in one.numbers}
    return [bound for number, bound in enumerate(universe.bounds) if number in askable]


def _bound_rows(
    schemas: Mapping[str, Schema], cells: Mapping[str, np.ndarray], universe: str, bound: Bound
) -> Iterator[tuple[Mapping[str, np.ndarray], float, float]]:
    """Rows of a bound; where there is a lower one, each multiple that it bounds is at least 1."""
    schema, own, of_per = schemas[universe], cells[universe], cells[bound.per]
    row_of_cell = marginal_query(schema, bound.query).row_of_cell[own]
    inside = schema.cells_where(bound.where)[own]
    records = np.ones(of_per.size)
    by = None
    if bound.by is not None:
        by = marginal_query(schemas[bound.per], bound.by).row_of_cell[of_per]
    for row in np.unique(row_of_cell[inside]).tolist():
        counted = (inside & (row_of_cell == row)).astype(np.float64)
        records = records if by is None else (by == row).astype(np.float64)
        for factor, low, high in ((bound.at_least, 0.0, np.inf), (bound.at_most, -np.inf, 0.0)):
            if factor is None:
                continue
            weights = {universe: counted}
            if bound.per == universe:
                weights = {universe: counted - factor * records}
            else:
                weights[bound.per] = -factor * records
            yield weights, low, high
        if bound.at_least:
            yield {bound.per: records}, 1.0, np.inf


def _is_possible(entries: Sequence[_Entry], sizes: Mapping[str, int]) -> bool:
    """Whether counts meet all rows, with a record of every universe of the run."""
    from ..solvers.highs import LinearProgram, SolveStatus  # Slow to load, rarely needed.

    rows = [row for entry in entries for row in entry.rows]
    columns: list[np.ndarray] = []
    for name, size in sizes.items():
        weights = [row[0].get(name, np.zeros(size)) for row in rows]
        stacked = np.array([np.ones(size), *weights])
        columns.append(np.unique(stacked, axis=1))
    n = sum(part.shape[1] for part in columns)
    program = LinearProgram(n)
    start = 0
    placed = np.zeros((len(rows), n))
    for part in columns:
        stop = start + part.shape[1]
        placed[:, start:stop] = part[1:]
        every = np.arange(start, stop)
        program.add_rows(np.zeros(every.size, int), every, 1.0, np.ones(1), np.full(1, np.inf))
        start = stop
    for weights, (_, low, high) in zip(placed, rows, strict=True):
        used = np.flatnonzero(weights)
        if used.size:
            program.add_rows(
                np.zeros(used.size, int), used, weights[used], np.array([low]), np.array([high])
            )
        elif low > 0 or high < 0:
            return False
    return program.solve(np.zeros(n)).status is not SolveStatus.INFEASIBLE
