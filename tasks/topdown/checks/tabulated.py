"""What the declared tables of a release count, in the plain facts that their check goes by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ....validation.topdown.layout import Layout
from ....validation.topdown.row_counts import Variable
from ....validation.topdown.table_rows import Place, Tabulated
from ...census.cef_2020 import CENSUS
from ...census.compiled_schemas import names_of_table
from ...census.queries import tells
from ...census.schema import Schema
from ..release.tabulations.levels import COLUMNS, OUTSIDE, SUMMARY_LEVELS, variable_name
from .expectations import layout_facts


def tabulated(
    directory: Path,
    geography: pd.DataFrame,
    schemas: Sequence[Schema],
    *,
    is_private: bool,
    states: tuple[str, ...],
    has_group: bool,
) -> Tabulated:
    """What to check of the tables of a release whose universes have these schemas.

    `geography` may have some of the `states` alone; `has_group` says for all what `Tabulated` has.
    """
    return Tabulated(
        directory,
        geography,
        states,
        has_group,
        tuple(schema.universe for schema in schemas),
        is_private,
        tuple(variable for schema in schemas for variable in variables_in_codes(schema)),
        _place(),
    )


def variables_in_codes(schema: Schema) -> Iterator[Variable]:
    """Every variable of the tables that a schema tells: the codes of the rows that it counts."""
    layout = layout_facts(schema)
    for table in CENSUS.tables:
        if table.universe != schema.universe or not tells(schema, names_of_table(table)):
            continue
        number = 0
        for rows in table.rows:
            for where in _each(schema, (table.where, rows.where), rows.each):
                number += 1
                codes = _codes(where, schema, layout)
                yield Variable(variable_name(table.name, number), schema.universe, codes)


def _each(
    schema: Schema, conditions: Sequence[dict], each: str | None
) -> Iterator[dict[str, list[int]]]:
    """Levels by attribute of the cells that a variable counts, one variable after the other."""
    joint: dict[str, list[int]] = {}
    for condition in conditions:
        for attribute, levels in schema.positions(condition).items():
            joint[attribute] = [level for level in levels if level in joint.get(attribute, levels)]
    if each is None:
        yield joint
        return
    grouping = schema.grouping(each)
    attribute, groups = grouping.attribute, np.array(grouping.groups)
    inside = joint.get(attribute, list(range(len(groups))))
    for group in np.unique(groups[inside]):
        yield joint | {attribute: [level for level in inside if groups[level] == group]}


def _codes(
    where: dict[str, list[int]], schema: Schema, layout: Layout
) -> dict[str, frozenset[str]]:
    telling = {
        column.attribute: column
        for column in layout.columns
        if column.attribute is not None and len(set(column.codes)) == len(column.codes)
    }
    wanted = dict(where)
    for attribute, column in telling.items():
        # Rows of further records are none of the universe's own.
        if column.name in layout.further:
            wanted.setdefault(attribute, list(range(len(schema.labels(attribute)))))
    return {
        telling[attribute].name: frozenset(telling[attribute].codes[level] for level in levels)
        for attribute, levels in wanted.items()
    }


def _place() -> Place:
    declared = next(u.declared.microdata for u in CENSUS.universes.values() if u.declared.microdata)
    return Place(
        levels={level.stem: level.parts for level in SUMMARY_LEVELS.values()},
        digits={n: part.digits for n, part in CENSUS.code_parts.items() if part.digits},
        columns=COLUMNS,
        outside=OUTSIDE,
        microdata={c.name: c.digits for c in declared.columns if c.digits},
    )
