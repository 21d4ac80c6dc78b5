"""Columns of units computed from the records of their members: compared where a table has them,
added where it lacks them.

Products that count households read the records of units alone, whose columns were computed from the
records of persons earlier. A file of units without some of these columns is completed in a
confidential file of its own; columns that it has must agree with the members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..ledger.recognition import RecordColumn
from ..tables.columns import CodedColumn, KeyColumn, KeyIndex
from ..tables.findings import Finding
from ..tables.layouts import RACE_COLUMN
from ..tables.readers import Batch, Selection, read_partitions
from ..tables.sources import InputFile
from ..tables.value_tallies import FilesRead
from .counting import RawColumns
from .households import UNIT_COLUMNS, Members, disagreements, incoherent, unit_columns
from .joins import read_coded, read_records
from .recodes import whole_number

HOUSING_UNIT, KIND, SIZE = "2", "RTYPE", "FINAL_POP"
OF_MEMBERS = ("RELSHIP", "QAGE", "QSEX", "CENHISP", RACE_COLUMN)
"""Columns of persons that determine the columns of their household, in the order of `Members`."""
UNKNOWN = -1


class MembersCheck(NamedTuple):
    """Rules that households break, with the number of households or of rows; the persons in housing
    units; the raw columns of all persons by row of their unit, as if it were an area; and the files
    of the units, completed where they lack columns and nothing is wrong.
    """

    findings: tuple[Finding, ...]
    members: Members
    raw: RawColumns
    units: tuple[InputFile, ...]


def completed_units(
    units: Sequence[InputFile], persons: Sequence[InputFile], key: str, target: Path
) -> MembersCheck:
    """Compare the columns of housing units with the values computed from their members, and make
    the missing columns.

    `key` is the column of both tables that identifies a unit. A table that lacks columns is written
    to `target`, as Parquet, with its own columns and the new ones; nothing is written where
    something is wrong. Raises UnreadableInput.
    """
    present = _columns(units[0])
    own = tuple(name for name in UNIT_COLUMNS if name in present)
    keys, home, there = read_units(units, own, key)
    index = KeyIndex(keys)
    raw = RawColumns(OF_MEMBERS, len(home))
    members, n_apart, copies = read_members(persons, key, index, home, raw)
    first = (units[0], persons[0])
    findings = [*copies, *_findings(first, key, index, members, n_apart, len(home))]
    if findings:
        return MembersCheck(tuple(findings), members, raw, tuple(units))
    made = unit_columns(members, len(home))
    for name, count in disagreements(there, made).items():
        rule = f"{name} of a housing unit must agree with its members in {persons[0].name}"
        remedy = f"correct {name}, or leave the column out, and it is made from the members"
        findings.append(Finding(units[0].name, name, rule, remedy, count))
    lacking = {name: values for name, values in made.items() if name not in own}
    files = tuple(units)
    if lacking and not findings:
        _write(units, present, lacking, target)
        files = (replace(units[0], path=str(target), format=None),)
    return MembersCheck(tuple(findings), members, raw, files)


def _columns(file: InputFile) -> tuple[str, ...]:
    """Names of the columns of a file."""
    for _, batch in read_partitions([file], Selection((), with_others=True)):
        return tuple(batch)
    return ()


def whole_numbers(column: CodedColumn) -> np.ndarray:
    """Return whole numbers; blanks are 0, and other texts `UNKNOWN`."""

    def number(value: str | None) -> int:
        found = 0 if value is None else whole_number(value)
        return UNKNOWN if found is None or found > np.iinfo(np.int32).max else found

    return column.lookup(number, np.int32)


def read_units(
    units: Sequence[InputFile], names: Sequence[str], key: str
) -> tuple[KeyColumn, np.ndarray, dict[str, np.ndarray]]:
    """Identifiers of units, which are housing units `(n_units,)`, and whole numbers of some columns
    of these, `(n_units,)` each, 0 elsewhere."""
    keys, is_home = KeyColumn(), list[np.ndarray]()
    values_of: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for _, batch, columns in read_coded(units, (KIND, *names), (key,)):
        keys.add(batch[key])
        is_home.append(columns[KIND].lookup(lambda value: value == HOUSING_UNIT, bool))
        for name, values in values_of.items():
            values.append(whole_numbers(columns[name]))
    home = np.concatenate(is_home)
    return keys, home, {n: np.where(home, np.concatenate(own), 0) for n, own in values_of.items()}


def read_members(
    persons: Sequence[InputFile], key: str, index: KeyIndex, home: np.ndarray, raw: RawColumns
) -> tuple[Members, int, tuple[Finding, ...]]:
    """The persons in housing units, how many persons have no unit at all, and findings on copies
    among the files; `raw` gets the columns of all who have a unit, by its row.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(1 + len(OF_MEMBERS))]
    n_apart, read = 0, FilesRead()
    for _, batch, columns in read_records(persons, OF_MEMBERS, (key,), read):
        row = index.positions(batch[key])
        raw.add(columns, row)
        n_apart += int((row < 0).sum())
        inside = (row >= 0) & home[row]
        values = [row, *(whole_numbers(columns[name]) for name in OF_MEMBERS)]
        for part, value in zip(parts, values, strict=True):
            part.append(value[inside])
    members = Members(*(np.concatenate(part) for part in parts))
    return members, n_apart, tuple(read.copies(persons))


