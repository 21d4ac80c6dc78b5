"""Ingest of a trips run: from the settings' files to the tree and the counts of its leaves.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ....geography.hierarchy import ranks_within
from ....validation.rules import AREA_RULES, LARGEST_COUNT, TRIP_RULES, Rule, place_rule, readable
from ...ledger.charging import random_choice_source
from ...ledger.identity import store_identity
from ...ledger.recognition import (
    ColumnDigests,
    InputDigest,
    RecordColumn,
    input_digest,
    people_digests,
    raw_value,
    unnamed_digest,
)
from ...noise.distributions import RandomSource, random_words
from ...runs.directory import RunDirectory
from ...runs.settings import refuse_large_delta
from ...runs.stamps import write_parquet
from ...tables.area_lists import Level, area_levels, check_links, distinct_areas, read_area_rows
from ...tables.columns import CodedColumn, KeyIndex, number_counts, trimmed_texts
from ...tables.findings import (
    InputCheck,
    UnreadableInput,
    accepted_input,
    refusal,
    refuse_unreadable,
)
from ...tables.layouts import Field
from ...tables.readers import Batch, Selection, read_batches
from ...tables.sources import InputFile, single_files
from ...tables.value_tallies import ValueTally
from ..plan import UNIVERSE, Plan, make_plan, write_plan
from ..settings import TripsInput, TripsPrivacy, TripsSettings
from ..tree import (
    NO_NODES,
    NodeCounts,
    PlaceColumn,
    RunTree,
    Tree,
    column_tree,
    hierarchy_of_links,
    leaves_file,
    od_tree,
    sum_by_key,
    write_tree,
)

ORIGIN, DESTINATION = "origin", "destination"


@dataclass(frozen=True, eq=False)
class AcceptedTrips:
    """An input that breaks no rule.

    `leaves` are those to measure, `whole` those of the table, including dropped trips: by these the
    ledger recognises it, whichever trips are dropped.
    """

    shape: RunTree
    leaves: NodeCounts
    whole: NodeCounts


def check_input(settings: TripsSettings) -> InputCheck[AcceptedTrips]:
    """Read and check the files that the settings name; messages show their names."""
    evidence = ValueTally()
    try:
        accepted = _read_all(settings, evidence)
    except UnreadableInput as error:
        judged = evidence.outcomes(evidence.rules)
        return InputCheck((readable("files", False), *judged), (error.finding,), None)
    files, read = single_files(settings.input.paths()), [readable("files", True)]
    return evidence.checked(evidence.rules, files, read, lambda: accepted)


def public_plan(settings: TripsSettings) -> Plan:
    """The plan by the public areas alone."""
    return make_plan(settings, public_shape(settings).tree)


def public_shape(settings: TripsSettings) -> RunTree:
    """The tree of a run from its areas alone; raises InputRefused if they break a rule."""
    evidence = ValueTally()
    with_counts = not settings.input.confidential
    with refuse_unreadable(with_counts=with_counts):
        found = _read_shape(settings, evidence)
    if found is None:
        faults = evidence.findings(evidence.rules, single_files(settings.input.paths()))
        raise refusal(faults, with_counts=with_counts)
    return found[0]


def ingest_input(run: RunDirectory, settings: TripsSettings) -> None:
    """Write the tree and the plan, and the confidential counts of the leaves.

    The tree comes last: where it is, all is. Raises InputRefused for input that breaks a rule;
    its counts are then in `confidential/findings.json`, and for input that is not confidential in
    the message too.
    """
    found = accepted_input(run, settings, check_input(settings))
    tree, leaves = found.shape.tree, found.leaves
    refuse_delta_of(settings, leaves.total)
    store_identity(run, settings, lambda key: input_digests(tree, found.whole, key))
    write_parquet(leaves_file(run), pa.table({"key": leaves.keys, "count": leaves.counts}))
    write_plan(run, make_plan(settings, tree))
    total = leaves.total if settings.privacy.has_invariant_total else None
    write_tree(run, replace(found.shape, total=total))


def refuse_delta_of(settings: TripsSettings, n_trips: int) -> None:
    """Refuse the delta of a guarantee, if it is one, as `refuse_large_delta` does."""
    privacy = settings.privacy
    if privacy.epsilon is not None:
        n_persons = -(-n_trips // privacy.trips_per_person)
        refuse_large_delta(settings, privacy.delta, n_persons, "privacy.delta")


def input_digests(tree: Tree, leaves: NodeCounts, key: bytes) -> dict[str, InputDigest]:
    """The keyed digest by which the ledger recognises these trips in any tree.

    Columns have no names and come in an order of their own (`unnamed_digest`). As a part it has
    the digest of version 0.1.0, which took the names in, so that older ledgers know it.
    """
    positions = tree.positions(tree.depth, leaves.keys)
    columns = {
        dimension.name: dimension.levels[-1].codes[position].astype(str)
        for dimension, position in zip(tree.dimensions, positions, strict=True)
    }
    named = input_digest("trips", columns | {"count": leaves.counts}, key)
    whole = unnamed_digest("trips", list(columns.values()), leaves.counts, key)
    digest = InputDigest(whole, (named.whole,))
    for number in range(len(positions)):
        digest = digest.recognised_by(_people(tree, positions, leaves.counts, number, key), key)
    return {"trips": digest}


def _people(
    tree: Tree, positions: Sequence[np.ndarray], counts: np.ndarray, number: int, key: bytes
) -> list[ColumnDigests]:
    """Digests of the trips by area of one dimension: where they are in the others, and how many
    there are in each leaf.
    """
    own = tree.dimensions[number]
    area, n_areas = positions[number], len(own.levels[-1])
    numbers, which = np.unique(counts, return_inverse=True)
    # Each leaf is a record that has its number of trips as its value.
    ones = np.ones(len(counts), dtype=np.int64)
    found = [_record_column(area, which.reshape(-1), ones, n_areas, numbers.astype(str))]
    for other, position in enumerate(positions):
        if other != number:
            codes = tree.dimensions[other].levels[-1].codes.astype(str)
            found.append(_record_column(area, position, counts, n_areas, codes))
    return people_digests(found, [own.ancestors(depth) for depth in range(own.depth)], key)


def _record_column(
    area: np.ndarray, value: np.ndarray, n: np.ndarray, n_areas: int, values: np.ndarray
) -> RecordColumn:
    """Numbers `n` of records by area and position of their value."""
    entries = sparse.coo_array((n, (area, value)), shape=(n_areas, max(1, len(values))))
    return RecordColumn(sparse.csr_array(entries), [raw_value(text) for text in values.tolist()])


def _read_all(settings: TripsSettings, evidence: ValueTally) -> AcceptedTrips | None:
    """Valid content of the files; None if the areas break a rule."""
    found = _read_shape(settings, evidence)
    if found is None:
        return None
    given, privacy, (shape, rules) = settings.input, settings.privacy, found
    (file,) = single_files(given.paths())["trips" if given.trips is not None else "table"]
    whole, trips, integers = count_leaves(file, shape, rules, given, evidence)
    leaves = whole
    if trips is not None and given.person is not None:
        check_contributions(trips, file.table, given.person, privacy, evidence)
        if privacy.excess_trips == "dropped":
            source = random_choice_source(settings, UNIVERSE, "contributions")
            leaves = trips.sample_trips(privacy, source)
    columns = tuple(replace(own, is_integer=own.name in integers) for own in shape.columns)
    return AcceptedTrips(replace(shape, columns=columns), leaves, whole)


Shape = tuple[RunTree, dict[str, Rule]]
"""The tree of a run, and for every column of places the rule that is broken where it names none."""


def _read_shape(settings: TripsSettings, evidence: ValueTally) -> Shape | None:
    """The tree that the areas make; None if they break a rule."""
    given = settings.input
    files = {name: own[0] for name, own in single_files(given.paths()).items()}
    if given.trips is None:
        return _table_shape(files["areas"], given.levels, evidence)
    key = "destination_areas" if given.destination_areas is not None else "areas"
    found = {
        name: area_levels(read_area_rows(files[name], "area"), name, evidence)
        for name in dict.fromkeys(("areas", key))
    }
    columns, dimensions, rules = [], [], {}
    ends = zip(given.ends, (ORIGIN, DESTINATION), ("areas", key), strict=True)
    for number, (column, end, name) in enumerate(ends):
        levels = found[name]
        if levels is None:
            return None
        links = [(f"{end} {level}", own["area"], own["parent"]) for level, own in levels]
        dimensions.append(hierarchy_of_links(end, links))
        columns.append(PlaceColumn(column, number, len(levels)))
        where = f"an area of the finest level in {files[name].name}"
        rules[column] = place_rule("trips", column, end, where)
    origin, destination = dimensions
    is_uneven = origin.depth != destination.depth
    if not evidence.count(TRIP_RULES.one("depth", table=key), is_uneven):
        return None
    tree = od_tree(origin, destination, first=settings.mechanism.tree)
    return RunTree(tree, tuple(columns)), rules


def _table_shape(file: InputFile, names: Sequence[str], evidence: ValueTally) -> Shape | None:
    """The tree of a table's columns, whose values a file lists."""
    dimensions = column_levels(file, names, evidence)
    if dimensions is None:
        return None
    columns = [
        PlaceColumn(column, number, depth)
        for number, levels in enumerate(dimensions)
        for depth, (column, _) in enumerate(levels, start=1)
    ]
    where = f"a value that {file.name} lists for it"
    rules = {
        own.name: place_rule("table", own.name, f"column_{own.name}", where) for own in columns
    }
    links = [
        [(level, own["area"], own["parent"]) for level, own in levels] for levels in dimensions
    ]
    tree = column_tree([hierarchy_of_links(levels[-1][0], levels) for levels in links])
    return RunTree(tree, tuple(columns)), rules


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

    def sample_trips(self, privacy: TripsPrivacy, source: RandomSource) -> NodeCounts:
        """The leaves of at most m trips a person, drawn at random; of distinct ones at most one a
        leaf.
        """
        rows, most = self.distinct(), privacy.trips_per_person
        if privacy.distinct_trips:
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
    trips: PersonTrips, table: str, column: str, privacy: TripsPrivacy, evidence: ValueTally
) -> None:
    """Count the persons whose trips are not as the settings say, after those that are dropped."""
    most, drops = privacy.trips_per_person, privacy.excess_trips == "dropped"
    at_most, at_least, once = TRIP_RULES.of("contribution", table=table, column=column, most=most)
    rows = trips.distinct()
    if privacy.distinct_trips and not drops:
        evidence.count(once, np.unique(rows.person[rows.counts > 1]).size)
    if privacy.distinct_trips and drops:
        rows = PersonTrips(rows.person, rows.keys, np.ones_like(rows.counts))
    per_person = rows.per_person
    if not drops:
        evidence.count(at_most, (per_person > most).sum())
    if privacy.has_invariant_total:
        evidence.count(at_least, (per_person < most).sum())


LARGEST_TOTAL = 1 << 53
"""Totals beyond this are refused as slips, since sums must fit into 64 bits."""


def count_leaves(
    file: InputFile,
    shape: RunTree,
    rules_of_places: Mapping[str, Rule],
    given: TripsInput,
    evidence: ValueTally,
) -> tuple[NodeCounts, PersonTrips | None, set[str]]:
    """Counts of a table's leaves, where it has persons also the trips of each, and the columns of
    places that hold integers.

    Rows that break a rule, such as the one of each column of places, are counted in `evidence`
    instead. Coarser columns of a dimension must agree with the finest. Without a count column every
    row is one trip. Raises UnreadableInput.
    """
    places, count, person = [place.name for place in shape.columns], given.count, given.person
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
        usable = (counts > 0) & (np.array(positions) >= 0).all(axis=0)
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
    numbers = CodedColumn.from_arrow(batch[count], Field(count, "number")).whole_numbers()
    evidence.look_at(rules[0], number_counts(numbers))
    return np.where(numbers > LARGEST_COUNT, 0, np.maximum(numbers, 0))


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
