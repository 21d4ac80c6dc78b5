"""The records of an input counted at once, or part by part by whoever is free.

A table of records that lies in several files is read in parts, some of its files each. Before them
the tables that records refer to are read and kept as arrays that every part maps; a part keeps what
it counted; and the check puts all of it together to what the reading of the whole finds:
histograms, rules and their first files, however the rows are spread over files and parts. All that
is kept is confidential, and lies in one folder that its reader removes.

What tasks leave for each other while an input is read in parts: arrays that others map.

All of it is confidential. Nothing is kept as a pickle: whoever reads one runs what its writer
wants.

People: the records of a universe one by one, with their areas, cells and households.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ...geography.declared import declared_units
from ..runs.files import replacing
from ..runs.stamps import write_parquet
from ..tables.columns import CodedColumn, KeyColumn, KeyIndex
from ..tables.findings import Finding, InputCheck, UnreadableInput
from ..tables.readers import refuse_empty
from ..tables.sources import InputFile
from .areas import AreaIndex, Areas
from .census import Universe
from .counting import Counted, RawColumns, RecordCounter, count_files
from .declarations import CensusGeography
from .evidence import EvidenceTally
from .histograms import joined
from .joins import ByTable, JoinedTable, Occupants, OwnAreas, Placing
from .records import Ways

HistogramPart = tuple[int, np.ndarray, np.ndarray, np.ndarray]
"""First row of a part of a histogram, offsets into its cells and counts, and these."""


def keep_arrays(place: Path, **arrays: np.ndarray) -> None:
    """Keep arrays by name."""
    for name, values in arrays.items():
        _write(place / f"{name}.npy", partial(np.save, arr=values))


def kept_arrays(place: Path, *names: str) -> Iterator[np.ndarray]:
    """What `keep_arrays` kept under some names, mapped."""
    for name in names:
        values = np.load(place / f"{name}.npy", mmap_mode="r")
        yield np.asarray(values) if values.size else np.empty(0, values.dtype)


def keep_histogram(place: Path, histogram: sparse.csr_array) -> None:
    """Keep the rows of a histogram from the first to the last that have entries."""
    indptr = histogram.indptr.astype(np.int64)
    filled = np.flatnonzero(np.diff(indptr))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
    rows = np.append(first, indptr[first : last + 1])
    keep_arrays(place, rows=rows, cells=histogram.indices, counts=histogram.data)


def kept_histogram(place: Path) -> HistogramPart:
    """What `keep_histogram` kept."""
    rows, cells, counts = kept_arrays(place, "rows", "cells", "counts")
    return int(rows[0]), np.asarray(rows[1:]), cells, counts


def keep_raw(place: Path, raw: RawColumns) -> None:
    """Keep raw columns by area."""
    for i, (name, values) in enumerate(raw.values.items()):
        keep_histogram(place / "raw" / str(i), raw.counts(name))
        keep_facts(place / "raw" / str(i) / "values.json", values)
    keep_facts(place / "raw.json", list(raw.values))


def add_kept_raw(raw: RawColumns, place: Path) -> None:
    """Add what `keep_raw` kept; columns that it left out are left out."""
    numbers = {name: number for number, name in enumerate(kept_facts(place / "raw.json"))}
    for name in list(raw.values):
        if name not in numbers:
            raw.leave_out(name)
            continue
        own = place / "raw" / str(numbers[name])
        raw.add_counts(name, kept_facts(own / "values.json"), kept_histogram(own))


def keep_table(place: Path, table: JoinedTable) -> None:
    """Keep a table that others refer to."""
    _keep_index(place, table.index)
    keep_arrays(place, area=table.area, n_rows=table.n_rows)
    _keep_columns(place, table.columns)


def kept_table(place: Path) -> JoinedTable:
    """What `keep_table` kept; its index finds identifiers and knows no more of them."""
    area, n_rows = kept_arrays(place, "area", "n_rows")
    return JoinedTable(_kept_index(place), area, _kept_columns(place), n_rows)


def keep_occupants(place: Path, occupants: Occupants) -> None:
    """Keep what tells of records."""
    _keep_index(place, occupants.index)
    keep_arrays(place, number=occupants.number, n_rows=occupants.n_rows)
    _keep_columns(place, occupants.columns)
    keep_facts(place / "occupants.json", [occupants.key, occupants.number_name])


def kept_occupants(place: Path) -> Occupants:
    """What `keep_occupants` kept."""
    key, number_name = kept_facts(place / "occupants.json")
    number, n_rows = kept_arrays(place, "number", "n_rows")
    return Occupants(key, _kept_index(place), _kept_columns(place), number_name, number, n_rows)


def keep_ways(place: Path, ways: Ways) -> None:
    """Keep what is read before the records of a universe."""
    if isinstance(ways.place, ByTable):
        keep_table(place / "table", ways.place.joined)
    for name, occupants in ways.occupants.items():
        keep_occupants(place / "occupants" / name, occupants)
    keep_raw(place, ways.raw)


def kept_ways(
    place: Path, universe: Universe, areas: Areas, recognised: Sequence[str] = ()
) -> Ways:
    """What `keep_ways` kept of a universe, of which these columns were recognised."""
    columns = universe.area_columns
    found: Placing
    if universe.steps:
        found = ByTable(universe.steps[0].column, kept_table(place / "table"))
    else:
        found = OwnAreas(columns, AreaIndex(areas, len(columns)))
    declared = universe.declared.occupants
    occupants = {name: kept_occupants(place / "occupants" / name) for name in declared}
    raw = RawColumns(recognised, len(areas))
    add_kept_raw(raw, place)
    return Ways(found, occupants, raw)


def keep_areas(place: Path, areas: Areas) -> None:
    """Keep the areas of a declared census."""
    keep_frame(place / "areas.parquet", areas.frame)
    keep_facts(place / "areas.json", [areas.columns, sorted(areas.skipped)])


def kept_areas(place: Path, declared: CensusGeography) -> Areas:
    """What `keep_areas` kept."""
    frame = kept_frame(place / "areas.parquet")
    columns, skipped = kept_facts(place / "areas.json")
    units = declared_units(frame, declared.geolevels)
    return Areas(frame, tuple(columns), units, frozenset(skipped))


def keep_keys(path: Path, keys: KeyColumn) -> None:
    """Keep identifiers."""
    kind = pa.int64() if keys.are_numbers else pa.large_string()
    _write_arrow(path, kind, keys.chunks())


def kept_keys(path: Path) -> Iterator[pa.Array]:
    """What `keep_keys` kept, some rows at a time."""
    with pa.memory_map(str(path)) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number).column(0)


def keep_frame(path: Path, frame: pd.DataFrame) -> None:
    """Keep a frame."""
    write_parquet(path, pa.Table.from_pandas(frame, preserve_index=False))


def kept_frame(path: Path) -> pd.DataFrame:
    """What `keep_frame` kept."""
    frame: pd.DataFrame = pq.read_table(path).to_pandas()
    return frame


def keep_mark(
    path: Path, evidence: EvidenceTally, finding: Finding | None, further: Mapping[str, object]
) -> None:
    """Write the file that says that all beside it is there: evidence, why something could not be
    read, and what else is told of it.
    """
    facts = {
        "evidence": evidence.as_rows(),
        "files": evidence.files.as_rows(),
        "finding": None if finding is None else asdict(finding),
        **further,
    }
    keep_facts(path, facts)


def kept_mark(path: Path) -> tuple[EvidenceTally, Finding | None, dict[str, Any]]:
    """What `keep_mark` wrote."""
    facts = kept_facts(path)
    evidence, finding = EvidenceTally.of_rows(facts["evidence"]), facts["finding"]
    evidence.files.merge(facts["files"])
    return evidence, None if finding is None else Finding(**finding), facts


def keep_facts(path: Path, facts: object) -> None:
    """Keep numbers and texts."""
    content = json.dumps(facts, default=np.generic.item).encode()
    _write(path, lambda file: file.write(content))


def kept_facts(path: Path) -> Any:
    """What `keep_facts` kept."""
    return json.loads(path.read_bytes())


def _keep_index(place: Path, index: KeyIndex) -> None:
    codes, rows, texts = index.parts()
    keep_arrays(place, codes=codes, rows=rows)
    if texts is not None:
        _write_arrow(place / "texts.arrow", pa.large_string(), [texts])


def _kept_index(place: Path) -> KeyIndex:
    texts, (codes, rows) = None, kept_arrays(place, "codes", "rows")
    if (place / "texts.arrow").exists():
        (texts,) = kept_keys(place / "texts.arrow")
    return KeyIndex.of_parts(codes, rows, texts)


def _keep_columns(place: Path, columns: Mapping[str, CodedColumn]) -> None:
    keep_arrays(place, **{f"column {i}": own.codes for i, own in enumerate(columns.values())})
    keep_facts(place / "columns.json", [[name, c.values] for name, c in columns.items()])


def _kept_columns(place: Path) -> dict[str, CodedColumn]:
    names_and_values = kept_facts(place / "columns.json")
    codes = kept_arrays(place, *(f"column {number}" for number in range(len(names_and_values))))
    return {
        name: CodedColumn(own, tuple(values))
        for (name, values), own in zip(names_and_values, codes, strict=True)
    }


def _write_arrow(path: Path, kind: pa.DataType, parts: Iterator[pa.Array] | Sequence) -> None:
    schema = pa.schema({"keys": kind})

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, schema) as writer:
            for part in parts:
                writer.write_batch(pa.record_batch([part.cast(kind)], schema=schema))

    _write(path, write)


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    with replacing(path) as part, part.open("wb") as file:
        write(file)


MOST_PARTS = 64
"""Parts of a table; more files than that share them."""

_BEFORE, _COUNTED = "before.json", "counted.json"
"""Files that are written last, when all else of what parts refer to, or of a part, is there."""

Before = Any
"""What records refer to, as each reading has it."""
Accepted = TypeVar("Accepted", covariant=True)


class Unreadable(NamedTuple):
    """The universe or table that cannot be read, and why."""

    subject: str
    finding: Finding


class CensusReading(Protocol[Accepted]):
    """The tables of a census: what records refer to is read before them, as a whole.

    records : by universe, the files of its records.
    """

    @property
    def records(self) -> Mapping[str, Sequence[InputFile]]:
        """By universe that is counted, the files of its records."""

    def read_before(self, evidence: EvidenceTally, scratch: Path | None) -> Before | Unreadable:
        """What records refer to, read; temporary files go to the folder `scratch`."""

    def keep(self, before: Before, folder: Path) -> None:
        """Keep what records refer to in a folder."""

    def kept(self, folder: Path) -> Before:
        """What `keep` kept."""

    def counter(
        self, before: Before, universe: str, scratch: Path | None, evidence: EvidenceTally
    ) -> tuple[RecordCounter, Sequence[InputFile]]:
        """What counts a universe's records, or a part of them, and their files."""

    def unreadable(
        self, subject: str, finding: Finding, before: Sequence[str] = ()
    ) -> InputCheck[Accepted]:
        """The check that ended at a universe or table that cannot be read, after the records of
        universes `before`.
        """

    def put_together(
        self,
        before: Before,
        counted: Mapping[str, Counted],
        evidence: EvidenceTally,
        scratch: Path | None,
    ) -> InputCheck[Accepted]:
        """The check of all that was read and counted."""


