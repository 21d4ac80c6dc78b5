"""The redistricting tables as a P.L. 94-171 release: the files that redistricting software reads.

A state has a geographic header (`rigeo2020.pl`) and three segments (`ri000012020.pl`: P1 and P2;
`ri000022020.pl`: P3, P4 and H1; `ri000032020.pl`: P5). They are pipe-delimited without a header
line; the records of a geographic entity share a LOGRECNO in all four. Records are numbered from 1,
summary level by summary level and by geocode.

The files of one state lie in the folder itself, those of several in a folder for each, because
readers take a folder for a state. The format has no room for a stamp; of a run that is not private
the files carry it in their names (`rigeo2020_NOT_PRIVATE.pl`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ....census.cef_2020 import PERSONS, UNITS
from ....census.states import State, state_of
from ....runs.files import NOT_PRIVATE, replacing
from ..text_rows import numbered_rows, text_lines
from .header import (
    CONSTANTS,
    HEADER_FIELDS,
    header_columns,
)
from .levels import SUMMARY_LEVELS
from .tables import (
    LevelTable,
    Tabulation,
)
from .variables import variables_of

LEGACY_FORMAT = "pl94171"
"""Folder of the files in a release."""

YEAR = "2020"
"""Year of the layout, in the names of the files."""

GEOGRAPHIC_HEADER = "geo"
SEGMENTS = {"00001": ("P1", "P2"), "00002": ("P3", "P4", "H1"), "00003": ("P5",)}
"""Tables of each segment, by what its file name has for it."""
SEGMENT_FIELDS = ("FILEID", "STUSAB", "CHARITER", "CIFSN", "LOGRECNO")
"""Fields before the variables of a segment's record."""
DELIMITER = "|"


@cache
def segment_variables(segment: str) -> tuple[str, ...]:
    """Names of the variables of a segment, in order.

    >>> len(segment_variables("00002"))
    147
    """
    prefixes = tuple(f"{table[0]}{int(table[1:]):03d}" for table in SEGMENTS[segment])
    variables = (*variables_of(PERSONS), *variables_of(UNITS))
    return tuple(name for prefix in prefixes for name in variables if name.startswith(prefix))


def legacy_files(
    directory: Path, states: Sequence[str], *, is_private: bool = True
) -> dict[str, list[Path]]:
    """The four files of each state by its FIPS code, header first."""
    folder = directory / LEGACY_FORMAT
    stamp = "" if is_private else f"_{NOT_PRIVATE.replace(' ', '_')}"
    files = {}
    for fips in states:
        state = state_of(fips).abbreviation.lower()
        place = folder if len(states) == 1 else folder / state
        parts = (GEOGRAPHIC_HEADER, *SEGMENTS)
        files[fips] = [place / f"{state}{part}{YEAR}{stamp}.pl" for part in parts]
    return files


def write_state(tabulation: Tabulation, fips: str, files: Sequence[Path]) -> None:
    """Write the four files of a state, header first, from the tabulation of its blocks."""
    state = state_of(fips)
    fields = pa.schema([(name, pa.string()) for name in HEADER_FIELDS])
    segments = [segment_variables(segment) for segment in SEGMENTS]
    column_of = {name: column for column, name in enumerate(tabulation.variables)}
    columns = [np.array([column_of[name] for name in names]) for names in segments]
    with ExitStack() as stack:
        streams = [
            stack.enter_context(stack.enter_context(replacing(file)).open("wb")) for file in files
        ]
        n_records = 0
        for level in SUMMARY_LEVELS.values():
            records = _records(tabulation.level(level), tabulation.geography, n_records)
            for header, counts, numbers in records:
                streams[0].write(_header_lines(header, numbers, fields))
                for number, (stream, own) in enumerate(zip(streams[1:], columns, strict=True), 1):
                    stream.write(_segment_lines(counts[:, own], numbers, state, number))
                n_records += len(numbers)


def _records(
    table: LevelTable, geography: pd.DataFrame, n_before: int
) -> Iterator[tuple[dict[str, pa.Array], np.ndarray, np.ndarray]]:
    """The records of one summary level of a state, after `n_before` others, some at a time: header
    fields that are known, by name, variables `(n, n_variables)` and numbers of records."""
    known = header_columns(table.entities, geography)
    column_of = {name: column for column, name in enumerate(table.variables)}
    for start, rows in table.batches():
        header = {name: column.slice(start, len(rows)) for name, column in known.items()}
        header["POP100"] = pa.array(np.ascontiguousarray(rows[:, column_of["P0010001"]]))
        header["HU100"] = pa.array(np.ascontiguousarray(rows[:, column_of["H0010001"]]))
        yield header, rows, n_before + start + 1 + np.arange(len(rows))


def _header_lines(
    header: Mapping[str, pa.Array], record_number: np.ndarray, schema: pa.Schema
) -> pa.Buffer:
    empty = pa.repeat(pa.scalar(""), len(record_number))
    columns = {**header, "LOGRECNO": pa.array(record_number)}
    arrays = [columns.get(name, empty).cast(pa.string()) for name in schema.names]
    return text_lines(arrays, schema, DELIMITER)


def _segment_lines(
    counts: np.ndarray, record_number: np.ndarray, state: State, number: int
) -> memoryview:
    file_id, iteration = CONSTANTS["FILEID"], CONSTANTS["CHARITER"]
    constants = (file_id, state.abbreviation, iteration, f"{number:02d}")
    lines = (DELIMITER.join(constants) + "\n").encode() * len(counts)
    return numbered_rows(lines, np.column_stack([record_number, counts]), DELIMITER)
