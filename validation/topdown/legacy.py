"""The P.L. 94-171 files of a release repeat its tables, record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, open_parquet, opened_text, pairs_of_rows
from .tables import STATE, LevelTables, rows_of_states

_N_VARIABLES = {"P001": 71, "P002": 73, "P003": 71, "P004": 73, "P005": 10, "H001": 3}
_SEGMENTS = {"00001": ("P001", "P002"), "00002": ("P003", "P004", "H001"), "00003": ("P005",)}
_HEADER = "geo"
_N_HEADER_FIELDS = 97
_HEADER_POSITIONS = {"SUMLEV": 2, "LOGRECNO": 7, "GEOID": 8, "POP100": 90, "HU100": 91}
_TOTALS = {"POP100": "P0010001", "HU100": "H0010001"}
_N_SEGMENT_FIELDS = 5


def check_legacy(tables: LevelTables, states: Sequence[str], failures: Failures) -> None:
    """The files of some of the states have the entities and the numbers of the tables, and every
    state of the release has its files.

    Raises UnusableRunFile for missing files, and Arrow's exceptions for files of other fields.
    """
    folder = tables.release / "pl94171"
    places = [folder]
    if len(tables.states) != 1:
        places = sorted(path for path in folder.iterdir() if path.is_dir())
    found = [_legacy_files(place, tables.declaration.is_private) for place in places]
    files = {_state_of(own): own for own in found}
    if len(found) != len(tables.states) or set(files) != set(tables.states):
        raise UnusableRunFile("pl94171 does not have a folder for each state of the geography")
    columns = {_HEADER: ["GEOID", *_TOTALS.values()]}
    columns |= {segment: _segment_variables(segment) for segment in _SEGMENTS}
    with ExitStack() as stack:
        every = [STATE, *chain(*columns.values())]
        of_levels = [
            stack.enter_context(open_parquet(tables.file(own), every)) for own in tables.levels
        ]
        for state, (part, names) in product(states, columns.items()):
            rows = chain.from_iterable(rows_of_states(own, [state], names) for own in of_levels)
            _check_part(files[state][part], part, names, rows, failures)


def _check_part(
    path: Path, part: str, names: Sequence[str], rows: Iterator[pa.RecordBatch], failures: Failures
) -> None:
    """The records of a state's file have the values of the tables' rows, column by column, and are
    numbered from 1."""
    n_fields = _N_SEGMENT_FIELDS + len(names)
    fields = [*range(_N_SEGMENT_FIELDS, n_fields), _N_SEGMENT_FIELDS - 1]
    if part == _HEADER:
        n_fields = _N_HEADER_FIELDS
        fields = [_HEADER_POSITIONS[name] for name in ("GEOID", *_TOTALS, "LOGRECNO")]
    differing = set[str]()
    is_numbered, n_seen = True, 0
    types = dict.fromkeys(map(str, fields), pa.string())
    with opened_text(path, types, header=list(map(str, range(n_fields)))) as records:
        for texts, numbers in pairs_of_rows(records, rows):
            if texts is None or numbers is None:
                failures.add(f"{path.name} does not have the entities of the tables")
                return
            *columns, number = texts.columns
            for name, text, values in zip(names, columns, numbers.columns, strict=True):
                if name not in differing and not text.equals(pc.cast(values, pa.string())):
                    differing.add(name)
                    failures.add(f"{name} in {path.name} differs from the tables")
            due = pa.array(np.arange(n_seen + 1, n_seen + texts.num_rows + 1)).cast(pa.string())
            is_numbered &= number.equals(due)
            n_seen += texts.num_rows
    if not is_numbered:
        failures.add(f"{path.name} does not number its records from 1")


def _segment_variables(segment: str) -> list[str]:
    return [
        f"{table}{number:04d}"
        for table in _SEGMENTS[segment]
        for number in range(1, _N_VARIABLES[table] + 1)
    ]


def _legacy_files(folder: Path, is_private: bool) -> dict[str, Path]:
    """The four files of a state by part; their names show whether the run was private."""
    files = {}
    for part in (_HEADER, *_SEGMENTS):
        found = [path for path in folder.glob("*.pl") if path.name[2:].startswith(part)]
        if len(found) != 1 or ("NOT_PRIVATE" in found[0].name) == is_private:
            raise UnusableRunFile(f"{folder.name} does not have one file {part} of the right name")
        files[part] = found[0]
    return files


def _state_of(files: Mapping[str, Path]) -> str:
    """The state of a header, by the geocode of its first record."""
    with files[_HEADER].open("rb") as lines:
        fields = lines.readline().split(b"|")
    if len(fields) != _N_HEADER_FIELDS:
        raise UnusableRunFile(f"{files[_HEADER].name} does not have {_N_HEADER_FIELDS} fields")
    return fields[_HEADER_POSITIONS["GEOID"]].decode(errors="replace")[-2:]