@dataclass(frozen=True)
class Part:
    """A part of a universe's records: positions of files that follow each other."""

    universe: str
    positions: Sequence[int]


def check_whole(
    reading: CensusReading[Accepted], scratch: Path | None = None
) -> InputCheck[Accepted]:
    """Read the tables of a census, evaluate every rule and count all records.

    What is large is kept in temporary files in the folder `scratch`, by default the system's; they
    hold confidential rows.
    """
    evidence, counted = EvidenceTally(), dict[str, Counted]()
    before = reading.read_before(evidence, scratch)
    if isinstance(before, Unreadable):
        return replace(reading.unreadable(*before), files=evidence.files.formats)
    for universe in reading.records:
        counter, files = reading.counter(before, universe, scratch, evidence)
        try:
            count_files(counter, files, range(len(files)), evidence)
        except UnreadableInput as error:
            check = reading.unreadable(universe, error.finding, tuple(counted))
            return replace(check, files=evidence.files.formats)
        counted[universe] = counter.counted()
    return reading.put_together(before, counted, evidence, scratch)


def parts_of(reading: CensusReading) -> list[Part]:
    """The parts of all records."""
    return [
        Part(universe, positions.tolist())
        for universe, files in reading.records.items()
        for positions in np.array_split(np.arange(len(files)), min(len(files), MOST_PARTS))
    ]


