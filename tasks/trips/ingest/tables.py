"""Tables of trips, or of anything else, as counts of the leaves of a tree.

A person makes at most m trips, which is checked, or enforced by drawing which of them stay. Where
trips beyond m are dropped, the rest are a uniformly random choice of m of the person's trips, made
for every person independently. Changing one person's trips then changes the choice for that person
alone, so that tables that differ in one person differ after it in at most m trips, or m of each:
the noise for m covers them.

A table is read batch by batch. Every distinct value of a place column is looked up once a batch;
rows are added up by leaf, so that one row a trip costs no more memory than one row a pair.

Areas come from a list of areas, or else from a table's own columns. Their values then decide the
measurements, so this is for tables that are not confidential, or whose values have been declared
public.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from ....geography.hierarchy import ranks_within
from ....validation.input_rules import AREA_RULES, LARGEST_COUNT, TRIP_RULES
from ....validation.rules import Rule
from ...noise.distributions import RandomSource, random_words
from ...tables.area_lists import Level, check_links, distinct_areas, read_area_rows
from ...tables.columns import CodedColumn, KeyIndex, trimmed_texts
from ...tables.layouts import Field
from ...tables.readers import Batch, Selection, read_batches
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally
from ..settings import Contribution
from ..tree import NO_NODES, Hierarchy, NodeCounts, Tree, hierarchy_of_links, sum_by_key


@dataclass(frozen=True, eq=False)
class PersonTrips:
    """Rows of persons' trips: `person` (n,) numbers from 0, `keys` of leaves, `counts` of trips."""

    person: np.ndarray
    keys: np.ndarray
    counts: np.ndarray

    @property
    def per_person(self) -> np.ndarray:
        """Trips of every person."""
        return np.bincount(self.person, self.counts).astype(np.int64)

    def distinct(self) -> PersonTrips:
        """One row for each leaf of a person, with the trips of all its rows."""
        order = np.lexsort((self.keys, self.person))
        person, keys = self.person[order], self.keys[order]
        is_first = np.ones(person.size, dtype=bool)
        is_first[1:] = (person[1:] != person[:-1]) | (keys[1:] != keys[:-1])
        starts = np.flatnonzero(is_first)
        counts = np.add.reduceat(self.counts[order], starts) if starts.size else self.counts
        return PersonTrips(person[starts], keys[starts], counts)

    def sample_trips(self, most: int, source: RandomSource, *, are_distinct: bool) -> NodeCounts:
        """The leaves of at most `most` trips a person, drawn at random; of distinct ones at most
        one a leaf.
        """
        rows = self.distinct()
        if are_distinct:
            rows = PersonTrips(rows.person, rows.keys, np.ones_like(rows.counts))
        is_over = rows.per_person[rows.person] > most
        person = np.repeat(rows.person[is_over], rows.counts[is_over])
        keys = np.repeat(rows.keys[is_over], rows.counts[is_over])
        order = np.lexsort((random_words(source, person.size), person))
        chosen = keys[order][ranks_within(person[order]) < most]
        return sum_by_key(
            np.concatenate([rows.keys[~is_over], chosen]),
            np.concatenate([rows.counts[~is_over], np.ones(chosen.size, dtype=np.int64)]),
        )


@dataclass
class PeopleSoFar:
    """Persons of a table's rows as its batches are read; blank ones are counted as evidence."""

    table: str
    column: str
    _persons: list[pa.Array] = field(default_factory=list)
    _keys: list[np.ndarray] = field(default_factory=list)
    _counts: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        persons: pa.Array,
        usable: np.ndarray,
        keys: np.ndarray,
        counts: np.ndarray,
        evidence: ValueTally,
    ) -> None:
        """Add a batch: the persons of all rows, and keys and counts of the usable ones."""
        texts = trimmed_texts(persons)
        is_blank = texts.is_null().to_numpy(zero_copy_only=False)
        rule = TRIP_RULES.one("person", table=self.table, column=self.column)
        evidence.count(rule, is_blank.sum())
        is_named = ~is_blank[usable]
        self._persons.append(texts.filter(pa.array(usable & ~is_blank)))
        self._keys.append(keys[is_named])
        self._counts.append(counts[is_named])

    def trips(self) -> PersonTrips:
        """All rows, persons numbered."""
        texts = pa.chunked_array(self._persons, pa.large_string())
        person, _ = pd.factorize(texts.to_pandas())
        return PersonTrips(
            person.astype(np.int64), np.concatenate(self._keys), np.concatenate(self._counts)
        )


