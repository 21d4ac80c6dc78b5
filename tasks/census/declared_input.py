"""The input of a declared census: read, checked against every declaration, and counted.

The rules are made from the declaration: every code has a level, every record an area, structural
zeros are empty, and bounds and relations hold in every area. Public by declaration are the areas,
the numbers of records that bounds multiply, and the invariant answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from ...validation.expectations import readable
from ...validation.rules import count_violations
from ..ledger.recognition import InputDigest, RecordColumn, input_digest, people_digests
from ..tables.findings import Finding, InputCheck, UnreadableInput
from ..tables.sources import InputFile, input_files, refuse_shared
from .areas import Areas, load_areas, needed_columns, refuse_alike, shaped
from .attribute_declarations import Where
from .census import Bound, Census, Universe
from .counting import Counted, Unreadable, check_whole, identity_columns, read_columns
from .evidence import EvidenceTally
from .households import UNIT_COLUMNS
from .joins import ByTable, read_joined
from .members import OF_MEMBERS
from .queries import counted_rows, marginal_query
from .records import (
    AreaLookup,
    CodeTally,
    UniverseCounter,
    declared_rules,
    notes,
    occupant_columns,
    read_ways,
    tally_contributions,
    tally_counted,
    way_columns,
)
from .schema import Schema


@dataclass(frozen=True, eq=False)
class DeclaredInput:
    """The input of a run; rows are in the order of the areas.

    histograms : by universe of the run, int64 counts `(n_areas, n_cells)`; confidential.
    multiples : by universe and number of the bound, `(n_areas, n_rows)` records per row of the
        bounded query; public by declaration.
    totals : by universe and invariant, the answers `(n_rows,)` of every geounit by its path.
    raw : by universe that was counted, the columns by which the ledger recognises it and the tables
        that it refers to or that refer to it; confidential.
    """

    areas: Areas
    histograms: Mapping[str, sparse.csr_array]
    multiples: Mapping[tuple[str, int], np.ndarray]
    totals: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    raw: Mapping[str, Sequence[RecordColumn]]

    @property
    def geography(self) -> pd.DataFrame:
        """The areas."""
        return self.areas.frame

    @property
    def public(self) -> pd.DataFrame:
        """Public facts about every area: its path, and a column for each number of records."""
        columns = {
            f"{universe}/{number}/{row}": values[:, row]
            for (universe, number), values in self.multiples.items()
            for row in range(values.shape[1])
        }
        return pd.DataFrame({"block_geocode": self.geography["block_geocode"], **columns})

    @property
    def n_records(self) -> int:
        """The number of records of the largest universe."""
        return max(int(histogram.sum()) for histogram in self.histograms.values())

    def known_records(self, universe: str) -> int | None:
        """The number of a universe's records, as far as its invariants determine it."""
        totals = self.totals[universe].values()
        return min((int(sum(map(np.sum, exact.values()))) for exact in totals), default=None)

    def exact(self, *, areas_alone: bool) -> Mapping[str, Any]:
        """Totals that are released exactly, as a file in JSON has them; where areas are estimated
        alone, they stay facts of the input.
        """
        return {
            universe: {
                name: {path: values.tolist() for path, values in answers.items()}
                for name, answers in found.items()
            }
            for universe, found in self.totals.items()
        }

    def digests(self, key: bytes) -> dict[str, InputDigest]:
        """Keyed digests by which the ledger recognises the records again.

        The digest of a whole universe is that of its cells by path, for compatibility with older
        ledgers; the others are of its raw columns.
        """
        levels = [units.number for units in self.areas.units.values()]
        paths = self.areas.frame["block_geocode"].to_numpy(dtype=object).astype(str)
        digests = {}
        # Universes that are counted but not run are recognised with the first universe of the run.
        beside = [own for name, own in self.raw.items() if name not in self.histograms]
        raw = {name: [*self.raw[name]] for name in self.histograms}
        for own in beside:
            next(iter(raw.values())).extend(own)
        for universe, histogram in self.histograms.items():
            rows = np.repeat(np.arange(len(paths)), np.diff(histogram.indptr))
            columns = {"area": paths[rows], "cell": histogram.indices, "records": histogram.data}
            people = people_digests(raw[universe], levels, key)
            digests[universe] = input_digest(universe, columns, key).recognised_by(people)
        return digests