def household_columns(
    units: Sequence[InputFile], further: Sequence[str], area: np.ndarray, n_areas: int
) -> list[RecordColumn]:
    """Columns computed from members of units, and further raw columns of these, by area: of all
    units, and of occupied units alone.

    `units` are completed files, and `area` is that of each row, -1 for none. Raises
    UnreadableInput.
    """
    names = (*UNIT_COLUMNS, *further)
    all_units, households = (RawColumns(names, n_areas) for _ in range(2))
    first = 0
    for _, _, columns in read_coded(units, names, ()):
        is_household = whole_numbers(columns[SIZE]) > 0
        own = area[first : first + len(is_household)]
        first += len(own)
        all_units.add(columns, own)
        households.add(columns, own, is_household)
    return [*all_units.columns(), *households.columns()]


def _findings(
    files: tuple[InputFile, InputFile],
    key: str,
    index: KeyIndex,
    members: Members,
    n_apart: int,
    n_units: int,
) -> Iterator[Finding]:
    """Rules broken by households of members, with counts; `files` are the first of units and of
    persons.
    """
    units, persons = files
    n_repeated = int((index.is_repeated | index.is_blank).sum())
    if n_repeated:
        rule = f"every unit must have a {key} of its own"
        yield Finding(units.name, key, rule, "correct the identifiers", n_repeated)
    if n_apart:
        rule = f"{key} of every person must be in {units.name}"
        yield Finding(persons.name, key, rule, "add the units, or correct the persons", n_apart)
    for rule, count in incoherent(members, n_units).items():
        remedy = "correct RELSHIP, ages and sexes, or the identifiers of units"
        yield Finding(persons.name, "RELSHIP", rule, remedy, count)


def _write(
    files: Sequence[InputFile], present: Sequence[str], made: Mapping[str, np.ndarray], target: Path
) -> None:
    """The table with further columns `(n_units,)`, as one Parquet file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    first = 0
    writer: pq.ParquetWriter | None = None
    try:
        for _, batch in read_partitions(files, Selection(tuple(present))):
            n = len(next(iter(batch.values())))
            own = slice(first, first + n)
            table = _plain(batch) | {name: pa.array(values[own]) for name, values in made.items()}
            first += n
            rows = pa.table(table)
            writer = writer or pq.ParquetWriter(target, rows.schema, compression="zstd")
            writer.write_table(rows.cast(writer.schema))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        rule = "the files of the table must have columns of the same types"
        raise files[0].unreadable(rule, "write them alike") from None
    finally:
        if writer is not None:
            writer.close()


def _plain(batch: Batch) -> dict[str, pa.Array]:
    """Columns of a batch without dictionaries."""
    return {
        name: array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        for name, array in batch.items()
    }