def check_contributions(
    trips: PersonTrips,
    table: str,
    column: str,
    contribution: Contribution,
    evidence: ValueTally,
    *,
    drops: bool,
) -> None:
    """Count the persons whose trips are not as the settings say.

    `drops` means that trips beyond the most, and repeated trips in one cell, are dropped.
    """
    most, are_distinct = contribution.trips, contribution.are_distinct
    at_most, at_least, once = TRIP_RULES.of("contribution", table=table, column=column, most=most)
    rows = trips.distinct()
    if are_distinct and not drops:
        evidence.count(once, np.unique(rows.person[rows.counts > 1]).size)
    if are_distinct and drops:
        rows = PersonTrips(rows.person, rows.keys, np.ones_like(rows.counts))
    per_person = rows.per_person
    if not drops:
        evidence.count(at_most, (per_person > most).sum())
    if contribution.has_invariant_total:
        evidence.count(at_least, (per_person < most).sum())


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


@dataclass(frozen=True, eq=False)
class CountedTable:
    """The counts of a table's leaves, and the place columns that hold integers.

    `persons` has each usable row's person where the table has persons.
    """

    leaves: NodeCounts
    integer_columns: frozenset[str]
    persons: PersonTrips | None = None


def count_leaves(
    file: InputFile,
    tree: Tree,
    places: Sequence[PlaceColumn],
    count: str | None,
    evidence: ValueTally,
    *,
    person: str | None = None,
) -> CountedTable:
    """The counts of a table's leaves; rows that break a rule are counted in `evidence` instead.

    A row's place in a dimension is its finest column; coarser columns of the same dimension must
    agree with it. Without a count column every row is one trip. Raises UnreadableInput.
    """
    columns = [*dict.fromkeys(place.column for place in places)]
    columns += [name for name in (count, person) if name]
    file = file.with_columns(dict.fromkeys(columns, "text"))
    indexes = [
        KeyIndex(pa.array(tree.dimensions[place.dimension].levels[place.depth].codes, pa.string()))
        for place in places
    ]
    words = {"table": file.table, "column": count, "largest": LARGEST_COUNT}
    rules = TRIP_RULES.of("counts", **words) if count else ()
    for place in places:
        evidence.count(place.rule, 0)
    for rule in rules:
        evidence.look_at(rule, {})
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
        so_far = sum_by_key(
            np.concatenate([so_far.keys, keys]), np.concatenate([so_far.counts, counts[usable]])
        )
        if so_far.total > LARGEST_TOTAL and rules:
            evidence.look_at(rules[0], {None: 1})
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
    evidence: ValueTally,
) -> list[np.ndarray]:
    """Position of every row at the finest level of each dimension; negative if unknown."""
    found: dict[int, dict[int, np.ndarray]] = {}
    for place, index in zip(places, indexes, strict=True):
        position = index.positions_by_value(batch[place.column])
        evidence.count(place.rule, (position < 0).sum())
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
                evidence.count(place.rule, torn.sum())
                position = np.where(torn, -1, position)
        finest.append(position)
    return finest


def _counts(
    batch: Batch, count: str | None, rules: Sequence[Rule], evidence: ValueTally
) -> np.ndarray:
    """The count of every row, 0 where it breaks a rule."""
    if count is None:
        return np.ones(len(next(iter(batch.values()))), dtype=np.int64)
    column = CodedColumn.from_arrow(batch[count], Field(count, "number"))
    values = [_whole_number(text) for text in column.values]
    rows = np.bincount(column.codes, minlength=len(values)).tolist()
    for value, n in zip(values, rows, strict=True):
        if n:
            evidence.look_at(rules[0], {value: n})
    usable = np.array([max(0, value or 0) for value in values], dtype=np.int64)
    return usable[column.codes]


def _whole_number(text: str | None) -> int | None:
    """Parse an integer; None for other texts, blanks and absurdly large numbers."""
    if text is None or _WHOLE.fullmatch(text) is None:
        return None
    value = int(text.partition(".")[0])
    return value if abs(value) <= LARGEST_COUNT else None


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
