"""Area hierarchies from lists of areas, or from a table's own columns.

Without a list the levels are the values of a table's own columns. The values in a table then
decide the measurements, so this is for tables that are not confidential, or whose values have been
declared public.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ....validation.input_rules import AREA_RULES, TRIP_RULES
from ...tables.area_lists import Level, check_links, distinct_areas, read_area_rows
from ...tables.columns import CodedColumn
from ...tables.layouts import Field
from ...tables.readers import Selection, read_batches
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally
from ..tree import Hierarchy, hierarchy_of_links


def column_levels(
    file: InputFile, columns: Sequence[str], evidence: ValueTally
) -> list[list[Level]] | None:
    """The values of a table's level columns, one list of nested levels for each dimension.

    A column whose values have no parents begins a dimension; one whose values have parents refines
    the column before it. None if a rule is broken.
    """
    *rules, _, depths = AREA_RULES.of("areas", table=file.table, word="area")
    complete = TRIP_RULES.one("columns", table=file.table)
    rows = distinct_areas(read_area_rows(file, "area"), rules[:3], evidence)
    dimensions: list[list[Level]] = []
    n_unclear = 0
    for column in columns:
        own = rows[rows["level"] == column]
        is_nested = bool((own["parent"] != "").all())
        n_unclear += own.empty or (not is_nested and bool((own["parent"] != "").any()))
        n_unclear += is_nested and not dimensions
        if is_nested and dimensions:
            dimensions[-1].append((column, own))
        else:
            dimensions.append([(column, own)])
    evidence.count(complete, n_unclear)
    for levels in dimensions:
        check_links(levels, (rules[3], depths), evidence)
    return dimensions if evidence.are_met((*rules, complete, depths)) else None


def hierarchy_of_areas(name: str, levels: Sequence[Level], *, level_prefix: str = "") -> Hierarchy:
    """The hierarchy of levels that broke no rule, as one dimension of a tree."""
    return hierarchy_of_links(
        name,
        [
            (level_prefix + level, own["area"].to_numpy(), own["parent"].to_numpy())
            for level, own in levels
        ],
    )


def observed_levels(file: InputFile, columns: Sequence[str]) -> list[list[Level]]:
    """The values that occur, one list of nested levels for each dimension.

    A column refines the one before it if each of its values occurs with one value of that column
    alone, and if it has more values. Raises UnreadableInput.
    """
    pairs: dict[tuple[str, str], set[tuple[str | None, str | None]]] = {}
    values: dict[str, set[str]] = {column: set() for column in columns}
    file = file.with_columns(dict.fromkeys(columns, "text"))
    for batch in read_batches(file, Selection(tuple(columns))):
        coded = {
            column: CodedColumn.from_arrow(batch[column], Field(column, "text"))
            for column in columns
        }
        for column in columns:
            values[column].update(value for value in coded[column].values if value is not None)
        for above, below in zip(columns, columns[1:], strict=False):
            size = len(coded[below].values)
            together = np.unique(coded[above].codes.astype(np.int64) * size + coded[below].codes)
            pairs.setdefault((above, below), set()).update(
                (coded[above].values[pair // size], coded[below].values[pair % size])
                for pair in together
            )
    dimensions: list[list[Level]] = []
    for position, column in enumerate(columns):
        above = columns[position - 1] if position else ""
        parents = _parents(pairs.get((above, column), set()), values.get(above, set()))
        codes = sorted(values[column])
        if parents is not None and set(parents) == set(codes):
            own = pd.DataFrame({"area": codes, "parent": [parents[code] for code in codes]})
            dimensions[-1].append((column, own))
        else:
            dimensions.append([(column, pd.DataFrame({"area": codes, "parent": ""}))])
    return dimensions


def _parents(pairs: set[tuple[str | None, str | None]], above: set[str]) -> dict[str, str] | None:
    """Every value's one partner in the column before; None if the column does not refine it."""
    known = [(parent, code) for parent, code in pairs if parent is not None and code is not None]
    parents = {code: parent for parent, code in known}
    is_nested = len(parents) == len(known) and len(parents) > len(above) > 0
    return parents if is_nested and set(parents.values()) == above else None
