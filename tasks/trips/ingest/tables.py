"""Tables of trips, or of anything else, as counts of the leaves of a tree.

A person makes at most m trips, which is checked, or enforced by drawing which of them stay. Where
trips beyond m are dropped, the rest are a uniformly random choice of m of the person's trips, made
for every person independently. Changing one person's trips then changes the choice for that person
alone, so that tables that differ in one person differ after it in at most m trips, or m of each:
the noise for m covers them.

A table is read batch by batch. Every distinct value of a place column is looked up once a batch;
rows are added up by leaf, so that one row a trip costs no more memory than one row a pair.

Areas, or the values of a table's columns, come from a list, since they decide the measurements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from ....geography.hierarchy import ranks_within
from ....validation.rules import AREA_RULES, LARGEST_COUNT, TRIP_RULES, Rule
from ...noise.distributions import RandomSource, random_words
from ...tables.area_lists import Level, check_links, distinct_areas, read_area_rows
from ...tables.columns import CodedColumn, KeyIndex, trimmed_texts
from ...tables.layouts import Field
from ...tables.readers import Batch, Selection, read_batches
from ...tables.sources import InputFile
from ...tables.value_tallies import ValueTally
from ..settings import Contribution
from ..tree import NO_NODES, Hierarchy, NodeCounts, hierarchy_of_links, sum_by_key
from .files import RunTree


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
        rows = pd.DataFrame({"person": self.person, "key": self.keys, "count": self.counts})
        rows = rows.groupby(["person", "key"], as_index=False).sum()
        return PersonTrips(*(rows[name].to_numpy() for name in rows))

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


def count_leaves(
    file: InputFile,
    shape: RunTree,
    rules_of_places: Mapping[str, Rule],
    count: str | None,
    evidence: ValueTally,
    person: str | None = None,
) -> tuple[NodeCounts, PersonTrips | None, set[str]]:
    """Counts of a table's leaves, where it has persons also the trips of each, and the columns of
    places that hold integers.

    Rows that break a rule, such as the one of each column of places, are counted in `evidence`
    instead. Coarser columns of a dimension must agree with the finest. Without a count column every
    row is one trip. Raises UnreadableInput.
    """
    places = [place.name for place in shape.columns]
    columns = [*places, *(name for name in (count, person) if name)]
    file, tree = file.with_columns(dict.fromkeys(columns, "text")), shape.tree
    indexes = {
        place.name: KeyIndex(
            pa.array(tree.dimensions[place.dimension].levels[place.depth].codes, pa.string())
        )
        for place in shape.columns
    }
    words = {"table": file.table, "column": count, "largest": LARGEST_COUNT}
    rules = TRIP_RULES.of("counts", **words) if count else ()
    for rule in rules_of_places.values():
        evidence.count(rule, 0)
    for rule in rules:
        evidence.look_at(rule, {})
    so_far, integers = NO_NODES, set(places)
    named: list[tuple[pa.Array, np.ndarray, np.ndarray]] = []
    for batch in read_batches(file, Selection(tuple(columns))):
        integers -= {column for column in integers if not _is_integer(batch[column])}
        positions = _place(batch, shape, rules_of_places, indexes, evidence)
        counts = _counts(batch, count, rules, evidence)
        usable = counts > 0
        for position in positions:
            usable &= position >= 0
        keys = tree.keys(tree.depth, [position[usable] for position in positions])
        if person is not None:
            texts = trimmed_texts(batch[person])
            is_named = texts.is_valid().to_numpy(zero_copy_only=False)
            rule = TRIP_RULES.one("person", table=file.table, column=person)
            evidence.count(rule, (~is_named).sum())
            rows = usable & is_named
            named.append((texts.filter(pa.array(rows)), keys[is_named[usable]], counts[rows]))
        so_far = sum_by_key(
            np.concatenate([so_far.keys, keys]), np.concatenate([so_far.counts, counts[usable]])
        )
        if so_far.total > LARGEST_TOTAL and rules:
            evidence.look_at(rules[0], {None: 1})
            break
    trips = None
    if person is not None:
        persons, *rows_of_all = zip(*named, strict=True)
        numbers, _ = pd.factorize(pa.chunked_array(persons, pa.large_string()).to_pandas())
        trips = PersonTrips(numbers.astype(np.int64), *map(np.concatenate, rows_of_all))
    return so_far, trips, integers


def _is_integer(array: pa.Array) -> bool:
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    return pa.types.is_integer(kind)


def _place(
    batch: Batch,
    shape: RunTree,
    rules: Mapping[str, Rule],
    indexes: Mapping[str, KeyIndex],
    evidence: ValueTally,
) -> list[np.ndarray]:
    """Position of every row at the finest level of each dimension; negative if unknown."""
    found = {name: index.positions_by_value(batch[name]) for name, index in indexes.items()}
    for name, position in found.items():
        evidence.count(rules[name], (position < 0).sum())
    finest = []
    for number, dimension in enumerate(shape.tree.dimensions):
        *coarser, last = (own for own in shape.columns if own.dimension == number)
        position = found[last.name]
        for own in coarser:
            above = dimension.ancestors(own.depth)[position]
            torn = (position >= 0) & (found[own.name] >= 0) & (above != found[own.name])
            evidence.count(rules[own.name], torn.sum())
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
