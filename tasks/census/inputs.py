"""The input of a run: read, checked, and turned into histograms and invariants in one pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from ...validation.census.input_rules import applicable_rules
from ...validation.expectations import readable
from ..ledger.digests import InputDigest, block_counts_digest
from ..ledger.recognition import RecordColumn, people_digests
from ..tables.findings import Finding, InputCheck, UnreadableInput, refusal
from ..tables.mapped import zeros
from ..tables.sources import InputFile, input_files
from .cef_2020 import CENSUS, IDENTITY_COLUMNS, PERSONS, UNITS
from .census import Census
from .counting import Counted
from .evidence import EvidenceTally
from .histograms import HistogramSum, block_levels, counties_of, numbers_of
from .invariants import block_invariants, state_totals
from .joins import JoinedTable
from .partitions import (
    Unreadable,
    check_whole,
    keep_facts,
    keep_frame,
    keep_table,
    kept_facts,
    kept_frame,
    kept_table,
)
from .schema import Schema
from .tables import (
    IDENTITY,
    PersonCounter,
    load_geography,
    load_units,
    recognised_columns,
    tally_empty_facilities,
    unit_codes,
)

_UNITS_AT_ONCE = 1 << 20
_TABLES = ("geography", "units", "persons")
"""The tables in the order in which they are read."""


@dataclass(frozen=True)
class IngestResult:
    """What a run needs of its input; rows of all members are in the order of `geography`.

    `histograms` maps a universe to int64 counts, shape `(n_blocks, n_cells)`. Blocks that can
    hold nobody are included; see `tasks.census.invariants.inhabitable`.
    """

    geography: pd.DataFrame
    invariants: pd.DataFrame
    state_totals: Mapping[str, int]
    histograms: Mapping[str, sparse.csr_array]
    identity: sparse.csr_array
    """Persons per block and cell of `tasks.census.tables.IDENTITY`."""
    unit_block: np.ndarray
    """Position of the block of every unit, shape `(n_units,)`."""
    unit_population: np.ndarray
    """Persons of every unit, shape `(n_units,)`."""
    raw: Sequence[RecordColumn]
    """The raw columns of persons and units that were read, by block."""

    @property
    def public(self) -> pd.DataFrame:
        """What is public of every block."""
        return self.invariants

    @property
    def n_records(self) -> int:
        """The number of persons."""
        return sum(self.state_totals.values())

    def known_records(self, universe: str) -> int:
        """The number of a universe's records, which invariants tell."""
        return int(self.histograms[universe].sum())

    def exact(self, *, areas_alone: bool) -> Mapping[str, int]:
        """Totals that are released exactly; where blocks are estimated alone, and where persons are
        not counted, there are none.
        """
        return {} if areas_alone or "persons" not in self.histograms else self.state_totals

    def digests(self, key: bytes) -> dict[str, InputDigest]:
        """Keyed digests by which the ledger recognises these people and housing units again."""
        geocode = numbers_of(self.geography["block_geocode"])
        tables = {"persons": (IDENTITY_COLUMNS, self.identity, IDENTITY.shape[1:])}
        if "units" in self.histograms:
            names = ("block_geocode", "cell", "units")
            tables["units"] = (names, self.histograms["units"], ())
        digests = {
            kind: block_counts_digest(
                kind, names, counties_of(geocode, table, shape), table.nnz, key
            )
            for kind, (names, table, shape) in tables.items()
        }
        people = people_digests(self.raw, block_levels(geocode), key)
        return digests | {"persons": digests["persons"].recognised_by(people)}


def check_inputs(
    *,
    persons: str | os.PathLike[str],
    units: str | os.PathLike[str],
    geography: str | os.PathLike[str],
    person_schema: Schema | None = PERSONS,
    unit_schema: Schema | None = UNITS,
    names: Mapping[str, str] | None = None,
    scratch: Path | None = None,
) -> InputCheck[IngestResult]:
    """Read the three tables, evaluate every rule and build the result.

    A path is that of a file, of a folder of partitions, a glob, or an fsspec URL. `names` gives the
    name that messages show for a table in one file, by default its path;
    `names={"persons": "persons.parquet"}` for example. A universe whose schema is None gets no
    histogram. The rules are counted by vectorised code and, as a public pass or fail, evaluated by
    Great Expectations; the input is accepted only if both find nothing. How the rows of a table are
    spread over its files decides nothing but which of them a finding names. What is large is kept
    in temporary files in the folder `scratch`, by default the system's; they hold confidential
    rows.
    """
    paths = {"geography": geography, "units": units, "persons": persons}
    reading = CefTables(table_files(paths, names), person_schema, unit_schema)
    return check_whole(reading, scratch)


@dataclass(frozen=True, eq=False)
class Addresses:
    """What persons refer to: the units, and the number of blocks with their frame, which is read
    where it is asked for.
    """

    units: JoinedTable
    n_blocks: int
    geography: Callable[[], pd.DataFrame]


