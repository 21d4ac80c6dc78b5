"""The persons of an input counted part by part, by whoever is free, and put together again.

A table of persons that lies in several files is read in parts, some of its files each. Before
them the addresses are read and kept as arrays that every part maps; a part keeps what it counted;
and the check puts all of it together to what `check_inputs` finds of the whole: histograms, rules
and their first files, however the rows are spread over files and parts. All that is kept is
confidential, and lies in one folder that its reader removes.

Identifiers that are not numbers are left to `check_inputs`, in one piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ..runs.files import replacing
from ..runs.stamps import write_parquet
from ..tables.columns import KeyIndex
from ..tables.findings import Finding, InputCheck, UnreadableInput
from ..tables.mapped import zeros
from ..tables.readers import Selection, read_partitions, refuse_empty
from ..tables.sources import InputFile
from .evidence import EvidenceTally
from .histograms import joined
from .inputs import IngestResult, checked, table_files, unreadable_input
from .schema import Schema
from .tables import (
    PersonCounter,
    PersonSums,
    UnitsTable,
    add_empty_facilities,
    load_geography,
    load_units,
    person_sums,
)

MOST_PARTS = 64
"""Parts of a table; more files than that share them."""

_ADDRESSES, _COUNTED = "addresses", "counted"
_UNIT_ARRAYS = tuple(field.name for field in fields(UnitsTable) if field.name != "index")


@dataclass(frozen=True)
class ReadTables:
    """What is read, as `check_inputs` has it, and how persons are counted."""

    files: Mapping[str, tuple[InputFile, ...]]
    person_schema: Schema | None
    unit_schema: Schema | None

    @classmethod
    def of(
        cls,
        paths: Mapping[str, str],
        names: Mapping[str, str],
        person_schema: Schema | None,
        unit_schema: Schema | None,
    ) -> ReadTables:
        """The tables persons, units and geography at these paths; see `check_inputs`."""
        wanted = {table: paths[table] for table in ("geography", "units", "persons")}
        return cls(table_files(wanted, names), person_schema, unit_schema)

    def parts(self) -> list[list[int]]:
        """Positions of the files of every part of the persons: files that follow each other."""
        n = len(self.files["persons"])
        return [part.tolist() for part in np.array_split(np.arange(n), min(n, MOST_PARTS))]


@dataclass(frozen=True)
class _Addresses:
    """What is known once the addresses are read: the table that could not be, and why."""

    evidence: EvidenceTally
    unreadable: tuple[str, Finding] | None
    are_numbers: bool
    n_blocks: int

    def keep(self, folder: Path) -> None:
        """Write the file that says that all else of the addresses is there."""
        table, finding = self.unreadable or (None, None)
        told = {"table": table, "are_numbers": self.are_numbers, "n_blocks": self.n_blocks}
        _keep_mark(_mark(folder, None), self.evidence, finding, told)

    @classmethod
    def kept(cls, folder: Path) -> _Addresses:
        """What `keep` has written."""
        evidence, finding, told = _kept_mark(_mark(folder, None))
        unreadable = None if finding is None else (told["table"], finding)
        return cls(evidence, unreadable, told["are_numbers"], told["n_blocks"])


@dataclass(frozen=True)
class _Part:
    """What is known once a part is read, beside its arrays: rows, or why it could not be read."""

    evidence: EvidenceTally
    unreadable: Finding | None
    n_rows: int

    def keep(self, folder: Path, part: int) -> None:
        """Write the file that says that all else of a part is there."""
        told = {"n_rows": self.n_rows}
        _keep_mark(_mark(folder, part), self.evidence, self.unreadable, told)

    @classmethod
    def kept(cls, folder: Path, part: int) -> _Part:
        """What `keep` has written."""
        evidence, finding, told = _kept_mark(_mark(folder, part))
        return cls(evidence, finding, told["n_rows"])


def is_kept(folder: Path, part: int | None = None) -> bool:
    """Whether a part, or the addresses, have been read before."""
    return _mark(folder, part).exists()


def keep_addresses(folder: Path, tables: ReadTables) -> None:
    """Read geography and units, and keep them for the parts."""
    evidence, table = EvidenceTally(), "geography"
    try:
        blocks = load_geography(tables.files[table], evidence, folder)
        table = "units"
        units = load_units(tables.files[table], blocks, evidence, folder)
    except UnreadableInput as error:
        _Addresses(evidence, (table, error.finding), True, 0).keep(folder)
        return
    numbers = units.index.numbers()
    if numbers is not None:
        for name, values in zip(("codes", "rows"), numbers, strict=True):
            _keep(folder / f"{name}.npy", values)
        for name in _UNIT_ARRAYS:
            _keep(folder / f"{name}.npy", getattr(units, name))
        geography = pa.Table.from_pandas(blocks.frame, preserve_index=False)
        write_parquet(folder / "geography.parquet", geography)
    _Addresses(evidence, None, numbers is not None, len(blocks.frame)).keep(folder)


def count_part(folder: Path, tables: ReadTables, part: int) -> None:
    """Count the persons of a part, and keep the counts; nothing if there are no addresses."""
    if not is_kept(folder):
        return
    addresses = _Addresses.kept(folder)
    if addresses.unreadable is not None or not addresses.are_numbers:
        return
    files, positions = tables.files["persons"], tables.parts()[part]
    units, evidence = _units(folder), EvidenceTally()
    counter = PersonCounter(units, addresses.n_blocks, tables.person_schema, folder)
    in_units: list[tuple[np.ndarray, np.ndarray]] = []
    n_rows, unreadable = 0, None
    try:
        own, wanted = [files[position] for position in positions], Selection(counter.columns)
        for number, batch in read_partitions(own, wanted, may_be_empty=True):
            unit = counter.add(batch, evidence, positions[number])
            n_rows += len(unit)
            in_units.append(np.unique(unit[unit >= 0], return_counts=True))
    except UnreadableInput as error:
        unreadable = error.finding
    if unreadable is None:
        place = folder / str(part)
        _keep_counts(place, "units", *_summed(in_units))
        inhabited = np.flatnonzero(counter.population)
        _keep_counts(place, "population", inhabited, counter.population[inhabited])
        for name, histogram in counter.totals().items():
            _keep_histogram(place, name, histogram)
    _Part(evidence, unreadable, n_rows).keep(folder, part)


def check_parts(
    folder: Path, tables: ReadTables, scratch: Path | None = None
) -> InputCheck[IngestResult] | None:
    """What `check_inputs` finds; None where not all of it has been kept."""
    numbers = range(len(tables.parts()))
    if not is_kept(folder):
        return None
    addresses = _Addresses.kept(folder)
    if addresses.unreadable is not None:
        return unreadable_input(*addresses.unreadable)
    if not addresses.are_numbers or not all(is_kept(folder, number) for number in numbers):
        return None
    parts = [_Part.kept(folder, number) for number in numbers]
    for part in parts:
        if part.unreadable is not None:
            return unreadable_input("persons", part.unreadable)
    if not any(part.n_rows for part in parts):
        try:
            refuse_empty(tables.files["persons"])
        except UnreadableInput as error:
            return unreadable_input("persons", error.finding)
    evidence, units = addresses.evidence, _units(folder)
    for part in parts:
        evidence.merge(part.evidence)
    places = [folder / str(number) for number in numbers]
    sums = _joined_sums(places, units, addresses.n_blocks, tables.person_schema, scratch)
    add_empty_facilities(evidence, units, sums.unit_population)
    frame: pd.DataFrame = pq.read_table(folder / "geography.parquet").to_pandas()
    schemas = (tables.person_schema, tables.unit_schema)
    return checked(evidence, tables.files, frame, units, sums, *schemas, scratch)


def _joined_sums(
    places: Sequence[Path],
    units: UnitsTable,
    n_blocks: int,
    schema: Schema | None,
    scratch: Path | None,
) -> PersonSums:
    """The sums of all parts."""
    in_unit = zeros(len(units.block), np.int64, scratch)
    population = np.zeros(n_blocks, dtype=np.int64)
    for place in places:
        for name, total in (("units", in_unit), ("population", population)):
            at, count = (_kept(place / f"{name} {what}.npy") for what in ("at", "count"))
            total[at] += count
    totals = {
        name: joined([_kept_histogram(place, name) for place in places], n_blocks, n_cells, scratch)
        for name, n_cells in PersonCounter.sizes(schema).items()
    }
    return person_sums(population, totals, in_unit)


def _units(folder: Path) -> UnitsTable:
    """The units, mapped, whose index finds identifiers and knows no more of them."""
    index = KeyIndex.of_numbers(_kept(folder / "codes.npy"), _kept(folder / "rows.npy"))
    return UnitsTable(index=index, **{name: _kept(folder / f"{name}.npy") for name in _UNIT_ARRAYS})


def _summed(counts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct positions and the sums of their counts."""
    if not counts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    at, inverse = np.unique(np.concatenate([one for one, _ in counts]), return_inverse=True)
    count = np.concatenate([count for _, count in counts])
    return at, np.bincount(inverse, count, minlength=len(at)).astype(np.int64)


