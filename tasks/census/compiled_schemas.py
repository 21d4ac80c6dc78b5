"""Schemas and coarsenings of a compiled declaration, and checks of its tables and levels.

Variables of tables that rows of conditions declare, such as the redistricting tables.

Linear relations between the counts of a universe and those of earlier ones, compiled.

How the files of a declared census are written, table by table, as its declaration says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..runs.errors import refuse_errors
from ..runs.names import refuse_unknown
from ..tables.formats import TextFormat
from .attribute_declarations import OTHER, CoarseningDeclaration, FilesDeclaration
from .declarations import (
    CensusDeclaration,
    EntityColumns,
    RelationDeclaration,
    TableDeclaration,
    UniverseDeclaration,
)
from .influence import Graph
from .queries import Coarsening, Schema, is_pattern, marginal_query, positions_of
from .recodes import CodeSet, Recode


def names_of_table(table: TableDeclaration) -> set[str]:
    """Attributes and coarsenings that a table of variables needs."""
    names = set(table.where) | {name for rows in table.rows for name in rows.where}
    return names | {rows.each for rows in table.rows if rows.each}


def table_variables(table: TableDeclaration, schema: Schema) -> list[tuple[str, np.ndarray]]:
    """The variables of a table in their order: the description of each, and the mask `(n_cells,)`
    of its cells.

    Example of words: "adult: adult; sex: male", and "all records" where there is no condition.
    """
    everyone = schema.cells_where(table.where)
    found = []
    for rows in table.rows:
        inside = everyone & schema.cells_where(rows.where)
        conditions = [f"{name}: {', '.join(map(str, v))}" for name, v in rows.where.items()]
        if rows.each is None:
            found.append(("; ".join(conditions) or "all records", inside))
            continue
        levels = schema.grouping(rows.each).levels
        row_of_cell = marginal_query(schema, rows.each).row_of_cell
        for row in np.unique(row_of_cell[inside]).tolist():
            label = "; ".join([*conditions, f"{rows.each}: {levels[row]}"])
            found.append((label, inside & (row_of_cell == row)))
    return found


EXACT = math.inf
"""Length of a label in comparisons with patterns."""


def compiled_coarsening(
    name: str, declared: CoarseningDeclaration, recodes: Mapping[str, Recode]
) -> Coarsening:
    """A declared coarsening; raises ValueError for levels in no or in two groups."""
    refuse_unknown(f"coarsening {name!r} is of", [declared.attribute], recodes, "attribute")
    labels = recodes[declared.attribute].levels
    group_of: dict[str, int] = {}
    named_by: dict[str, float] = {}
    for group, members in enumerate(declared.levels.values()):
        for member in members:
            with refuse_errors(f"coarsening {name!r}: attribute ", "", to=ValueError):
                positions = positions_of(declared.attribute, member, labels)
            # If several patterns match a level, the longest has it, and a label before all.
            length = len(str(member)) if is_pattern(member, labels) else EXACT
            for label in (labels[at] for at in positions):
                if named_by.get(label) == length and (length == EXACT or group_of[label] != group):
                    raise ValueError(f"coarsening {name!r} has the level {label!r} twice")
                if named_by.get(label, 0) < length:
                    group_of[label], named_by[label] = group, length
    missing = [label for label in labels if label not in group_of]
    rest = [group for group, members in enumerate(declared.levels.values()) if not members]
    if len(rest) > 1 or (rest and not missing):
        raise ValueError(f"coarsening {name!r} needs one list at most that is empty, for the rest")
    if missing and not rest:
        raise ValueError(f"coarsening {name!r} leaves out the level {missing[0]!r}")
    group_of |= dict.fromkeys(missing, rest[0]) if rest else {}
    groups = tuple(group_of[label] for label in labels)
    return Coarsening(name, declared.attribute, tuple(declared.levels), groups)


def compiled_schema(
    name: str,
    declared: UniverseDeclaration,
    recodes: Mapping[str, Recode],
    coarsenings: tuple[Coarsening, ...],
) -> Schema:
    """The schema of a universe with its further attributes."""
    attributes = (*declared.attributes, *declared.further_attributes)
    what = f"universe {name!r} has the attribute"
    refuse_unknown(what, attributes, recodes, "declared attribute")
    levels = tuple(recodes[attribute].levels for attribute in attributes)
    own = tuple(c for c in coarsenings if c.attribute in attributes)
    return Schema(name, attributes, levels, own)


def refuse_later_universe(
    what: str, universe: str, name: str, schemas: Mapping[str, Schema], why: str = ""
) -> None:
    """Raise ValueError, naming the declaration `what`, for a universe that is not declared before
    the one of a name; `schemas` are all universes' in the declared order."""
    refuse_unknown(f"{what} is of", [universe], schemas, "universe")
    order = list(schemas)
    if order.index(universe) >= order.index(name):
        needs = f"{what} needs {universe!r} released; declare {universe!r} before {name!r}"
        raise ValueError(needs + why)


