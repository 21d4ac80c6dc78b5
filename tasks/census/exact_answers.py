"""Answers that leave a census without noise: of which universe, by which query, at which geolevel.

An invariant is exact at its geolevel. The records that a bound is per are exact in every finest
area, by the query that matches them with the bounded ones, whether their universe is run or not.
Runs on blocks include the universes that scale bounds, whatever they release.

Declarations that contradict each other, found before any input is read.

All constraints but invariants are homogeneous: an empty census satisfies all of them. A
contradiction is a set of declarations that leaves only empty censuses: they have no common solution
in one area where every universe has a record, every bound from below has something to bound, and
every relation has records with nonzero weight. All together are tested by a linear program over
classes of cells that every declaration treats alike; if infeasible, declarations are removed one by
one as long as the rest stays infeasible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .census import Bound, Census, Universe, Zero
from .queries import TOTAL, marginal_query
from .schema import Schema


@dataclass(frozen=True)
class ExactAnswers:
    """The answers to a query on a universe, which are exact in every geounit of a geolevel.

    of : the universe whose declaration makes them exact.
    reason : the declaration that does, such as `the bound 'total per dwellings'`.
    invariant : name of the invariant that does; None for another reason.
    """

    universe: str
    query: str
    geolevel: str
    of: str
    reason: str
    invariant: str | None = None

    @property
    def key(self) -> str:
        """Name of the answers, such as `total of persons at State`."""
        return f"{self.query} of {self.universe} at {self.geolevel}"


def exact_answers(
    census: Census, universes: Sequence[str], *, areas_alone: bool = False
) -> tuple[ExactAnswers, ...]:
    """Everything about records that leaves exactly when these universes are run, each once.

    Where the areas are estimated alone, invariants above them are not held.
    """
    found: dict[str, ExactAnswers] = {}
    for answers in _answers(census, universes):
        is_above = answers.geolevel != census.geolevels[-1]
        if not (areas_alone and is_above):
            found.setdefault(answers.key, answers)
    return tuple(found.values())


def _answers(census: Census, universes: Sequence[str]) -> Iterator[ExactAnswers]:
    last = census.geolevels[-1]
    for name in universes:
        for invariant in census.universes[name].invariants:
            reason = f"the invariant {invariant.name!r}"
            yield ExactAnswers(
                name, invariant.query, invariant.geolevel, name, reason, invariant.name
            )
    # Spines need the addresses, for every choice of universes.
    for name in census.universes if census.area_rules.have_addresses else universes:
        universe = census.universes[name]
        for bound in universe.bounds:
            reason = f"the bound {bound.name!r}"
            yield ExactAnswers(bound.per, bound.by or TOTAL, last, name, reason)
        microdata = universe.declared.microdata
        if microdata is not None and microdata.further is not None and name in universes:
            reason = "the further rows of microdata"
            yield ExactAnswers(microdata.further.universe, TOTAL, last, name, reason)


AREAS = "areas"
"""Key of the fact that all columns of the table of areas are public."""


def bound_key(universe: str, bound: Bound) -> str:
    """Name of the fact that a bound of a universe holds."""
    return f"bound {bound.name} of {universe} per {bound.per}"


def refuse_unknown_facts(census: Census, refuse: Callable[[str], None]) -> None:
    """Refuse sentences of the certificate about facts that no declaration makes exact."""
    known = {AREAS, *(answers.key for answers in exact_answers(census, list(census.universes)))}
    for name, universe in census.universes.items():
        known |= {bound_key(name, bound) for bound in universe.bounds}
    for sentence in census.certificate:
        for key in sentence.tells:
            if sentence.about != "exact" or key not in known:
                refuse(
                    f"census.certificate names {key!r}, which is no exact fact; there are "
                    f"{', '.join(sorted(known))}"
                )


def refuse_protected_answers(
    census: Census,
    universes: Sequence[str],
    budgeted: Collection[str],
    refuse: Callable[[str], None],
) -> None:
    """Refuse exact answers, except invariants, that would publish protected values.

    The graph of influence traces them to columns of tables: those of the query that matches them,
    of the conditions on their records, and those that determine their areas and number. Columns of
    occupants or computed from other records are refused, and so are those of a universe with a
    budget, by a query that no invariant of it in the finest areas determines. Numbers of a universe
    that declares itself public are so although another protects records of its table. How many
    records a universe has, and with it every other of the same records, is public by the
    declaration of a bound.
    """
    for answers in exact_answers(census, universes):
        if answers.invariant is not None:
            continue
        per = census.universes[answers.universe]
        by = {
            column
            for name in _attributes(per, answers.query)
            for column in per.recodes[name].columns
        }
        numbers = f"number of {per.name}"
        if by:
            numbers = f"numbers of {per.name} by {answers.query!r}"
        what = f"{answers.reason.removeprefix('the ')} of {answers.of} would publish the exact "
        what += f"{numbers} in every {answers.geolevel}"
        remove = f"take {answers.reason} out"
        if told := _occupants_of(per, {*by, *per.rows}):
            refuse(
                f"{what}, which depend on their occupants ({', '.join(told)}); take the bound "
                "out, or make it per a universe without occupants"
            )
        if made := _made_columns(per, {*by, *per.rows}):
            refuse(
                f"{what}, by {made[0]}, which is made from records of others; {remove}, or make it "
                "per a universe that does not read this column"
            )
        for name in dict.fromkeys((per.name, *sorted(budgeted))):
            own = census.universes[name]
            if name not in budgeted or (per.declared.public and name != per.name):
                continue
            columns = sorted(_published(per, by, own))
            if columns and not _is_invariant(own, per, answers):
                table, column = columns[0]
                refuse(
                    f"{what}, which budget.{name} protects; take `by` out, or declare "
                    f"{answers.query!r} an invariant of {name} at {census.geolevels[-1]}, or leave "
                    f"budget.{name} out"
                    if name == per.name
                    else f"{what}, by {column} of {table}, which budget.{name} protects; {remove}, "
                    f"or declare `public = true` in universe {per.name!r} if these numbers are "
                    "public facts, as those of addresses are"
                )


def _attributes(universe: Universe, query: str) -> list[str]:
    """Attributes whose levels a query distinguishes."""
    shape = marginal_query(universe.schema, query).shape
    return [name for name, size in zip(universe.schema.attributes, shape, strict=True) if size > 1]


def _columns(universe: Universe, asked: Collection[str]) -> set[tuple[str, str]]:
    """Tables and columns there, of columns as attributes and conditions name them."""
    return {
        (way.table, column)
        for way in universe.ways
        for column in way.columns
        if (f"{way.name}.{column}" if way.name else column) in asked
    }


def _places(universe: Universe) -> set[tuple[str, str]]:
    """Tables and columns that say where the records of a universe are, and how many a row is."""
    ways = (universe.own_way, *universe.step_ways)
    return {(way.table, column) for way in ways for column in way.references}


def _published(per: Universe, by: Collection[str], own: Universe) -> set[tuple[str, str]]:
    """Tables and columns by which exact numbers of a universe publish what another protects.

    Conditions that both have in common reveal nothing about the records of either.
    """
    if own is per or _are_alike(own, per):
        return _columns(per, by) & _protected(own)
    is_one_table = own.declared.table == per.declared.table
    common = [c for c, codes in per.rows.items() if is_one_table and own.rows.get(c) == codes]
    told = _columns(per, {*by, *per.rows} - {*common})
    # Where records of another table are is found there; of one's own it is the number declared.
    areas = {
        place for place in _places(own) if place[0] == own.declared.table != per.declared.table
    }
    return (told & _protected(own)) | (_places(per) & (_protected(own) | areas))


def _are_alike(one: Universe, other: Universe) -> bool:
    """Whether two universes have the same records in the same areas."""
    first, second = one.declared, other.declared
    return (
        one.rows == other.rows
        and one.steps == other.steps
        and (first.table, first.area, first.count) == (second.table, second.area, second.count)
    )


def _protected(universe: Universe) -> set[tuple[str, str]]:
    """Tables and columns whose values a universe protects: all that it reads of its records in
    tables whose records it protects, and the column with the number of records in a row.
    """
    protected = {reach.table for reach in universe.reaches if reach.records is not None}
    declared = universe.declared
    found = {
        (way.table, column)
        for way in universe.ways
        if way.table in protected
        for column in (*way.columns, *way.conditions)
    }
    return found | ({(declared.table, declared.count)} if declared.count else set())


def _occupants_of(universe: Universe, asked: Collection[str]) -> list[str]:
    """Names of the occupants of a universe that provide some columns."""
    return [
        name
        for name in universe.occupant_ways
        if any(column.startswith(f"{name}.") for column in asked)
    ]


def _made_columns(universe: Universe, asked: Collection[str]) -> list[str]:
    """Columns, among those given and those for the number and area of records, that are made from
    records other than a universe's own.
    """
    found = _columns(universe, asked) | _places(universe)
    return sorted(
        f"{column} of {table}"
        for table in {table for table, _ in found}
        for column in universe.graph.made_from(universe.name, table)
        if (table, column) in found
    )


def _is_invariant(own: Universe, per: Universe, answers: ExactAnswers) -> bool:
    """Whether an invariant of a universe determines the numbers of another, of the same records, by
    a query in every area.
    """
    found = [one.query for one in own.invariants if one.geolevel == answers.geolevel]
    if own is per:
        wanted = marginal_query(per.schema, answers.query)
        return any(marginal_query(per.schema, one).refines(wanted) for one in found)
    tokens = {part.strip() for part in answers.query.split("*")}
    return _are_alike(own, per) and any(
        tokens <= {part.strip() for part in one.split("*")} for one in found
    )


@dataclass(frozen=True, eq=False)
class _Entry:
    """A declaration: its name, and rows (weights by universe, lower, upper) on the first cell of
    each class that all declarations treat alike.
    """

    name: str
    rows: tuple[tuple[Mapping[str, np.ndarray], float, float], ...]


def refuse_contradictions(
    census: Census, schemas: Mapping[str, Schema], zeros: Mapping[str, Sequence[Zero]]
) -> None:
    """Raise ValueError, naming the declarations that clash, if some contradict each other.

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
        raise ValueError(f"{names[0]} has only the empty solution; take it out or correct it")
    listed = " and ".join(names) if len(names) == 2 else ", ".join(names)
    raise ValueError(f"{listed} contradict each other; correct one of them")


def _distinguished(
    census: Census,
    name: str,
    schemas: Mapping[str, Schema],
    zeros: Mapping[str, Sequence[Zero]],
) -> np.ndarray:
    """Cells of a universe, one of each class that all declarations treat alike.

    A declaration uses levels of attributes; levels that all of them treat alike are one.
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
    """Return the bounds of a universe that a schema can express."""
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