def is_kept(folder: Path, part: int | None = None) -> bool:
    """Whether a part, or what parts refer to, has been read before."""
    return _mark(folder, part).exists()


def keep_before(folder: Path, reading: CensusReading) -> None:
    """Read the tables that records refer to, and keep them for the parts."""
    evidence = EvidenceTally()
    before = reading.read_before(evidence, folder)
    if isinstance(before, Unreadable):
        keep_mark(_mark(folder, None), evidence, before.finding, {"subject": before.subject})
        return
    reading.keep(before, folder)
    keep_mark(_mark(folder, None), evidence, None, {})


def count_part(folder: Path, reading: CensusReading, number: int) -> None:
    """Count the records of a part, and keep the counts; nothing if what they refer to is missing or
    could not be read.
    """
    if not is_kept(folder) or kept_mark(_mark(folder, None))[1] is not None:
        return
    part, place, evidence = parts_of(reading)[number], folder / str(number), EvidenceTally()
    unreadable = None
    counter, files = reading.counter(reading.kept(folder), part.universe, folder, evidence)
    try:
        count_files(counter, files, part.positions, evidence, of_part=True)
    except UnreadableInput as error:
        unreadable = error.finding
    if unreadable is None:
        _keep_counts(place, counter)
    facts = {"n_rows": counter.n_rows, "sizes": counter.sizes}
    keep_mark(_mark(folder, number), evidence, unreadable, facts)


