"""The records of an input counted at once, or part by part by whoever is free.

A table of records that lies in several files is read in parts, some of its files each. Before them
the tables that records refer to are read and kept as arrays that every part maps; a part keeps what
it counted; and the check puts all of it together to what the reading of the whole finds:
histograms, rules and their first files, however the rows are spread over files and parts. All that
is kept is confidential, and lies in one folder that its reader removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..tables.columns import KeyColumn
from ..tables.findings import Finding, InputCheck, UnreadableInput
from ..tables.readers import refuse_empty
from ..tables.sources import InputFile
from .counting import Counted, RecordCounter, count_files
from .evidence import EvidenceTally
from .histograms import joined
from .kept import (
    add_kept_raw,
    keep_arrays,
    keep_histogram,
    keep_keys,
    keep_mark,
    keep_raw,
    kept_arrays,
    kept_histogram,
    kept_keys,
    kept_mark,
)

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
