"""Area hierarchies from files with the columns level, area (or region), parent.

The levels form a chain: the coarsest has no parents, every other level's parents are areas of the
level above. Their order in the file does not matter, nor do the names of the levels. Areas are
public, so that messages may name them.

Without such a file the levels are the values of a table's own columns. The values in a table then
decide the measurements, so this is for tables that are not confidential, or whose values have been
declared public.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ....validation.input_rules import TRIP_RULES, column_rules
from ....validation.rules import Rule
from ...tables.columns import CodedColumn
from ...tables.layouts import Field
from ...tables.readers import Selection, read_area_rows, read_batches
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally
from ..tree import Hierarchy, hierarchy_of_links

Level = tuple[str, pd.DataFrame]
"""A level's name, and its areas with their parents."""


def area_levels(file: InputFile, evidence: ValueTally) -> list[Level] | None:
    """Levels of an areas file, coarsest first, each with its areas; None if a rule is broken."""
    *rules, chain, depths = TRIP_RULES.of("areas", table=file.table)
    rows = _checked_rows(file, rules[:3], evidence)
    order = _chain(rows)
    is_whole = evidence.count(chain, order is None)
    levels = [(level, rows[rows["level"] == level]) for level in order or ()]
    is_whole &= _check_links(rows, levels, (rules[3], depths), evidence)
    return levels if is_whole and evidence.are_met(rules) else None


def column_levels(
    file: InputFile, columns: Sequence[str], evidence: ValueTally
) -> list[list[Level]] | None:
    """The values of a table's level columns, one list of nested levels for each dimension.

    A column whose values have no parents begins a dimension; one whose values have parents refines
    the column before it. None if a rule is broken.
    """
    *rules, complete, depths = column_rules(file.table)
    rows = _checked_rows(file, rules[:3], evidence)
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
    is_whole = evidence.count(complete, n_unclear)
    for levels in dimensions:
        is_whole &= _check_links(rows, levels, (rules[3], depths), evidence)
    return dimensions if is_whole and evidence.are_met(rules) else None


def hierarchy_of_areas(name: str, levels: Sequence[Level], *, level_prefix: str = "") -> Hierarchy:
    """The hierarchy of levels that broke no rule, as one dimension of a tree."""
    return hierarchy_of_links(
        name,
        [
            (level_prefix + level, own["area"].to_numpy(), own["parent"].to_numpy())
            for level, own in levels
        ],
    )


def _checked_rows(file: InputFile, rules: Sequence[Rule], evidence: ValueTally) -> pd.DataFrame:
    """The distinct rows of a file with one parent; the others are counted."""
    rows = read_area_rows(file, "area")
    named, once, one_parent = rules
    evidence.count(named, ((rows["level"] == "") | (rows["area"] == "")).sum())
    twin = rows.duplicated()
    evidence.count_areas(once, rows, twin, "appears again")
    rows = rows[~twin]
    torn = rows.duplicated(["level", "area"])
    evidence.count_areas(one_parent, rows, torn, "has two")
    return rows[~torn]


def _check_links(
    rows: pd.DataFrame, levels: Sequence[Level], rules: tuple[Rule, Rule], evidence: ValueTally
) -> bool:
    """Count parents that are not in the level above, and areas without children."""
    known, depths = rules
    lost, ends = pd.Series(False, rows.index), pd.Series(False, rows.index)
    for (_, above), (_, below) in zip(levels, levels[1:], strict=False):
        lost[below.index[~below["parent"].isin(set(above["area"]))]] = True
        ends[above.index[~above["area"].isin(set(below["parent"]))]] = True
    are_known = evidence.count_areas(known, rows, lost, "names another")
    return evidence.count_areas(depths, rows, ends, "has no areas below it") and are_known


def _chain(rows: pd.DataFrame) -> list[str] | None:
    """The levels in order, coarsest first; None if they form no chain.

    The level above another is that which holds most of its parents, the nearest in the file if
    several do.
    """
    areas = {level: set(own["area"]) for level, own in rows.groupby("level", sort=False)}
    names = list(areas)
    above: dict[str, str | None] = {}
    for position, level in enumerate(names):
        parents = rows.loc[rows["level"] == level, "parent"]
        parents = parents[parents != ""]
        if parents.empty:
            above[level] = None
            continue
        others = [other for other in names if other != level]
        if not others:
            return None
        above[level] = max(
            others,
            key=lambda other: (
                parents.isin(areas[other]).sum(),
                -abs(names.index(other) - position),
            ),
        )
    order: list[str] = []
    below = [level for level in names if above[level] is None]
    while len(below) == 1:
        order += below
        below = [level for level in names if above[level] == order[-1]]
    return order if len(order) == len(names) else None


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
