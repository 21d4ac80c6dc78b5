"""The records of an input counted part by part, by whoever is free, and put together again.

A table of records that lies in several files is read in parts, some of its files each. Before them
the tables that records refer to are read and kept as arrays that every part maps; a part keeps what
it counted; and the check puts all of it together to what the reading of the whole finds:
histograms, rules and their first files, however the rows are spread over files and parts. All that
is kept is confidential, and lies in one folder that its reader removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from ..tables.columns import KeyColumn
from ..tables.findings import Finding, InputCheck, UnreadableInput
from ..tables.readers import refuse_empty
from ..tables.sources import InputFile
from .counting import Counted, RecordCounter, count_files
from .evidence import EvidenceTally
from .histograms import joined
from .kept import (
    keep_arrays,
    keep_facts,
    keep_histogram,
    keep_keys,
    keep_mark,
    kept_arrays,
    kept_facts,
    kept_histogram,
    kept_keys,
    kept_mark,
)
from .raw_columns import RawColumns

MOST_PARTS = 64
"""Parts of a table; more files than that share them."""

_BEFORE, _COUNTED = "before.json", "counted.json"
"""Files that are written last, when all else of what parts refer to, or of a part, is there."""

Accepted = TypeVar("Accepted", covariant=True)


class CensusReading(Protocol[Accepted]):
    """The tables of a census, as they are read in parts.

    records : by universe, the files of its records.
    """

    @property
    def records(self) -> Mapping[str, Sequence[InputFile]]:
        """By universe that is counted, the files of its records."""

    def keep_before(self, folder: Path, evidence: EvidenceTally) -> tuple[str, Finding] | None:
        """Read and keep what records refer to; the universe or table that could not be, and why."""

    def counter(
        self, folder: Path, universe: str, scratch: Path | None, evidence: EvidenceTally
    ) -> tuple[RecordCounter, Sequence[InputFile]]:
        """What counts a part of a universe's records, and their files, from what was kept."""

    def unreadable(
        self, subject: str, finding: Finding, before: Sequence[str] = ()
    ) -> InputCheck[Accepted]:
        """The check that ended at a universe or table that cannot be read, after the records of
        universes `before`.
        """

    def put_together(
        self,
        folder: Path,
        counted: Mapping[str, Counted],
        evidence: EvidenceTally,
        scratch: Path | None,
    ) -> InputCheck[Accepted]:
        """The check of all that was kept and counted."""


@dataclass(frozen=True)
class Part:
    """A part of a universe's records: positions of files that follow each other."""

    universe: str
    positions: Sequence[int]


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
    failed = reading.keep_before(folder, evidence)
    subject, finding = (None, None) if failed is None else failed
    keep_mark(_mark(folder, None), evidence, finding, {"subject": subject})


def count_part(folder: Path, reading: CensusReading, number: int) -> None:
    """Count the records of a part, and keep the counts; nothing if what they refer to is missing or
    could not be read.
    """
    if not is_kept(folder) or kept_mark(_mark(folder, None))[1] is not None:
        return
    part, place, evidence = parts_of(reading)[number], folder / str(number), EvidenceTally()
    unreadable = None
    counter, files = reading.counter(folder, part.universe, folder, evidence)
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
        return reading.unreadable(facts["subject"], finding)
    parts = parts_of(reading)
    if not all(is_kept(folder, number) for number in range(len(parts))):
        return None
    counted = dict[str, Counted]()
    for universe, files in reading.records.items():
        numbers = [number for number, part in enumerate(parts) if part.universe == universe]
        marks = [kept_mark(_mark(folder, number)) for number in numbers]
        for of_part, finding, _ in marks:
            if finding is not None:
                return reading.unreadable(universe, finding, tuple(counted))
            evidence.merge(of_part)
        if not any(facts["n_rows"] for _, _, facts in marks):
            try:
                refuse_empty(files)
            except UnreadableInput as error:
                return reading.unreadable(universe, error.finding, tuple(counted))
        counter, _ = reading.counter(folder, universe, scratch, evidence)
        places = [folder / str(number) for number in numbers]
        counted[universe] = _counted(places, counter, scratch)
    return reading.put_together(folder, counted, evidence, scratch)


def _keep_counts(place: Path, counter: RecordCounter) -> None:
    at = np.flatnonzero(counter.references)
    keep_arrays(place / "references", at=at, number=counter.references[at])
    for name, histogram in counter.totals().items():
        keep_histogram(place / "sums" / name, histogram)
    for i, (name, values) in enumerate(counter.raw.values.items()):
        keep_histogram(place / "raw" / str(i), counter.raw.counts(name))
        keep_facts(place / "raw" / str(i) / "values.json", values)
    keep_facts(place / "raw.json", list(counter.raw.values))
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
        _add_raw(counter.raw, place)
    keys_of_occupants: dict[str, KeyColumn] = {}
    for i, name in enumerate(counter.keys_of_occupants):
        keys_of_occupants[name] = KeyColumn(scratch)
        for place in places:
            for part in kept_keys(place / f"told by {i}.arrow"):
                keys_of_occupants[name].add(part)
    return Counted(totals, counter.references, counter.raw.columns(), keys_of_occupants)


def _add_raw(raw: RawColumns, place: Path) -> None:
    """Add the raw columns of a part."""
    numbers = {name: number for number, name in enumerate(kept_facts(place / "raw.json"))}
    for name in list(raw.values):
        if name not in numbers:
            raw.leave_out(name)
            continue
        own = place / "raw" / str(numbers[name])
        raw.add_counts(name, kept_facts(own / "values.json"), kept_histogram(own))


def _mark(folder: Path, part: int | None) -> Path:
    return folder / _BEFORE if part is None else folder / str(part) / _COUNTED