@dataclass(frozen=True, eq=False)
class CefTables:
    """The tables of the Census Edited File; see `tasks.census.partitions.CensusReading`.

    `ahead` is called with the result of a check while that is judged.
    """

    files: Mapping[str, tuple[InputFile, ...]]
    person_schema: Schema | None
    unit_schema: Schema | None
    ahead: Callable[[IngestResult], object] | None = None

    @property
    def census(self) -> Census:
        """The census that declares them."""
        return CENSUS

    @property
    def records(self) -> Mapping[str, tuple[InputFile, ...]]:
        """Persons alone are counted in parts."""
        return {"persons": self.files["persons"]}

    def read_before(self, evidence: EvidenceTally, scratch: Path | None) -> Addresses | Unreadable:
        """Read geography and units."""
        table = "geography"
        try:
            blocks = load_geography(self.files[table], evidence, scratch)
            table = "units"
            units = load_units(self.files[table], blocks, evidence, scratch)
        except UnreadableInput as error:
            return Unreadable(table, error.finding)
        return Addresses(units, len(blocks.frame), lambda: blocks.frame)

    def keep(self, before: Addresses, folder: Path) -> None:
        """Keep geography and units in a folder."""
        keep_table(folder / "units", before.units)
        keep_frame(folder / "geography.parquet", before.geography())
        keep_facts(folder / "n_blocks.json", before.n_blocks)

    def kept(self, folder: Path) -> Addresses:
        """What `keep` kept."""
        units, n_blocks = kept_table(folder / "units"), kept_facts(folder / "n_blocks.json")
        return Addresses(units, n_blocks, lambda: kept_frame(folder / "geography.parquet"))

    def counter(
        self, before: Addresses, universe: str, scratch: Path | None, evidence: EvidenceTally
    ) -> tuple[PersonCounter, tuple[InputFile, ...]]:
        """What counts persons, or a part of them, and their files."""
        counter = PersonCounter(before.units, before.n_blocks, self.person_schema, scratch)
        return counter, self.files[universe]

    def unreadable(
        self, subject: str, finding: Finding, before: Sequence[str] = ()
    ) -> InputCheck[IngestResult]:
        """The check that ended at a table that cannot be read; the tables before it could be."""
        read = (readable(name, True) for name in _TABLES[: _TABLES.index(subject)])
        return InputCheck((*read, readable(subject, False)), (finding,), None)

    def public_tables(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The geography frame and what is public of every block; no person is read.

        Raises InputRefused for tables that break a rule, with counts only if asked for.
        """
        evidence = EvidenceTally()
        before = self.read_before(evidence, None)
        if isinstance(before, Unreadable):
            raise refusal([before.finding], with_counts=with_counts)
        if findings := evidence.findings(applicable_rules(evidence.suites), self.files):
            raise refusal(findings, with_counts=with_counts)
        geography, units = before.geography(), before.units
        kind, _ = unit_counts(geography, units, None, None)
        return geography, block_invariants(geography["block_geocode"], units.area, kind)

    def public_geography(self, *, with_counts: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
        """What spines are built of: the public tables, since blocks without an address are in none.

        Raises InputRefused as `public_tables`.
        """
        return self.public_tables(with_counts=with_counts)

    def put_together(
        self,
        before: Addresses,
        counted: Mapping[str, Counted],
        evidence: EvidenceTally,
        scratch: Path | None,
    ) -> InputCheck[IngestResult]:
        """The check of tables that have been read: every rule is evaluated on the evidence."""
        units, persons = before.units, counted["persons"]
        evidence.files.add_formats(file for files in self.files.values() for file in files)
        tally_empty_facilities(evidence, units, persons.references)
        rules, read = applicable_rules(evidence.suites), [readable(name, True) for name in _TABLES]

        def build() -> IngestResult:
            geography = before.geography()
            kind, occupied = unit_counts(geography, units, self.unit_schema, scratch)
            histograms: dict[str, sparse.csr_array] = {}
            if self.person_schema:
                histograms["persons"] = persons.totals["histogram"]
            if occupied is not None:
                histograms["units"] = occupied
            geocode, identity = geography["block_geocode"], persons.totals["identity"]
            return IngestResult(
                geography=geography,
                invariants=block_invariants(geocode, units.area, kind),
                state_totals=state_totals(geocode, identity.sum(axis=1)),
                histograms=histograms,
                identity=identity,
                unit_block=units.area,
                unit_population=persons.references,
                raw=[
                    *persons.raw,
                    *recognised_columns(units, len(geography), scratch, persons.references),
                ],
            )

        return evidence.checked(rules, self.files, read, build, self.ahead)


def unit_counts(
    geography: pd.DataFrame, units: JoinedTable, schema: Schema | None, scratch: Path | None
) -> tuple[np.ndarray, sparse.csr_array | None]:
    """Of units: their kinds `(n_units,)` as `UnitCodes` has them, and the housing units by block
    and cell of a schema, if any.
    """
    kind = zeros(len(units), np.int8, scratch)
    summed = None if schema is None else HistogramSum(len(geography), schema.n_cells, scratch)
    for start in range(0, len(units), _UNITS_AT_ONCE):
        rows = slice(start, start + _UNITS_AT_ONCE)
        codes = unit_codes(units, rows)
        kind[rows] = codes.kind
        if summed is not None and schema is not None:
            is_housing_unit = ~codes.is_facility
            cells = schema.cells({"occupancy": codes.occupancy[is_housing_unit]})
            summed.add(units.area[rows][is_housing_unit], cells, np.ones(len(cells), np.int8))
    return kind, None if summed is None else summed.total()


def table_files(
    paths: Mapping[str, str | os.PathLike[str]], names: Mapping[str, str] | None
) -> dict[str, tuple[InputFile, ...]]:
    """The files of every table; messages call a table of one file by its name of `names`."""
    return {
        table: input_files(table, os.fspath(path), (names or {}).get(table, os.fspath(path)))
        for table, path in paths.items()
    }
