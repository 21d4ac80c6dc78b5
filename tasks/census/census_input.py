"""The input of a census: read, checked against every declaration, and counted.

The rules are made from the declaration: every code has a level, every record an area, structural
zeros are empty, and bounds and relations hold in every area. Public by declaration are the areas,
the numbers of records that bounds multiply, and the invariant answers.

Several tasks may read an input: the tables to which records refer, shares of the records, and the
check of all of them, which decides as one reader does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse

from ...geography.declared import Units
from ...validation.rules import Rule, count_violations, readable
from ..ledger.recognition import InputDigest, RecordColumn, input_digest, people_digests
from ..runs.objects import read_object
from ..tables.columns import CodedColumn, GrowingArray, KeyColumn, KeyIndex
from ..tables.findings import FileRead, InputCheck, UnreadableInput
from ..tables.readers import refuse_empty
from ..tables.sources import InputFile, Share, input_files, refuse_shared
from ..tables.value_tallies import FilesRead, ValueTally
from .areas import AreaIndex, Areas, load_areas, needed_columns, refuse_alike, shaped
from .census import Bound, Census, Universe
from .counting import (
    CountedShare,
    People,
    RawColumns,
    RecordCounter,
    count_files,
    identity_columns,
    read_columns,
)
from .histograms import HistogramSum
from .households import UNIT_COLUMNS
from .joins import ByTable, JoinedTable, Occupants, OwnAreas, read_joined
from .members import OF_MEMBERS
from .queries import Schema, counted_rows, marginal_query
from .records import (
    AreaLookup,
    UniverseCounter,
    UniverseTables,
    declared_rules,
    occupant_columns,
    way_columns,
)


@dataclass(frozen=True, eq=False)
class ReferredRows:
    """Rows of the table on the way from records to their areas, `(n_rows,)` each: their areas, -1
    for none, and how many records refer to them; confidential.
    """

    area: np.ndarray
    records: np.ndarray


@dataclass(frozen=True, eq=False)
class CensusInput:
    """The input of a run; rows are in the order of the areas.

    public : public facts about every area.
    histograms : by universe of the run, int64 counts `(n_areas, n_cells)`; confidential.
    totals : answers that are released exactly.
    known : by universe, the number of its records, where exact answers determine it.
    n_records : the number of persons, or of the records of the largest universe.
    raw : by universe that was counted, the columns by which the ledger recognises it and the tables
        that it refers to or that refer to it; confidential.
    whole : by universe, the digest of its cells under a key.
    levels : the geolevels from the root to the areas, each the number `(n_areas,)` of its geounits.
    multiples : by universe and number of the bound, `(n_areas, n_rows)` records per row of the
        bounded query; public by declaration.
    referred : of the Census Edited File, the units to which `persons` refer.
    """

    areas: Areas
    public: pd.DataFrame
    histograms: Mapping[str, sparse.csr_array]
    totals: Mapping[str, Any]
    known: Mapping[str, int]
    n_records: int
    raw: Mapping[str, Sequence[RecordColumn]]
    whole: Mapping[str, Callable[[bytes], InputDigest]]
    levels: Callable[[], Sequence[np.ndarray]]
    multiples: Mapping[tuple[str, int], np.ndarray]
    referred: Mapping[str, ReferredRows]

    @property
    def geography(self) -> pd.DataFrame:
        """The areas."""
        return self.areas.frame

    def digests(self, key: bytes) -> dict[str, InputDigest]:
        """Keyed digests by which the ledger recognises the records again.

        The digest of a whole universe is that of its cells, for compatibility with older ledgers;
        the others are of its raw columns.
        """
        levels, raw = self.levels(), self.recognised_columns()
        return {
            name: digest(key).recognised_by(people_digests(raw[name], levels, key), key)
            for name, digest in self.whole.items()
        }

    def recognised_columns(self) -> dict[str, list[RecordColumn]]:
        """The raw columns by which the records of each universe of the run are recognised."""
        raw = {name: [*self.raw.get(name, ())] for name in self.whole}
        # Universes that are counted but not run are recognised with the first universe of the run.
        for own in (own for name, own in self.raw.items() if name not in raw):
            next(iter(raw.values())).extend(own)
        return raw


@dataclass(frozen=True, eq=False)
class ReferredTables:
    """Tables to which records refer: the areas, and the paths of each universe's records to them.

    counts : rows of the Census Edited File's table of units, by area and kind.
    """

    areas: Areas
    ways: Mapping[str, AreaLookup]
    counts: sparse.csr_array = field(default_factory=partial(sparse.csr_array, (0, 0)))


Counted = tuple[ReferredTables, Mapping[str, RecordCounter]]
"""The tables to which records refer, and the counters of all records, by universe."""
ReferredShare = tuple[ReferredTables, ValueTally]
"""The tables to which records refer, with their evidence; confidential."""
RecordShare = tuple[Mapping[str, CountedShare], ValueTally]
"""Counts of a share of the records, by universe, with their evidence; confidential."""

_TYPES = {
    kind.__name__: kind
    for kind in (
        *(AreaIndex, AreaLookup, Areas, ByTable, CodedColumn, CountedShare, FileRead, FilesRead),
        *(GrowingArray, HistogramSum, JoinedTable, KeyColumn, KeyIndex, Occupants, OwnAreas),
        *(RawColumns, RecordColumn, ReferredTables, Units, ValueTally),
    )
}


def read_share(stem: Path) -> Any:
    """Read a share from the file that `runs.objects.write_object` has written."""
    return read_object(stem, _TYPES)


@dataclass(frozen=True, eq=False)
class CensusTables:
    """The tables of a census, read as it declares; those to which records refer come first.

    Columns that are not recognised have no raw columns.
    """

    census: Census
    schemas: Mapping[str, Schema]
    files: Mapping[str, tuple[InputFile, ...]]
    is_recognised: bool = True

    @classmethod
    def of(
        cls,
        census: Census,
        schemas: Mapping[str, Schema],
        paths: Mapping[str, str | os.PathLike[str]],
    ) -> Self:
        """The tables at these paths by the names of the tables: files, folders of partitions, globs
        or fsspec URLs.
        """
        files = {
            table: [
                replace(file, format=census.formats.get(table))
                for file in input_files(table, os.fspath(path))
            ]
            for table, path in paths.items()
        }
        return cls(census, schemas, refuse_shared(files))

    @property
    def records(self) -> Mapping[str, tuple[InputFile, ...]]:
        """By universe that is counted, the files of its records."""
        return {
            name: self.files[self.census.universes[name].declared.table]
            for name in _needed(self.census, self.schemas)
        }

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables in the order in which they are read."""
        found = [self.census.geography.table]
        for universe in (self.census.universes[name] for name in self.records):
            found += [step.table for step in reversed(universe.declared.steps)]
            found += [one.table for one in universe.declared.occupants.values()]
            found.append(universe.declared.table)
        return tuple(dict.fromkeys(found))

    def check(
        self, count: Callable[[ValueTally], Counted] | None = None
    ) -> InputCheck[CensusInput]:
        """Read the tables, evaluate every rule and count all records.

        The rules are counted by vectorised code and, as a public pass or fail, evaluated by Great
        Expectations; the input is accepted only if both find nothing. The division of a table's
        rows into files affects only the file that a finding names. Large arrays go to temporary
        files (`columns.temporary_files_in`), which hold confidential rows. `count` gives the counts
        of tables that other tasks have read, and adds their evidence; see `check_shares`.
        """
        evidence = ValueTally()
        try:
            before, counted = (count or self.count)(evidence)
        except UnreadableInput as error:
            earlier = takewhile(error.table.__ne__, self.tables)
            outcomes = (*(readable(name, True) for name in earlier), readable(error.table, False))
            return InputCheck(outcomes, (error.finding,), None, evidence.files.names)
        rules = self.rules(before, counted, evidence)
        read_all = [readable(name, True) for name in self.tables]
        return evidence.checked(rules, self.files, read_all, lambda: self.result(before, counted))

    def count(self, evidence: ValueTally) -> Counted:
        """Read the tables to which records refer, and count all records; raises UnreadableInput."""
        before, counted = self.read_before(evidence), dict[str, RecordCounter]()
        for name in self.records:
            counted[name], files = self.counter(before, name, evidence)
            count_files(counted[name], files, evidence)
        return before, counted

    def read_referred(self) -> ReferredShare:
        """Read the tables to which records refer, for several tasks; raises UnreadableInput."""
        evidence = ValueTally()
        return self.read_before(evidence), evidence

    def count_share(self, referred: ReferredShare, share: Share) -> RecordShare:
        """Count a share of the records of every universe: row groups of local Parquet files, or
        whole files; raises UnreadableInput."""
        evidence, counted = ValueTally(), dict[str, CountedShare]()
        for name in self.records:
            counter, files = self.counter(referred[0], name, evidence)
            count_files(counter, files, evidence, share)
            counted[name] = counter.share()
        return counted, evidence

    def check_shares(
        self, referred: ReferredShare, shares: Sequence[RecordShare]
    ) -> InputCheck[CensusInput]:
        """Check an input of which all shares are counted, in the order of their numbers; it decides
        as one reader does."""
        before, evidence_before = referred

        def count(evidence: ValueTally) -> Counted:
            evidence.add_shares([evidence_before])
            evidence.add_shares([of_share for _, of_share in shares])
            counted, read = dict[str, RecordCounter](), evidence.files.files
            for name in self.records:
                counted[name], files = self.counter(before, name, evidence)
                for of_universe, _ in shares:
                    counted[name].add_share(of_universe[name])
                refuse_empty(files, sum(read[file.path].n_rows or 0 for file in files))
            return before, counted

        return self.check(count)

    def public_tables(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the areas and the public facts about each; records are read only for universes
        that scale bounds.

        Raises InputRefused for tables that break a rule, with counts only on request.
        """
        universes = self.census.universes
        bounds = [bound for name in self.schemas for bound in universes[name].bounds]
        # Rules on these records alone are checked by their own run.
        alone = {
            name: replace(universe, bounds=(), relations=(), held=())
            for name, universe in universes.items()
        }
        per = {bound.per: self._schema(bound.per) for bound in bounds}
        census = replace(self.census, universes=alone)
        tables = replace(self, census=census, schemas=per, is_recognised=False)
        found = tables.check().accepted(with_counts=with_counts)
        return found.geography, _public_facts(found.areas, self._multiples(found.histograms))

    def public_geography(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the input of spines: the table of areas alone, and an empty frame; the public
        tables, where areas without an address are in no spine.

        Raises InputRefused for areas that break a rule, with counts only on request.
        """
        if self.census.follows_block_rules:
            return self.public_tables(with_counts=with_counts)
        alone = replace(self, schemas={}, is_recognised=False)
        return alone.check().accepted(with_counts=with_counts).geography, pd.DataFrame()

    def read_before(self, evidence: ValueTally) -> ReferredTables:
        """Read the areas, and the tables to which the records of each universe refer.

        Raises UnreadableInput.
        """
        declared, ways = self.census.geography, dict[str, AreaLookup]()
        further = needed_columns(declared, self.census.declared.tables)
        table = self.files[declared.table]
        areas = load_areas(table, declared, evidence, further)
        for name in self.records:
            universe = self.census.universes[name]
            refuse_alike(areas, name, universe.declared.area_columns, table[0])
            tables = UniverseTables(universe, self.files, evidence)
            ways[name] = tables.read_ways(areas, self._on_the_way(name))
            tables.tally_contributions()
        return ReferredTables(areas, ways)

    def counter(
        self, before: ReferredTables, universe: str, evidence: ValueTally
    ) -> tuple[RecordCounter, tuple[InputFile, ...]]:
        """Return the counter of a universe's records, and their files."""
        compiled = self.census.universes[universe]
        counter = UniverseCounter(
            compiled,
            self._schema(universe),
            before.ways[universe],
            len(before.areas),
            self._recognised(universe),
        )
        own = self.files[compiled.declared.table]
        return counter, shaped(own, counter.texts, counter.keys, evidence)

    def _recognised(self, universe: str) -> tuple[str, ...]:
        """The raw columns of a universe's records, including those computed for units from
        members."""
        if not self.is_recognised:
            return ()
        compiled = self.census.universes[universe]
        columns, declared = identity_columns(compiled, self._schema(universe)), compiled.declared
        members = self.census.declared.members.get(declared.table)
        is_told = members is not None and members.table in self.files and not declared.identity
        return tuple(dict.fromkeys((*columns, *(UNIT_COLUMNS if is_told else ()))))

    def _on_the_way(self, universe: str) -> tuple[str, ...]:
        """The columns of tables on the way by which their rows are recognised."""
        compiled = self.census.universes[universe]
        if compiled.declared.identity or not self.is_recognised:
            return ()
        tables = {one.declared.table for one in self.census.universes.values()}
        return way_columns(compiled, tables - {self.census.geography.table})

    def _beside(self, before: ReferredTables, universe: str) -> list[RecordColumn]:
        """The raw columns of the tables that a universe's records refer to, and of the rows that
        refer to them, which are read once more: occupants, and members of units.
        """
        compiled, ways = self.census.universes[universe], before.ways[universe]
        declared = compiled.declared
        if declared.identity or not self.is_recognised:
            return []
        found = ways.raw.columns()
        referring = [
            (path.table, path.found_by, path.references[0], occupant_columns(path))
            for path in compiled.occupant_paths.values()
        ]
        if members := self.census.declared.members.get(declared.table):
            referring.append((members.table, members.key, members.key, OF_MEMBERS))
        for table, key, column, names in referring:
            if not names or table not in self.files:
                continue
            place, unread = ways.place, ValueTally()
            if isinstance(place, ByTable):
                place = replace(place, joined=replace(place.joined, columns={}))
            own = shaped(self.files[declared.table], place.texts, (key, *place.keys), unread)
            records = read_joined(own, key, {}, place, unread)
            files = shaped(self.files[table], names, (column,), unread)
            of_area = ByTable(column, records)
            found += read_columns(files, names, of_area, len(before.areas))
        return found

    def _schema(self, universe: str) -> Schema:
        return self.schemas.get(universe, self.census.universes[universe].schema)

    def rules(
        self, before: ReferredTables, counted: Mapping[str, RecordCounter], evidence: ValueTally
    ) -> Sequence[Rule]:
        """The rules on tables that have been read, with evidence for each.

        Bounds and relations of areas are asked once every row meets its own rules: one that does
        not may be in no count, and areas would break them for its want.
        """
        for name, of_universe in counted.items():
            tables = UniverseTables(self.census.universes[name], self.files, evidence)
            tables.tally_counted(before.ways[name], of_universe)
        columns = before.areas.columns
        rules = declared_rules(self.census, list(counted), columns, evidence.suites)
        if not any(count_violations(rule, evidence.suites) for rule in rules):
            counts = {name: of_universe.totals[name] for name, of_universe in counted.items()}
            self._tally_constraints(counts, evidence)
            rules = declared_rules(self.census, list(counted), columns, evidence.suites)
        return rules

    def result(self, before: ReferredTables, counted: Mapping[str, RecordCounter]) -> CensusInput:
        """The input that has met every rule."""
        areas, census = before.areas, self.census
        counts = {name: of_universe.totals[name] for name, of_universe in counted.items()}
        histograms = {name: counts[name] for name in self.schemas}
        multiples = self._multiples(counts)
        totals = {
            name: invariant_totals(census.universes[name], schema, areas, histograms[name])
            for name, schema in self.schemas.items()
        }
        known = {
            name: min(int(sum(map(np.sum, exact.values()))) for exact in of_universe.values())
            for name, of_universe in totals.items()
            if of_universe
        }
        return CensusInput(
            areas,
            _public_facts(areas, multiples),
            histograms,
            totals,
            known,
            max((int(histogram.sum()) for histogram in histograms.values()), default=0),
            {
                name: [*of_universe.raw.columns(), *self._beside(before, name)]
                for name, of_universe in counted.items()
            },
            {name: partial(_cells_digest, name, areas, own) for name, own in histograms.items()},
            lambda: [units.number for units in areas.units.values()],
            multiples,
            {},
        )

    def _multiples(
        self, counts: Mapping[str, sparse.csr_array]
    ) -> dict[tuple[str, int], np.ndarray]:
        """`multiples_of` by universe and number of the bound."""
        return {
            (name, number): multiples_of(bound, schema, self._schema(bound.per), counts[bound.per])
            for name, schema in self.schemas.items()
            for number, bound in enumerate(self.census.universes[name].bounds)
        }

    def _tally_constraints(
        self, counts: Mapping[str, sparse.csr_array], evidence: ValueTally
    ) -> None:
        """Record in the evidence whether each area meets each bound and relation."""
        multiples = self._multiples(counts)
        for name, schema in self.schemas.items():
            universe = self.census.universes[name]
            for number, bound in enumerate(universe.bounds):
                where = bound.where
                rows = counted_rows(schema, schema, bound.query, where, where)
                answers = (counts[name] @ rows).toarray()
                n = multiples[name, number]
                broken = np.zeros(len(n), dtype=bool)
                if bound.at_least is not None:
                    broken |= (answers < bound.at_least * n).any(axis=1)
                if bound.at_most is not None:
                    broken |= (answers > bound.at_most * n).any(axis=1)
                evidence.add_mask(name, f"area_outside_bound_{number}", broken)
            for relation in universe.relations:
                left = counts[name] @ relation.own
                for side in relation.others:
                    left = left + counts[side.universe] @ side.weights
                broken = {"=": left != 0, "<=": left > 0, ">=": left < 0}[relation.sign]
                evidence.add_mask(name, f"breaks_{relation.name}", broken)
            for held in universe.held_to_universes:
                other = self._schema(held.universe)
                theirs = counted_rows(schema, other, held.query, held.where, held.of)
                own = counted_rows(schema, schema, held.query, held.where, held.where)
                differs = abs(counts[name] @ own - counts[held.universe] @ theirs)
                broken = np.asarray(differs.sum(axis=1)).ravel() > 0
                evidence.add_mask(name, f"breaks_{held.name}", broken)


def _public_facts(areas: Areas, multiples: Mapping[tuple[str, int], np.ndarray]) -> pd.DataFrame:
    """Public facts about every area: its path, and a column for each number of records."""
    columns = {
        f"{universe}/{number}/{row}": values[:, row]
        for (universe, number), values in multiples.items()
        for row in range(values.shape[1])
    }
    return pd.DataFrame({"block_geocode": areas.frame["block_geocode"], **columns})


def _cells_digest(
    universe: str, areas: Areas, histogram: sparse.csr_array, key: bytes
) -> InputDigest:
    """The digest of a universe's cells by the paths of areas."""
    paths = areas.frame["block_geocode"].to_numpy(dtype=object).astype(str)
    rows = np.repeat(np.arange(len(paths)), np.diff(histogram.indptr))
    columns = {"area": paths[rows], "cell": histogram.indices, "records": histogram.data}
    return input_digest(universe, columns, key)


def read_people(tables: CensusTables, universe: str) -> People:
    """The people of a universe from tables that have passed their checks.

    Those who refer to the same row of the table on the way to their area, such as a housing unit,
    are in one household.
    """
    evidence = ValueTally()
    before = tables.read_before(evidence)
    counter, files = tables.counter(before, universe, evidence)
    parts = [[np.empty(0, dtype=np.int64)] * 3]

    def listed(area: np.ndarray, cell: np.ndarray, row: np.ndarray, count: np.ndarray) -> None:
        parts.append([np.repeat(part, count.astype(np.int64)) for part in (area, cell, row)])

    counter.listed = listed
    count_files(counter, files, evidence)
    return People(*map(np.concatenate, zip(*parts, strict=True)))


def _needed(census: Census, schemas: Mapping[str, Schema]) -> list[str]:
    """Universes that are counted: the run's own, and whichever their bounds are per or their
    relations name.
    """
    needed = set(schemas)
    for name in schemas:
        universe = census.universes[name]
        needed |= {bound.per for bound in universe.bounds}
        needed |= {*universe.needs}
    return [name for name in census.universes if name in needed]


def multiples_of(
    bound: Bound, schema: Schema, per: Schema, records: sparse.csr_array
) -> np.ndarray:
    """Records `(n_areas, n_rows)` of the other universe that each answer's bounds multiply.

    Answers without a cell of the bound have 0.
    """
    query = marginal_query(schema, bound.query)
    bounded = query.rows_of(schema.cells_where(bound.where))
    is_bounded = np.isin(np.arange(query.n_rows), bounded)
    if bound.by is None:
        total = np.asarray(records.sum(axis=1)).reshape(-1, 1)
        return total * is_bounded
    return (records @ marginal_query(per, bound.by).matrix.T).toarray() * is_bounded


def invariant_totals(
    universe: Universe, schema: Schema, areas: Areas, records: sparse.csr_array
) -> dict[str, dict[str, np.ndarray]]:
    """The answers of every geounit, by its path, to each invariant query."""
    found = {}
    for invariant in universe.invariants:
        units = areas.units[invariant.geolevel]
        answers = (records @ marginal_query(schema, invariant.query).matrix.T).toarray()
        sums = np.zeros((len(units.path), answers.shape[1]), dtype=np.int64)
        np.add.at(sums, units.number, answers)
        found[invariant.name] = dict(zip(units.path.tolist(), sums, strict=True))
    return found


def read_multiples(frame: pd.DataFrame, universe: str, number: int) -> np.ndarray:
    """Read the numbers of one bound from `CensusInput.public`, `(n_areas, n_rows)`."""
    prefix = f"{universe}/{number}/"
    names = [name for name in frame.columns if name.startswith(prefix)]
    names.sort(key=lambda name: int(name.rpartition("/")[2]))
    return frame[names].to_numpy(dtype=np.int64)
