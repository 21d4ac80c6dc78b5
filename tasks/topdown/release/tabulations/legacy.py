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
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from ....census.cef_2020 import PERSONS, UNITS
from ....census.states import state_of
from ....runs.files import NOT_PRIVATE, replacing
from .header import HEADER_FIELDS, header_columns
from .levels import SUMMARY_LEVELS
from .tables import LevelTable, Tabulation
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
_FORM = pyarrow.csv.WriteOptions(include_header=False, delimiter="|", quoting_style="none")


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
    fields = [HEADER_FIELDS]
    fields += [(*SEGMENT_FIELDS, *segment_variables(segment)) for segment in SEGMENTS]
    with ExitStack() as stack:
        streams = [
            stack.enter_context(stack.enter_context(replacing(file)).open("wb")) for file in files
        ]
        n_records = 0
        for level in SUMMARY_LEVELS.values():
            table = tabulation.level(level)
            for columns in _records(table, tabulation.geography, n_records):
                for number, (stream, names) in enumerate(zip(streams, fields, strict=True)):
                    if number:
                        columns["CIFSN"] = f"{number:02d}"
                    _write(stream, columns, names)
            n_records += len(table.entities)


def _records(
    table: LevelTable, geography: pd.DataFrame, n_before: int
) -> Iterator[dict[str, pa.Array | str]]:
    """The records of one summary level of a state, after `n_before` others, some at a time: columns
    of header fields that are known, and of variables, by name."""
    known = header_columns(table.entities, geography)
    for start, rows in table.batches():
        columns = {name: column.slice(start, len(rows)) for name, column in known.items()}
        values = map(pa.array, np.ascontiguousarray(rows.T))
        columns |= dict(zip(table.variables, values, strict=True))
        columns["POP100"], columns["HU100"] = columns["P0010001"], columns["H0010001"]
        columns["LOGRECNO"] = pa.array(n_before + start + 1 + np.arange(len(rows)))
        yield columns


def _write(stream: BinaryIO, columns: Mapping[str, pa.Array | str], fields: Sequence[str]) -> None:
    """Write records; fields without a column are empty."""
    n = len(columns["LOGRECNO"])
    arrays = [columns.get(name, "") for name in fields]
    arrays = [pa.repeat(pa.scalar(a), n) if isinstance(a, str) else a for a in arrays]
    pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(arrays, list(fields)), stream, _FORM)