def _keep_histogram(place: Path, name: str, histogram: sparse.csr_array) -> None:
    """Keep the rows from the first to the last that have entries."""
    indptr = histogram.indptr.astype(np.int64)
    filled = np.flatnonzero(np.diff(indptr))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
    _keep(place / f"{name} rows.npy", np.append(first, indptr[first : last + 1]))
    _keep(place / f"{name} cells.npy", histogram.indices)
    _keep(place / f"{name} counts.npy", histogram.data)


def _kept_histogram(place: Path, name: str) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    rows = _kept(place / f"{name} rows.npy")
    cells, counts = (_kept(place / f"{name} {what}.npy") for what in ("cells", "counts"))
    return int(rows[0]), np.asarray(rows[1:]), cells, counts


def _keep_counts(place: Path, name: str, at: np.ndarray, count: np.ndarray) -> None:
    _keep(place / f"{name} at.npy", at)
    _keep(place / f"{name} count.npy", count)


def _keep(path: Path, values: np.ndarray) -> None:
    _write(path, lambda file: np.save(file, values))


def _kept(path: Path) -> np.ndarray:
    values = np.load(path, mmap_mode="r")
    return np.asarray(values) if values.size else np.empty(0, values.dtype)


def _mark(folder: Path, part: int | None) -> Path:
    """The file that is written last, when all else of a part, or of the addresses, is there."""
    return folder / (f"{_ADDRESSES}.json" if part is None else f"{part}/{_COUNTED}.json")


def _keep_mark(
    path: Path, evidence: EvidenceTally, finding: Finding | None, told: Mapping[str, object]
) -> None:
    # Not as a pickle: whoever reads one runs what its writer wants.
    facts = {
        "evidence": evidence.as_rows(),
        "finding": None if finding is None else asdict(finding),
        **told,
    }
    content = json.dumps(facts, default=np.generic.item).encode()
    _write(path, lambda file: file.write(content))


def _kept_mark(path: Path) -> tuple[EvidenceTally, Finding | None, dict[str, Any]]:
    told = json.loads(path.read_bytes())
    finding = told["finding"]
    evidence = EvidenceTally.of_rows(told["evidence"])
    return evidence, None if finding is None else Finding(**finding), told


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    with replacing(path) as part, part.open("wb") as file:
        write(file)
