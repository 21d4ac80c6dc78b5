"""The records of an input counted at once, or part by part by any free worker.

A table of records in several files is read in parts of some files each. Before them the tables to
which records refer are read and kept as arrays that every part maps; a part keeps its counts; and
the check merges all of it to the result of reading the whole: histograms, rules and their first
files, however the rows are spread over files and parts. All kept files are confidential, in one
folder that its reader removes.

People: the records of a universe one by one, with their areas, cells and households.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from scipy import sparse

from ..runs.arrays import files_of, keep, kept
from ..tables.columns import CodedColumn, KeyColumn, KeyIndex
from ..tables.findings import Finding, InputCheck, UnreadableInput
from ..tables.readers import refuse_empty
from ..tables.sources import InputFile
from .areas import AreaIndex, Areas
from .census import Universe
from .counting import Counted, RawColumns, RecordCounter, count_files
from .evidence import EvidenceTally
from .histograms import joined
from .joins import ByTable, JoinedTable, Occupants, OwnAreas, Placing
from .records import AreaLookup

_ROWS_AT_ONCE = 1 << 20
"""Identifiers that are read at a time."""


def _histogram_facts(histogram: sparse.csr_array) -> list[Any]:
    """The rows of a histogram from the first to the last that have entries, as `joined` has a part
    of one: the first row, offsets into its cells and counts, and these."""
    indptr = histogram.indptr.astype(np.int64)
    filled = np.flatnonzero(np.diff(indptr))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
    return [first, indptr[first : last + 1], histogram.indices, histogram.data]


def _raw_facts(raw: RawColumns) -> list[Any]:
    """Raw columns by area: their names, values and histograms."""

    def histogram(name: str) -> list[Any]:
        return _histogram_facts(raw.counts(name))

    return [[name, values, partial(histogram, name)] for name, values in raw.values.items()]


def _add_raw(raw: RawColumns, facts: Sequence[Any]) -> None:
    """Add the columns of `_raw_facts`; columns omitted there are omitted."""
    told = {name: further for name, *further in facts}
    for name in list(raw.values):
        if name in told:
            values, part = told[name]
            raw.add_counts(name, values, part)
        else:
            raw.leave_out(name)


def table_facts(table: JoinedTable) -> list[Any]:
    """A table that others refer to."""
    return [_index_facts(table.index), table.area, _column_facts(table.columns), table.n_rows]


def table_of(facts: Sequence[Any]) -> JoinedTable:
    """Restore a table from `table_facts`; its index only finds identifiers."""
    index, area, columns, n_rows = facts
    return JoinedTable(_index_of(index), area, _columns_of(columns), n_rows)


def ways_facts(ways: AreaLookup) -> list[Any]:
    """Facts of the tables read before the records of a universe."""
    table = table_facts(ways.place.joined) if isinstance(ways.place, ByTable) else None
    occupants = [
        [name, one.key, _index_facts(one.index), _column_facts(one.columns)]
        + [one.number_name, one.number, one.n_rows]
        for name, one in ways.occupants.items()
    ]
    return [table, occupants, _raw_facts(ways.raw)]


def ways_of(
    facts: Sequence[Any], universe: Universe, areas: Areas, recognised: Sequence[str] = ()
) -> AreaLookup:
    """Restore the ways of a universe from `ways_facts`, with these recognised columns."""
    table, told, of_raw = facts
    columns = universe.area_columns
    place: Placing
    if table is None:
        place = OwnAreas(columns, AreaIndex(areas, len(columns)))
    else:
        place = ByTable(universe.steps[0].column, table_of(table))
    occupants = {
        name: Occupants(key, _index_of(index), _columns_of(own), *further)
        for name, key, index, own, *further in told
    }
    raw = RawColumns(recognised, len(areas))
    _add_raw(raw, of_raw)
    return AreaLookup(place, occupants, raw)


def _index_facts(index: KeyIndex) -> list[Any]:
    codes, rows, texts = index.parts()
    return [codes, rows, None if texts is None else _text_facts(texts)]


def _index_of(facts: Sequence[Any]) -> KeyIndex:
    codes, rows, texts = facts
    return KeyIndex.of_parts(codes, rows, None if texts is None else _texts_of(texts))


def _column_facts(columns: Mapping[str, CodedColumn]) -> list[Any]:
    return [[name, column.codes, column.values] for name, column in columns.items()]


def _columns_of(facts: Sequence[Any]) -> dict[str, CodedColumn]:
    return {name: CodedColumn(codes, tuple(values)) for name, codes, values in facts}


def _key_facts(keys: KeyColumn) -> Any:
    """Identifiers: numbers, -1 for blanks, or texts some at a time."""
    if keys.are_numbers:
        return keys.numbers()
    return [partial(_text_facts, part) for part in keys.chunks()]


def _add_keys(keys: KeyColumn, facts: Any) -> None:
    """Add the keys of `_key_facts`."""
    if isinstance(facts, np.ndarray):
        for start in range(0, len(facts), _ROWS_AT_ONCE):
            own = facts[start : start + _ROWS_AT_ONCE]
            keys.add(pa.array(own, mask=own < 0))
    else:
        for part in facts:
            keys.add(_texts_of(part))


def _text_facts(texts: pa.Array) -> np.ndarray:
    """Texts as the bytes of a file of Arrow's."""
    sink, rows = pa.BufferOutputStream(), pa.record_batch([texts], names=["texts"])
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _texts_of(content: np.ndarray) -> pa.Array:
    return pa.ipc.open_file(pa.py_buffer(content)).get_batch(0).column(0)