def check_parts(
    folder: Path, reading: CensusReading[Accepted], scratch: Path | None = None
) -> InputCheck[Accepted] | None:
    """What the check of the whole finds; None where not all of it has been kept."""
    if not is_kept(folder):
        return None
    evidence, finding, facts = kept_mark(_mark(folder, None))
    if finding is not None:
        check = reading.unreadable(facts["subject"], finding)
        return replace(check, files=evidence.files.formats)
    parts = parts_of(reading)
    if not all(is_kept(folder, number) for number in range(len(parts))):
        return None
    before, counted = reading.kept(folder), dict[str, Counted]()
    for universe, files in reading.records.items():
        numbers = [number for number, part in enumerate(parts) if part.universe == universe]
        marks = [kept_mark(_mark(folder, number)) for number in numbers]
        for of_part, finding, _ in marks:
            evidence.merge(of_part)
            if finding is not None:
                check = reading.unreadable(universe, finding, tuple(counted))
                return replace(check, files=evidence.files.formats)
        if not any(facts["n_rows"] for _, _, facts in marks):
            try:
                refuse_empty(files)
            except UnreadableInput as error:
                return reading.unreadable(universe, error.finding, tuple(counted))
        counter, _ = reading.counter(before, universe, scratch, evidence)
        places = [folder / str(number) for number in numbers]
        counted[universe] = _counted(places, counter, scratch)
    return reading.put_together(before, counted, evidence, scratch)


