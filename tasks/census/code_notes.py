"""Notes of `check` on codes that look misspelt: what a declaration names and no record has.

A table of codes that has lost its zeros, 1 for 01, breaks no rule where a condition only picks
rows, or where a rule without columns takes all that is left. Notes tell of the records, to the
terminal of the office alone: runs make none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from ..tables.columns import CodedColumn
from .census import Universe
from .recodes import UNKNOWN, CodeSet, Condition, ListedCodes, Recode, whole_number
from .schema import Schema

MOST_SHOWN = 5
"""Levels or codes that a note names."""

WHERE = ""
"""Stands for the conditions on the rows of a universe, beside the names of its attributes."""


@dataclass
class CodeTally:
    """What columns with declared codes hold; confidential.

    values : distinct values by universe, attribute (or `WHERE`) and column.
    left : by universe and attribute, the records that only a rule without columns takes, and all.
    """

    values: dict[tuple[str, str, str], set[str | None]] = field(default_factory=dict)
    left: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add_values(self, where: tuple[str, str, str], column: CodedColumn) -> None:
        """Add the values that some rows of a column have."""
        found = (column.values[code] for code in np.unique(column.codes))
        self.values.setdefault(where, set()).update(found)

    def add_records(
        self, universe: str, recode: Recode, columns: Mapping[str, CodedColumn], rows: np.ndarray
    ) -> None:
        """Add the records of a universe at some rows `(n_rows,)`, a mask."""
        own = {column: columns[column].at(rows) for column in recode.columns}
        for name, column in own.items():
            self.add_values((universe, recode.attribute, name), column)
        rules = tuple(rule for rule in recode.rules if rule[1])
        if rules == recode.rules:
            return
        n_rows, left = int(rows.sum()), int(rows.sum())
        if own:
            level = replace(recode, rules=rules).evaluate(own, n_rows)
            left = int((level == UNKNOWN).sum())
        before, all_before = self.left.get((universe, recode.attribute), (0, 0))
        self.left[universe, recode.attribute] = left + before, n_rows + all_before


def notes(
    universe: Universe, schema: Schema, counts: sparse.csr_array, codes: CodeTally
) -> Iterator[str]:
    """Sentences on levels, codes and catch-alls of a universe; `counts` are its records
    `(n_areas, n_cells)`.
    """
    table = universe.declared.table
    for column, condition in universe.rows.items():
        seen = codes.values.get((universe.name, WHERE, column), set())
        yield from _code_notes(table, column, f"where of {universe.name}", [condition], seen)
    of_cell = np.asarray(counts.sum(axis=0)).reshape(schema.shape)
    if not of_cell.any():
        yield f"{table}: no record belongs to {universe.name}; check its codes."
        return
    for axis, attribute in enumerate(schema.attributes):
        recode = universe.recodes[attribute]
        if recode.has_listed_codes:
            number = of_cell.sum(axis=tuple(n for n in range(of_cell.ndim) if n != axis))
            yield from _level_notes(table, recode, schema.labels(attribute), number)
        for column in recode.columns:
            seen = codes.values.get((universe.name, attribute, column), set())
            if recode.reading is not None:
                seen = {recode.reading.text(value) for value in seen}
            asked = [
                where[column] for level, where in recode.rules if level >= 0 and column in where
            ]
            yield from _code_notes(table, column, attribute, asked, seen)
        left, records = codes.left.get((universe.name, attribute), (1, 2))
        if left in (0, records):
            which = "every" if left else "no"
            yield f"{table}: {which} record falls to the rule of {attribute} without columns."


def _level_notes(
    table: str, recode: Recode, labels: Sequence[str], number: np.ndarray
) -> Iterator[str]:
    """Notes on a level that all records have, or, told by several columns, that none has."""
    found = np.flatnonzero(number)
    if len(found) == 1 and len(labels) > 1:
        label = labels[int(found[0])]
        yield f"{table}: every record has the level {label!r} of {recode.attribute}."
    elif len(recode.columns) > 1 and (number == 0).any():
        missing = _shown(labels[int(level)] for level in np.flatnonzero(number == 0))
        yield f"{table}: no record has the level {missing} of {recode.attribute}."


def _code_notes(
    table: str,
    column: str,
    source: str,
    conditions: Iterable[Condition],
    seen: set[str | None],
) -> Iterator[str]:
    """A note on declared codes that none of the values of a column is, if there are such."""
    declared: dict[str, CodeSet] = {}
    values = set(seen)
    for condition in conditions:
        if isinstance(condition, ListedCodes):
            separator = condition.separator
            values = {code.strip() for cell in seen for code in (cell or "").split(separator)}
            condition = condition.known or condition.wanted
        declared |= {
            code: CodeSet(frozenset({code}), ()) for code in sorted(condition.texts - {""})
        }
        declared |= {f"{a}-{b}": CodeSet(frozenset(), ((a, b),)) for a, b in condition.ranges}
    lost = [code for code, own in declared.items() if not any(map(own.holds, values))]
    if not lost:
        return
    numbers = {whole_number(value) for value in values} - {None}
    short = [code for code in lost if code.startswith("0") and whole_number(code) in numbers]
    hint = f"; if {column} has lost leading zeros, declare its digits under census.files"
    yield f"{table}: no record has {_shown(lost)} in {column} ({source}){hint if short else ''}."


def _shown(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    quoted = [repr(name) for name in names]
    more = f" and {len(quoted) - MOST_SHOWN} more" if len(quoted) > MOST_SHOWN else ""
    return ", ".join(quoted[:MOST_SHOWN]) + more
