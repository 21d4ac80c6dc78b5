"""Ingest of a trips run: from the settings' files to the tree and the counts of its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ....validation.rules import TRIP_RULES, Rule, place_rule, readable
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
from ...runs.directory import RunDirectory
from ...runs.settings import refuse_large_delta
from ...tables.area_lists import area_levels, read_area_rows
from ...tables.findings import (
    InputCheck,
    UnreadableInput,
    accepted_input,
    refusal,
    refuse_unreadable,
)
from ...tables.sources import single_files
from ...tables.value_tallies import ValueTally
from ..plan import UNIVERSE, Plan, make_plan
from ..settings import TripsSettings
from ..tree import NodeCounts, Tree, column_tree, od_tree
from .files import PlaceColumn, RunTree, write_leaves, write_plan, write_tree
from .tables import check_contributions, column_levels, count_leaves, hierarchy_of_areas

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
    write_leaves(run, leaves)
    write_plan(run, make_plan(settings, tree))
    total = leaves.total if settings.contribution.has_invariant_total else None
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
    given, (shape, rules) = settings.input, found
    table = "trips" if given.trips is not None else "table"
    (file,) = single_files(given.paths())[table]
    whole, trips, integers = count_leaves(file, shape, rules, given.count, evidence, given.person)
    leaves = whole
    if trips is not None and given.person is not None:
        contribution, drops = settings.contribution, settings.privacy.excess_trips == "dropped"
        check_contributions(trips, table, given.person, contribution, evidence, drops=drops)
        if drops:
            source = random_choice_source(settings, UNIVERSE, "contributions")
            leaves = trips.sample_trips(
                contribution.trips, source, are_distinct=contribution.are_distinct
            )
    columns = tuple(replace(own, is_integer=own.name in integers) for own in shape.columns)
    return AcceptedTrips(replace(shape, columns=columns), leaves, whole)


Shape = tuple[RunTree, dict[str, Rule]]
"""The tree of a run, and for every column of places the rule that is broken where it names none."""


def _read_shape(settings: TripsSettings, evidence: ValueTally) -> Shape | None:
    """The tree that the areas make; None if they break a rule."""
    return (_od_shape if settings.input.trips is not None else _table_shape)(settings, evidence)


def _od_shape(settings: TripsSettings, evidence: ValueTally) -> Shape | None:
    given = settings.input
    key = "destination_areas" if given.destination_areas is not None else "areas"
    files = {name: files[0] for name, files in single_files(given.paths()).items()}
    found = {
        name: area_levels(read_area_rows(files[name], "area"), name, evidence)
        for name in dict.fromkeys(("areas", key))
    }
    levels, destination_levels = found["areas"], found[key]
    if levels is None or destination_levels is None:
        return None
    if not evidence.count(
        TRIP_RULES.one("depth", table=key), len(levels) != len(destination_levels)
    ):
        return None
    dimensions = (
        hierarchy_of_areas(ORIGIN, levels, level_prefix="origin "),
        hierarchy_of_areas(DESTINATION, destination_levels, level_prefix="destination "),
    )
    columns, rules = [], {}
    ends = zip(given.ends, dimensions, ("areas", key), strict=True)
    for number, (column, dimension, name) in enumerate(ends):
        where = f"an area of the finest level in {files[name].name}"
        columns.append(PlaceColumn(column, number, dimension.depth))
        rules[column] = place_rule("trips", column, dimension.name, where)
    return RunTree(od_tree(*dimensions, first=settings.mechanism.tree), tuple(columns)), rules


def _table_shape(settings: TripsSettings, evidence: ValueTally) -> Shape | None:
    (file,) = single_files(settings.input.paths())["areas"]
    dimensions = column_levels(file, settings.input.levels, evidence)
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
    tree = column_tree([hierarchy_of_areas(levels[-1][0], levels) for levels in dimensions])
    return RunTree(tree, tuple(columns)), rules