@dataclass(frozen=True, eq=False)
class ReferredTables:
    """Tables to which records refer: the areas, and the paths of each universe's records to
    them."""

    areas: Areas
    ways: Mapping[str, AreaLookup]


@dataclass(frozen=True, eq=False)
class DeclaredTables:
    """The tables of a declared census; see `tasks.census.counting.CensusReading`.

    `ahead` is called with the result of a check while that is judged. Columns that are not
    recognised have no raw columns. `codes` collects the values of columns for the notes of a check;
    without it there are no notes.
    """

    census: Census
    schemas: Mapping[str, Schema]
    files: Mapping[str, tuple[InputFile, ...]]
    ahead: Callable[[DeclaredInput], object] | None = None
    is_recognised: bool = True
    codes: CodeTally | None = None

    @classmethod
    def of(
        cls, census: Census, schemas: Mapping[str, Schema], paths: Mapping[str, str]
    ) -> DeclaredTables:
        """The tables at these paths by the names of the tables: files, folders of partitions, globs
        or fsspec URLs.
        """
        files = {
            name: tuple(
                replace(file, format=census.formats.get(name)) for file in input_files(name, path)
            )
            for name, path in paths.items()
        }
        return cls(census, schemas, refuse_shared(files))

    @property
    def records(self) -> Mapping[str, tuple[InputFile, ...]]:
        """By universe that is counted, the files of its records."""
        return {
            name: self.files[self.census.universes[name].declared.table]
            for name in _needed(self.census, self.schemas)
        }

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
        per = {bound.per: universes[bound.per].schema for bound in bounds}
        census = replace(self.census, universes=alone)
        tables = replace(self, census=census, schemas=per, is_recognised=False)
        found = check_whole(tables).accepted(with_counts=with_counts)
        multiples = _multiples(self.census, self.schemas, per, found.histograms)
        return found.areas.frame, replace(found, multiples=multiples).public

    def public_geography(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the input of spines: the table of areas alone, and an empty frame.

        Raises InputRefused for areas that break a rule, with counts only on request.
        """
        found = check_whole(replace(self, schemas={}, is_recognised=False)).accepted(
            with_counts=with_counts
        )
        return found.areas.frame, pd.DataFrame()

    def read_before(
        self, evidence: EvidenceTally, scratch: Path | None
    ) -> ReferredTables | Unreadable:
        """Read the areas, and the tables to which the records of each universe refer."""
        declared, subject, ways = self.census.geography, "", dict[str, AreaLookup]()
        further = needed_columns(declared, self.census.tables)
        try:
            areas = load_areas(self.files[declared.table], declared, evidence, further)
            for subject in self.records:
                universe = self.census.universes[subject]
                table = self.files[declared.table][0]
                refuse_alike(areas, subject, universe.area_columns, table)
                ways[subject] = read_ways(
                    self.files, universe, areas, evidence, scratch, self._on_the_way(subject)
                )
                tally_contributions(self.files, universe, evidence, scratch)
        except UnreadableInput as error:
            return Unreadable(subject, error.finding)
        return ReferredTables(areas, ways)

    def counter(
        self, before: ReferredTables, universe: str, scratch: Path | None, evidence: EvidenceTally
    ) -> tuple[UniverseCounter, tuple[InputFile, ...]]:
        """Return the counter of a universe's records, and their files."""
        compiled = self.census.universes[universe]
        counter = UniverseCounter(
            compiled,
            self._schema(universe),
            before.ways[universe],
            len(before.areas),
            scratch,
            recognised=self._recognised(universe),
            codes=self.codes,
        )
        own = self.files[compiled.declared.table]
        return counter, shaped(own, counter.texts, counter.keys, evidence)

    def unreadable(
        self, subject: str, finding: Finding, before: Sequence[str] = ()
    ) -> InputCheck[DeclaredInput]:
        """The check that ended at a universe, or at the areas (""), after those `before`."""
        geography, universes = self.census.geography.table, self.census.universes
        read = [universes[name].declared.table for name in before]
        if subject:
            read.insert(0, geography)
        # Tables to which records refer are read with them.
        first = universes[subject].declared.table if subject else geography
        named = [name for name, own in self.files.items() if finding.file in {f.name for f in own}]
        unread = first if first in named or not named else named[0]
        outcomes = [readable(name, True) for name in dict.fromkeys(read) if name != unread]
        return InputCheck((*outcomes, readable(unread, False)), (finding,), None)

    def _recognised(self, universe: str) -> tuple[str, ...]:
        """The raw columns of a universe's records, including those computed for units from
        members."""
        if not self.is_recognised:
            return ()
        compiled = self.census.universes[universe]
        columns, declared = identity_columns(compiled, self._schema(universe)), compiled.declared
        members = self.census.members.get(declared.table)
        is_told = members is not None and members.table in self.files and not declared.identity
        return tuple(dict.fromkeys((*columns, *(UNIT_COLUMNS if is_told else ()))))

    def _on_the_way(self, universe: str) -> tuple[str, ...]:
        """The columns of tables on the way by which their rows are recognised."""
        compiled = self.census.universes[universe]
        if compiled.declared.identity or not self.is_recognised:
            return ()
        tables = {one.declared.table for one in self.census.universes.values()}
        return way_columns(compiled, tables - {self.census.geography.table})

    def _beside(
        self, before: ReferredTables, universe: str, scratch: Path | None
    ) -> list[RecordColumn]:
        """The raw columns of the tables that a universe's records refer to, and of the rows that
        refer to them, which are read once more: occupants, and members of units.
        """
        compiled, ways = self.census.universes[universe], before.ways[universe]
        declared = compiled.declared
        if declared.identity or not self.is_recognised:
            return []
        found = ways.raw.columns()
        referring = [
            (way.table, way.found_by, way.references[0], occupant_columns(way))
            for way in compiled.occupant_ways.values()
        ]
        if members := self.census.members.get(declared.table):
            referring.append((members.table, members.key, members.key, OF_MEMBERS))
        for table, key, column, names in referring:
            if not names or table not in self.files:
                continue
            place, unread = ways.place, EvidenceTally()
            if isinstance(place, ByTable):
                place = replace(place, joined=replace(place.joined, columns={}))
            own = shaped(self.files[declared.table], place.texts, (key, *place.keys), unread)
            records = read_joined(own, key, {}, place, lambda *_: None, scratch)
            files = shaped(self.files[table], names, (column,), unread)
            of_area = ByTable(column, records)
            found += read_columns(files, names, of_area, len(before.areas), scratch)
        return found

    def _schema(self, universe: str) -> Schema:
        return self.schemas.get(universe, self.census.universes[universe].schema)

    def put_together(
        self,
        before: ReferredTables,
        counted: Mapping[str, Counted],
        evidence: EvidenceTally,
        scratch: Path | None,
    ) -> InputCheck[DeclaredInput]:
        """The check of tables that have been read: every rule is evaluated on the evidence.

        Bounds and relations of areas are asked once every row meets its own rules: one that does
        not may be in no count, and areas would break them for its want.
        """
        for name, of_universe in counted.items():
            universe = self.census.universes[name]
            tally_counted(universe, before.ways[name], of_universe, evidence, scratch)
        areas = before.areas
        census, schemas = self.census, self.schemas
        read = [readable(census.geography.table, True)]
        read += [readable(census.universes[name].declared.table, True) for name in counted]
        counts = {name: of_universe.totals[name] for name, of_universe in counted.items()}
        counted_schemas = {name: self._schema(name) for name in counts}
        multiples = _multiples(census, schemas, counted_schemas, counts)
        rules = declared_rules(census, list(counts), areas.columns, evidence.suites)
        if not any(count_violations(rule, evidence.suites) for rule in rules):
            _tally_constraints(census, schemas, counted_schemas, counts, multiples, evidence)
            rules = declared_rules(census, list(counts), areas.columns, evidence.suites)

        def build() -> DeclaredInput:
            histograms = {name: counts[name] for name in schemas}
            totals = {
                name: invariant_totals(
                    census.universes[name], schemas[name], areas, histograms[name]
                )
                for name in schemas
            }
            columns = {
                name: [*of_universe.raw, *self._beside(before, name, scratch)]
                for name, of_universe in counted.items()
            }
            return DeclaredInput(areas, histograms, multiples, totals, columns)

        check = evidence.checked(rules, self.files, read, build, self.ahead)
        if check.result is None or self.codes is None:
            return check
        found = [
            note
            for name, schema in schemas.items()
            for note in notes(census.universes[name], schema, counts[name], self.codes)
        ]
        return replace(check, notes=tuple(found))


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
    is_bounded = np.isin(
        np.arange(query.n_rows), query.row_of_cell[schema.cells_where(bound.where)]
    )
    if bound.by is None:
        total = np.asarray(records.sum(axis=1)).reshape(-1, 1)
        return total * is_bounded
    return (records @ marginal_query(per, bound.by).matrix.T).toarray() * is_bounded


def _multiples(
    census: Census,
    schemas: Mapping[str, Schema],
    counted_schemas: Mapping[str, Schema],
    counts: Mapping[str, sparse.csr_array],
) -> dict[tuple[str, int], np.ndarray]:
    """`multiples_of` by universe and number of the bound; `counted_schemas` are of `counts`."""
    return {
        (name, number): multiples_of(bound, schema, counted_schemas[bound.per], counts[bound.per])
        for name, schema in schemas.items()
        for number, bound in enumerate(census.universes[name].bounds)
    }


def _tally_constraints(
    census: Census,
    schemas: Mapping[str, Schema],
    counted_schemas: Mapping[str, Schema],
    counts: Mapping[str, sparse.csr_array],
    multiples: Mapping[tuple[str, int], np.ndarray],
    evidence: EvidenceTally,
) -> None:
    """Record in the evidence whether each area meets each bound and relation; `counted_schemas` are
    those of `counts`."""
    for name, schema in schemas.items():
        universe = census.universes[name]
        for number, bound in enumerate(universe.bounds):
            answers = asked_answers(schema, bound.query, bound.where, counts[name]).toarray()
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
        for held in universe.held_beside:
            theirs = counted_rows(
                schema, counted_schemas[held.universe], held.query, held.where, held.of
            )
            own = asked_answers(schema, held.query, held.where, counts[name])
            differs = abs(own - counts[held.universe] @ theirs)
            broken = np.asarray(differs.sum(axis=1)).ravel() > 0
            evidence.add_mask(name, f"breaks_{held.name}", broken)


def asked_answers(
    schema: Schema, query: str, where: Where, records: sparse.csr_array
) -> sparse.csr_array:
    """Answers `(n_areas, n_rows)` to a query, of some of its cells."""
    inside = schema.cells_where(where).astype(np.int64)
    matrix = marginal_query(schema, query).matrix.T.multiply(inside[:, None])
    return records @ sparse.csr_array(matrix)


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
    """Read the numbers of one bound from `DeclaredInput.public`, `(n_areas, n_rows)`."""
    prefix = f"{universe}/{number}/"
    names = [name for name in frame.columns if name.startswith(prefix)]
    names.sort(key=lambda name: int(name.rpartition("/")[2]))
    return frame[names].to_numpy(dtype=np.int64)