MOST_PARTS = 64
"""Parts of a table; more files than that share them."""

Before = Any
"""Tables to which records refer, in the form of each reading."""
Accepted = TypeVar("Accepted", covariant=True)


class Unreadable(NamedTuple):
    """The universe or table that cannot be read, and why."""

    subject: str
    finding: Finding


class CensusReading(Protocol[Accepted]):
    """The tables of a census; tables to which records refer are read first, as a whole.

    records : by universe, the files of its records.
    """

    @property
    def records(self) -> Mapping[str, Sequence[InputFile]]:
        """By universe that is counted, the files of its records."""

    def read_before(self, evidence: EvidenceTally, scratch: Path | None) -> Before | Unreadable:
        """Read the tables to which records refer; temporary files go to the folder `scratch`."""

    def keep(self, before: Before, folder: Path) -> object:
        """Return the tables to which records refer, as `arrays.keep` takes them; frames go to files
        in the folder."""

    def kept(self, folder: Path, facts: Any) -> Before:
        """Restore the result of `keep`."""

    def counter(
        self, before: Before, universe: str, scratch: Path | None, evidence: EvidenceTally
    ) -> tuple[RecordCounter, Sequence[InputFile]]:
        """Return the counter of a universe's records, or of a part of them, and their files."""

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

    Large arrays go to temporary files in the folder `scratch`, by default the system's; they hold
    confidential rows.
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
    """Whether a part, or the tables to which parts refer, have been read before."""
    return files_of(_stem(folder, part))[0].exists()


def keep_before(folder: Path, reading: CensusReading) -> None:
    """Read the tables that records refer to, and keep them for the parts."""
    evidence = EvidenceTally()
    before = reading.read_before(evidence, folder)
    if isinstance(before, Unreadable):
        _keep(folder, None, evidence, before.finding, before.subject)
    else:
        _keep(folder, None, evidence, None, reading.keep(before, folder))


def count_part(folder: Path, reading: CensusReading, number: int) -> None:
    """Count the records of a part, and keep the counts; do nothing if the tables to which they
    refer are missing or unreadable.
    """
    if not is_kept(folder):
        return
    _, finding, facts = _kept(folder, None)
    if finding is not None:
        return
    part, evidence, unreadable = parts_of(reading)[number], EvidenceTally(), None
    before = reading.kept(folder, facts)
    counter, files = reading.counter(before, part.universe, folder, evidence)
    try:
        count_files(counter, files, part.positions, evidence, of_part=True)
    except UnreadableInput as error:
        unreadable = error.finding
    counts = None if unreadable else _count_facts(counter)
    _keep(folder, number, evidence, unreadable, [counter.n_rows, counts])


