"""Tables of trips, or of anything else, as counts of the leaves of a tree.

A table is read batch by batch. Every distinct value of a place column is looked up once a batch;
rows are added up by leaf, so that one row a trip costs no more memory than one row a pair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....validation.rules import Rule
from ....validation.trips.input_rules import LARGEST_COUNT, RULES
from ...tables.columns import CodedColumn, KeyIndex
from ...tables.findings import RuleTally
from ...tables.layouts import Field, Kind, TableLayout
from ...tables.readers import Batch, Selection, read_batches
from ...tables.sources import InputFile
from ..workload.tree import Tree
from ..workload.truth import NO_NODES, NodeCounts, summed
from .persons import PeopleSoFar, PersonTrips

LARGEST_TOTAL = 1 << 53
"""Totals beyond this are refused as slips, since sums must fit into 64 bits."""

_WHOLE = re.compile(r"-?[0-9]+(\.0*)?", re.ASCII)


@dataclass(frozen=True)
class PlaceColumn:
    """A column that places rows in a dimension: at its finest level, or at every level of it.

    `depth` is the level that the column names; `rule` is broken where it names none.
    """

    column: str
    dimension: int
    depth: int
    rule: Rule


def trips_file(table: str, path: str, name: str, columns: Sequence[str]) -> InputFile:
    """The input file of a table whose columns the settings name."""
    kinds: dict[str, Kind] = dict.fromkeys(columns, "text")
    return InputFile(table, path, name, TableLayout.expected(table, kinds))


@dataclass(frozen=True, eq=False)
class CountedTable:
    """The counts of a table's leaves, and which of its place columns hold integers.

    `persons` has each usable row's person where the table tells them.
    """

    leaves: NodeCounts
    integer_columns: frozenset[str]
    persons: PersonTrips | None = None


def count_leaves(
    file: InputFile,
    tree: Tree,
    places: Sequence[PlaceColumn],
    count: str | None,
    evidence: RuleTally,
    *,
    person: str | None = None,
) -> CountedTable:
    """The counts of a table's leaves; rows that break a rule are counted in `evidence` instead.

    A row's place in a dimension is that of its finest column; coarser columns of the same
    dimension must agree with it. Without a count column every row is one trip. Raises
    UnreadableInput.
    """
    columns = [*dict.fromkeys(place.column for place in places)]
    columns += [name for name in (count, person) if name]
    indexes = [
        KeyIndex(pa.array(tree.dimensions[place.dimension].levels[place.depth].codes, pa.string()))
        for place in places
    ]
    words = {"table": file.table, "column": count, "largest": LARGEST_COUNT}
    rules = RULES.of("counts", **words) if count else ()
    for rule in (*(place.rule for place in places), *rules):
        evidence.add(rule, 0)
    so_far = NO_NODES
    people = PeopleSoFar(file.table, person) if person else None
    integer_columns = {place.column for place in places}
    for batch in read_batches(file, Selection(tuple(columns))):
        integer_columns -= {column for column in integer_columns if not _is_integer(batch[column])}
        positions = _place(batch, tree, places, indexes, evidence)
        counts = _counts(batch, count, rules, evidence)
        usable = counts > 0
        for position in positions:
            usable &= position >= 0
        keys = tree.keys(tree.depth, [position[usable] for position in positions])
        if people is not None and person is not None:
            people.add(batch[person], usable, keys, counts[usable], evidence)
        so_far = summed(
            np.concatenate([so_far.keys, keys]), np.concatenate([so_far.counts, counts[usable]])
        )
        if so_far.total > LARGEST_TOTAL and rules:
            evidence.add(rules[0], 1)
            evidence.see(rules[0], [None])
            break
    persons = None if people is None else people.trips()
    return CountedTable(so_far, frozenset(integer_columns), persons)


def _is_integer(array: pa.Array) -> bool:
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    return pa.types.is_integer(kind)


def _place(
    batch: Batch,
    tree: Tree,
    places: Sequence[PlaceColumn],
    indexes: Sequence[KeyIndex],
    evidence: RuleTally,
) -> list[np.ndarray]:
    """Position of every row at the finest level of each dimension; negative if unknown."""
    found: dict[int, dict[int, np.ndarray]] = {}
    for place, index in zip(places, indexes, strict=True):
        position = index.positions_by_value(batch[place.column])
        evidence.add(place.rule, int((position < 0).sum()))
        found.setdefault(place.dimension, {})[place.depth] = position
    finest = []
    for number, dimension in enumerate(tree.dimensions):
        by_depth = found[number]
        position = by_depth[dimension.depth]
        for place in places:
            if place.dimension == number and place.depth < dimension.depth:
                above = dimension.ancestors(place.depth)[position]
                torn = (position >= 0) & (by_depth[place.depth] >= 0)
                torn &= above != by_depth[place.depth]
                evidence.add(place.rule, int(torn.sum()))
                position = np.where(torn, -1, position)
        finest.append(position)
    return finest


def _counts(
    batch: Batch, count: str | None, rules: Sequence[Rule], evidence: RuleTally
) -> np.ndarray:
    """The count of every row, 0 where it breaks a rule."""
    if count is None:
        return np.ones(len(next(iter(batch.values()))), dtype=np.int64)
    whole, not_negative = rules
    column = CodedColumn.from_arrow(batch[count], Field(count, "number"))
    values = np.array([_whole_number(text) for text in column.values], dtype=object)
    is_whole = np.array([value is not None for value in values])
    is_negative = np.array([value is not None and value < 0 for value in values])
    evidence.add(whole, int((~is_whole)[column.codes].sum()))
    evidence.add(not_negative, int(is_negative[column.codes].sum()))
    used = values[np.unique(column.codes)].tolist()
    evidence.see(whole, used)
    kept = np.where(is_whole & ~is_negative, values, 0).astype(np.int64)
    return kept[column.codes]


def _whole_number(text: str | None) -> int | None:
    """The integer that a text is, None if it is none, blank or absurdly large."""
    if text is None or _WHOLE.fullmatch(text) is None:
        return None
    value = int(text.partition(".")[0])
    return value if abs(value) <= LARGEST_COUNT else None
