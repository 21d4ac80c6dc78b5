"""Ingest of a trips run: from the settings' files to the tree and the counts of its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ....validation.expectations import readable
from ....validation.input_rules import TRIP_RULES, place_rule
from ...ledger.charging import random_choice_source
from ...ledger.identity import store_identity
from ...ledger.recognition import (
    InputDigest,
    PeopleDigests,
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
from ..settings import TripsInput, TripsSettings
from ..tree import Hierarchy, NodeCounts, Tree, column_tree, od_tree
from .files import ReleaseColumn, RunTree, write_leaves, write_plan, write_tree
from .tables import (
    PlaceColumn,
    check_contributions,
    column_levels,
    count_leaves,
    hierarchy_of_areas,
    observed_levels,
)

ORIGIN, DESTINATION = "origin", "destination"


@dataclass(frozen=True, eq=False)
class Shape:
    """The public shape of a run: its tree, and the columns that place a row."""

    tree: Tree
    places: tuple[PlaceColumn, ...]


@dataclass(frozen=True, eq=False)
class AcceptedTrips:
    """An input that breaks no rule, and the columns that its release will have.

    `leaves` are those to measure, `whole` those of the table, including dropped trips: by these the
    ledger recognises it, whichever trips are dropped.
    """

    shape: Shape
    columns: tuple[ReleaseColumn, ...]
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


def public_shape(settings: TripsSettings) -> Shape:
    """The shape of a run from its areas alone; raises InputRefused if they break a rule."""
    evidence = ValueTally()
    with_counts = not settings.input.confidential
    with refuse_unreadable(with_counts=with_counts):
        shape = _read_shape(settings, evidence)
    if shape is None:
        found = evidence.findings(evidence.rules, single_files(settings.input.paths()))
        raise refusal(found, with_counts=with_counts)
    return shape


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
    write_tree(run, RunTree(tree, found.columns, total))


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
        digest = digest.recognised_by(_people(tree, positions, leaves.counts, number, key))
    return {"trips": digest}


def _people(
    tree: Tree, positions: Sequence[np.ndarray], counts: np.ndarray, number: int, key: bytes
) -> PeopleDigests:
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
    shape = _read_shape(settings, evidence)
    if shape is None:
        return None
    given = settings.input
    table = "trips" if given.trips is not None else "table"
    (file,) = single_files(given.paths())[table]
    counted = count_leaves(
        file, shape.tree, shape.places, given.count, evidence, person=given.person
    )
    leaves, trips = counted.leaves, counted.persons
    if trips is not None and given.person is not None:
        contribution, drops = settings.contribution, settings.privacy.excess_trips == "dropped"
        check_contributions(trips, table, given.person, contribution, evidence, drops=drops)
        if drops:
            source = random_choice_source(settings, UNIVERSE, "contributions")
            leaves = trips.sample_trips(
                contribution.trips, source, are_distinct=contribution.are_distinct
            )
    released = tuple(
        ReleaseColumn(
            place.column, place.dimension, place.depth, place.column in counted.integer_columns
        )
        for place in shape.places
    )
    return AcceptedTrips(shape, released, leaves, counted.leaves)


def _read_shape(settings: TripsSettings, evidence: ValueTally) -> Shape | None:
    if settings.input.trips is not None:
        return _od_shape(settings, evidence)
    return _table_shape(settings.input, evidence)


def _od_shape(settings: TripsSettings, evidence: ValueTally) -> Shape | None:
    given = settings.input
    key = "destination_areas" if given.destination_areas is not None else "areas"
    files = single_files(given.paths())
    found = {
        name: area_levels(read_area_rows(files[name][0], "area"), name, evidence)
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
    tree = od_tree(*dimensions, first=settings.mechanism.tree)
    names = (files["areas"][0].name, files[key][0].name)
    places = tuple(
        PlaceColumn(
            column,
            number,
            dimension.depth,
            place_rule("trips", column, dimension.name, f"an area of the finest level in {file}"),
        )
        for number, (column, dimension, file) in enumerate(
            zip(given.ends, dimensions, names, strict=True)
        )
    )
    return Shape(tree, places)


def _table_shape(given: TripsInput, evidence: ValueTally) -> Shape | None:
    (file,) = single_files(given.paths())["table" if given.areas is None else "areas"]
    if given.areas is not None:
        dimensions = column_levels(file, given.levels, evidence)
        where = f"a value that {file.name} lists for it"
    else:
        dimensions = observed_levels(file, given.levels)
        where = "filled"
    if dimensions is None:
        return None
    hierarchies: list[Hierarchy] = []
    places: list[PlaceColumn] = []
    for number, levels in enumerate(dimensions):
        hierarchies.append(hierarchy_of_areas(levels[-1][0], levels))
        places += [
            PlaceColumn(
                column, number, depth, place_rule("table", column, f"column_{column}", where)
            )
            for depth, (column, _) in enumerate(levels, start=1)
        ]
    return Shape(column_tree(hierarchies), tuple(places))