def check_parts(
    folder: Path, reading: CensusReading[Accepted], scratch: Path | None = None
) -> InputCheck[Accepted] | None:
    """Return the result of `check_whole` from kept parts; None where some are missing."""
    if not is_kept(folder):
        return None
    evidence, finding, facts = _kept(folder, None)
    if finding is not None:
        check = reading.unreadable(facts, finding)
        return replace(check, files=evidence.files.formats)
    parts = parts_of(reading)
    if not all(is_kept(folder, number) for number in range(len(parts))):
        return None
    before, counted = reading.kept(folder, facts), dict[str, Counted]()
    for universe, files in reading.records.items():
        numbers = [number for number, part in enumerate(parts) if part.universe == universe]
        n_rows = 0
        for number in numbers:
            of_part, finding, (n_of_part, _) = _kept(folder, number)
            evidence.merge(of_part)
            n_rows += n_of_part
            if finding is not None:
                check = reading.unreadable(universe, finding, tuple(counted))
                return replace(check, files=evidence.files.formats)
        if not n_rows:
            try:
                refuse_empty(files)
            except UnreadableInput as error:
                return reading.unreadable(universe, error.finding, tuple(counted))
        counter, _ = reading.counter(before, universe, scratch, evidence)
        counted[universe] = _counted(folder, numbers, counter, scratch)
    return reading.put_together(before, counted, evidence, scratch)


def _count_facts(counter: RecordCounter) -> list[Any]:
    """Counts of a part: references, histograms, raw columns, and keys of occupants."""
    at = np.flatnonzero(counter.references)
    return [
        [at, counter.references[at]],
        [_histogram_facts(histogram) for histogram in counter.totals().values()],
        _raw_facts(counter.raw),
        [_key_facts(keys) for keys in counter.keys_of_occupants.values()],
    ]


def _counted(
    folder: Path, numbers: Sequence[int], counter: RecordCounter, scratch: Path | None
) -> Counted:
    """The sums of all parts of these numbers; `counter` has counted nothing.

    Parts are mapped again for each sum, so that no more of them stays in memory than it needs.
    """

    def told(place: int) -> Iterator[Any]:
        for number in numbers:
            yield _kept(folder, number)[2][1][place]

    for at, referring in told(0):
        counter.references[at] += referring
    totals = {
        name: joined([tuple(own[place]) for own in told(1)], counter.n_areas, size, scratch)
        for place, (name, size) in enumerate(counter.sizes.items())
    }
    for raw in told(2):
        _add_raw(counter.raw, raw)
    keys_of_occupants = {name: KeyColumn(scratch) for name in counter.keys_of_occupants}
    for of_part in told(3):
        for keys, own in zip(keys_of_occupants.values(), of_part, strict=True):
            _add_keys(keys, own)
    return Counted(totals, counter.references, counter.raw.columns(), keys_of_occupants)


def _keep(
    folder: Path, part: int | None, evidence: EvidenceTally, finding: Finding | None, facts: object
) -> None:
    """Keep the evidence, the reason for an unreadable table, and further facts of a part or of the
    tables to which parts refer."""
    told = [evidence.as_rows(), evidence.files.as_rows(), finding and asdict(finding), facts]
    keep(_stem(folder, part), told)


def _kept(folder: Path, part: int | None) -> tuple[EvidenceTally, Finding | None, Any]:
    """Restore the result of `_keep`."""
    rows, files, finding, facts = kept(_stem(folder, part))
    evidence = EvidenceTally.of_rows(rows)
    evidence.files.merge(files)
    return evidence, None if finding is None else Finding(**finding), facts


def _stem(folder: Path, part: int | None) -> Path:
    return folder / ("before" if part is None else str(part))


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
