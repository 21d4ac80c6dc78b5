"""An input that several tasks read: the tables to which records refer, shares of the records, and
the check of all of them, which decides as one reader does.

A share has row groups of local Parquet files, or whole files, of each universe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...geography.declared import Units
from ..ledger.recognition import RecordColumn
from ..runs.objects import read_object
from ..tables.columns import CodedColumn, GrowingArray, KeyColumn, KeyIndex
from ..tables.findings import FileRead, InputCheck
from ..tables.readers import refuse_empty
from ..tables.sources import Share
from ..tables.value_tallies import FilesRead, ValueTally
from .areas import AreaIndex, Areas
from .census_input import CensusInput, CensusTables, Counted, ReferredTables
from .counting import CountedShare, RawColumns, RecordCounter, count_files
from .histograms import HistogramSum
from .joins import ByTable, JoinedTable, Occupants, OwnAreas
from .records import AreaLookup


@dataclass(frozen=True, eq=False)
class ReferredShare:
    """The tables to which records refer, with their evidence; confidential."""

    tables: ReferredTables
    evidence: ValueTally


@dataclass(frozen=True, eq=False)
class RecordShare:
    """Counts of a share of the records, by universe, with their evidence; confidential."""

    counted: Mapping[str, CountedShare]
    evidence: ValueTally


_TYPES = {
    kind.__name__: kind
    for kind in (
        *(AreaIndex, AreaLookup, Areas, ByTable, CodedColumn, CountedShare, FileRead, FilesRead),
        *(GrowingArray, HistogramSum, JoinedTable, KeyColumn, KeyIndex, Occupants, OwnAreas),
        *(RawColumns, RecordColumn, RecordShare, ReferredShare, ReferredTables, Units, ValueTally),
    )
}


def read_share(stem: Path) -> Any:
    """Read a share from the file that `runs.objects.write_object` has written."""
    return read_object(stem, _TYPES)


def read_referred(tables: CensusTables) -> ReferredShare:
    """Read the tables to which records refer; raises UnreadableInput."""
    evidence = ValueTally()
    return ReferredShare(tables.read_before(evidence), evidence)


def count_share(tables: CensusTables, referred: ReferredShare, share: Share) -> RecordShare:
    """Count a share of the records of every universe; raises UnreadableInput."""
    evidence, counted = ValueTally(), dict[str, CountedShare]()
    for name in tables.records:
        counter, files = tables.counter(referred.tables, name, evidence)
        count_files(counter, files, evidence, share)
        counted[name] = counter.share()
    return RecordShare(counted, evidence)


def check_shares(
    tables: CensusTables, referred: ReferredShare, shares: Sequence[RecordShare]
) -> InputCheck[CensusInput]:
    """Check an input of which all shares are counted, in the order of their numbers."""

    def count(evidence: ValueTally) -> Counted:
        evidence.add_shares([referred.evidence])
        evidence.add_shares([share.evidence for share in shares])
        counted = dict[str, RecordCounter]()
        for name in tables.records:
            counted[name], files = tables.counter(referred.tables, name, evidence)
            for share in shares:
                counted[name].add_share(share.counted[name])
            refuse_empty(files, sum(evidence.files.files[file.path].n_rows or 0 for file in files))
        return referred.tables, counted

    return tables.check(count)