def check_table(
    table: TableDeclaration, declared: CensusDeclaration, schemas: Mapping[str, Schema]
) -> None:
    """Raise ValueError for a table that its universe or the areas cannot fill."""
    refuse_unknown(f"table {table.name!r} is of", [table.universe], schemas, "universe")
    schema = schemas[table.universe].of(declared.universes[table.universe].attributes)
    marginal_query(schema, table.query)
    table_variables(table, schema)
    if declared.geography.entities:
        taken = {*schema.attributes, *(coarsening.name for coarsening in schema.coarsenings)}
        twice = sorted(taken & {*EntityColumns.model_fields})
        if twice:
            raise ValueError(
                f"table {table.name!r} would have two columns {twice[0]!r}; rename the attribute "
                "or coarsening, or take census.geography.entities out"
            )
    if not table.levels and not declared.summary_levels:
        raise ValueError(f"table {table.name!r} needs levels, which the census declares none of")
    if [other.name for other in declared.tables].count(table.name) > 1:
        raise ValueError(f"there are two tables {table.name!r}; rename one")


@dataclass(frozen=True)
class Side:
    """Weights of a universe's cells in a relation, `(n_cells,)` int64."""

    universe: str
    weights: np.ndarray


@dataclass(frozen=True)
class Relation:
    """A linear relation of every geounit: own . x `sign` - sum of others . released counts.

    All terms are on the left: `own` are the weights of the universe's cells, `others` those of
    earlier universes, and `sign` compares their sum with 0.
    """

    name: str
    sign: str
    own: np.ndarray
    others: tuple[Side, ...]


def compiled_relation(
    name: str, entry: RelationDeclaration, census: CensusDeclaration, schemas: Mapping[str, Schema]
) -> Relation:
    """A relation that a universe of a name declares.

    Raises ValueError for a universe that is unknown or declared later, and for a relation without a
    term of its own universe.
    """
    weights: dict[str, Any] = {}
    for sign, terms in ((1, entry.left), (-1, entry.right)):
        for term in terms:
            other = term.universe or name
            if other != name:
                refuse_later_universe(f"relation {entry.name!r} of {name!r}", other, name, schemas)
            schema = schemas[other].of(census.universes[other].attributes)
            moved = sign * term.times * schema.cells_where(term.where)
            weights[other] = weights.get(other, 0) + moved
    own = weights.pop(name, None)
    if own is None or not own.any():
        raise ValueError(f"relation {entry.name!r} has no term of {name!r}, which declares it")
    sides = tuple(Side(other, values) for other, values in weights.items())
    return Relation(entry.name, entry.sign, own, sides)


def declared_formats(declared: CensusDeclaration, graph: Graph) -> dict[str, TextFormat | None]:
    """How the files of every table are written that a declaration reads, the areas first; None in
    the layout of the Census Edited File, which `tables.layouts` has.

    Raises ValueError for a table that it does not read.
    """
    tables = [declared.geography.table]
    for universe in declared.universes.values():
        tables += [universe.table, *(step.table for step in universe.steps)]
        tables += [occupant.table for occupant in universe.occupants.values()]
    files = declared.files or {}
    kind = f"table, nor {OTHER!r} for all that are not named"
    refuse_unknown("files names", files, (*dict.fromkeys(tables), OTHER), kind)
    if OTHER in files and files[OTHER].columns is not None:
        raise ValueError(
            f"files.{OTHER} places columns, which belong to one table; give every table of fixed "
            "width a section of its own"
        )
    geography, paths = declared.geography, chain.from_iterable(graph.paths.values())
    read = {*geography.geolevels, *geography.columns.values()}.union(*(p.read for p in paths))
    for name, entry in files.items():
        for key in ("digits", "cells"):
            if lost := [column for column in getattr(entry, key) if column not in read]:
                raise ValueError(
                    f"files.{name} has {key} of {lost[0]!r}, a column that the census does not "
                    "read; correct its name, or remove it"
                )
    numbers = _number_columns(declared)
    is_free = declared.has_free_layout
    return {t: _format_of(files, t, numbers) if is_free else None for t in tables}


def format_of_others(declared: CensusDeclaration) -> TextFormat:
    """How files are written that are no tables of the declaration, such as lists of areas."""
    return _format_of(declared.files or {}, OTHER, frozenset())


def _format_of(
    files: Mapping[str, FilesDeclaration], table: str, numbers: frozenset[str]
) -> TextFormat:
    declared = files.get(table, files.get(OTHER, FilesDeclaration()))
    missing = CodeSet.of(declared.missing or ())
    return TextFormat(
        declared.separator,
        declared.decimal,
        declared.encoding,
        missing.holds if declared.missing else None,
        missing.texts,
        numbers,
        declared.digits,
        declared.cells,
        f"census.files.{OTHER if table not in files and OTHER in files else table}",
        places := declared.columns or {},
        declared.line_length or max((end for _, end in places.values()), default=None),
    )


def _number_columns(declared: CensusDeclaration) -> frozenset[str]:
    """Names of columns that are read as numbers, with and without the table before a point."""
    names = [
        attribute.column
        for attribute in declared.attributes.values()
        if attribute.bins is not None or attribute.numbers is not None
    ]
    names += [universe.count for universe in declared.universes.values()]
    for entry in declared.geography.entities.values():
        names += [entry.latitude, entry.longitude]
    given = [name for name in names if name is not None]
    return frozenset([*given, *(name.partition(".")[2] for name in given if "." in name)])