def _keep_counts(place: Path, counter: RecordCounter) -> None:
    at = np.flatnonzero(counter.references)
    keep_arrays(place / "references", at=at, number=counter.references[at])
    for name, histogram in counter.totals().items():
        keep_histogram(place / "sums" / name, histogram)
    keep_raw(place, counter.raw)
    for i, keys in enumerate(counter.keys_of_occupants.values()):
        keep_keys(place / f"told by {i}.arrow", keys)


def _counted(places: Sequence[Path], counter: RecordCounter, scratch: Path | None) -> Counted:
    """The sums of all parts; `counter` has counted nothing."""
    n_areas = counter.n_areas
    for place in places:
        at, number = kept_arrays(place / "references", "at", "number")
        counter.references[at] += number
    totals = {
        name: joined([kept_histogram(p / "sums" / name) for p in places], n_areas, size, scratch)
        for name, size in counter.sizes.items()
    }
    for place in places:
        add_kept_raw(counter.raw, place)
    keys_of_occupants: dict[str, KeyColumn] = {}
    for i, name in enumerate(counter.keys_of_occupants):
        keys_of_occupants[name] = KeyColumn(scratch)
        for place in places:
            for part in kept_keys(place / f"told by {i}.arrow"):
                keys_of_occupants[name].add(part)
    return Counted(totals, counter.references, counter.raw.columns(), keys_of_occupants)


def _mark(folder: Path, part: int | None) -> Path:
    return folder / _BEFORE if part is None else folder / str(part) / _COUNTED


@dataclass(frozen=True, eq=False)
class People:
    """The records of a universe, one for each person.

    area : (n,) areas of the last geolevel, by number.
    cell : (n,) cells of the schema.
    household : (n,) numbers of households from 0 up; -1 for a person in none.
    """

    area: np.ndarray
    cell: np.ndarray
    household: np.ndarray

    def __len__(self) -> int:
        return len(self.area)

    @cached_property
    def n_households(self) -> int:
        """Number of households."""
        return int(self.household.max(initial=-1)) + 1

    @classmethod
    def of_histogram(cls, histogram: sparse.csr_array) -> People:
        """One person for each count of a histogram `(n_areas, n_cells)`, in no household."""
        entries = sparse.coo_array(histogram)
        times = entries.data.astype(np.int64)
        area, cell = (np.repeat(at.astype(np.int64), times) for at in entries.coords)
        return cls(area, cell, np.full(len(area), -1, dtype=np.int64))

    def in_households(self, cells: np.ndarray) -> People:
        """The people of whom those in some cells, by a mask `(n_cells,)`, live in households, whose
        numbers begin at 0; all others live in none.
        """
        inside = (self.household >= 0) & cells[self.cell]
        household = np.full(len(self), -1, dtype=np.int64)
        household[inside] = np.unique(self.household[inside], return_inverse=True)[1]
        return replace(self, household=household)


def read_people(reading: CensusReading[Any], universe: str, folder: Path) -> People:
    """The people of a universe from tables that have passed their checks.

    Those who refer to the same row of the table on the way to their area, such as a housing unit,
    are in one household. `folder` is for temporary files of confidential rows; it must be empty.
    """
    evidence = EvidenceTally()
    before = reading.read_before(evidence, folder)
    counter, files = reading.counter(before, universe, folder, evidence)
    nobody = np.empty(0, dtype=np.int64)
    parts, wanted = [[nobody] * 3], counter.histogram_of(universe)

    def listed(
        name: str, area: np.ndarray, cell: np.ndarray, row: np.ndarray, count: np.ndarray
    ) -> None:
        if name == wanted:
            parts.append([np.repeat(part, count.astype(np.int64)) for part in (area, cell, row)])

    counter.listed = listed
    count_files(counter, files, range(len(files)), evidence, of_part=True)
    return People(*map(np.concatenate, zip(*parts, strict=True)))
