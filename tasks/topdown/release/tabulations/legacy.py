"""The redistricting tables as a P.L. 94-171 release: the files that redistricting software reads.

A state has a geographic header (`rigeo2020.pl`) and three segments (`ri000012020.pl`: P1 and P2;
`ri000022020.pl`: P3, P4 and H1; `ri000032020.pl`: P5). They are pipe-delimited without a header
line; the records of a geographic entity share a LOGRECNO in all four. Records are numbered from 1,
summary level by summary level and by geocode.

The files of one state are in the folder itself, of several in a folder for each, because readers
take a folder for a state. The format has no room for a stamp; of a run that is not private the
files carry it in their names (`rigeo2020_NOT_PRIVATE.pl`).

The geographic header of a P.L. 94-171 release: 97 fields a record.

Fields are filled from the geography frame, the summary level and the state; other fields are empty,
as are inapplicable ones. Further columns of the geography frame that are named as a field (SDUNI,
VTD, CBSA, AREALAND, ...) fill it where that field is given: all of them for blocks, metropolitan
areas for every entity of a county, areas as sums over blocks. Names and points of entities come
from `names`.
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
import pyarrow.compute as pc
import pyarrow.csv

from ....census.cef_2020 import PERSONS, UNITS, state_of
from ....census.queries import incidence
from ....runs.files import NOT_PRIVATE, read_declared, replacing
from ....runs.stamps import stamp_at
from .levels import COLUMNS, OUTSIDE, Entities, further_column, own_columns, texts_of, variables_of
from .tables import LevelTable, geoid

_DECLARED = read_declared(Path(__file__).parent / "presets" / "header.toml")

HEADER_FIELDS = tuple(_DECLARED["fields"].split())
"""Names of the fields, in order."""

CONSTANTS: Mapping[str, str] = _DECLARED["constants"]
"""Fields with one value in all records."""

_METROPOLITAN = ("CBSA", "MEMI", "CSA", "METDIV")
"""Fields that hold for a whole county."""
_WITHIN_COUNTIES = ("050", "060", "140", "150")

_AREAS = ("AREALAND", "AREAWATR")


def header_columns(entities: Entities) -> dict[str, pa.Array]:
    """The known header fields of entities, by name.

    Left out are LOGRECNO, POP100 and HU100, which are not geography, and fields that are empty.
    """
    level, geography, n = entities.level, entities.geography, len(entities)
    constants = {
        **CONSTANTS,
        "SUMLEV": level.code,
        "LSADC": _DECLARED["legal_descriptions"].get(level.code, ""),
        "FUNCSTAT": _DECLARED["functional_statuses"].get(level.code, ""),
    }
    columns = {name: pa.repeat(pa.scalar(value), n) for name, value in constants.items()}
    columns |= entities.parts
    columns |= _state_columns(entities.parts["STATE"])
    columns["GEOCODE"] = entities.geocode
    columns["GEOID"] = geoid(level, entities.geocode)
    columns["BASENAME"], columns["NAME"] = _names(entities)
    if level.code == "750":
        columns |= _block_columns(geography)
    elif level.code in _WITHIN_COUNTIES:
        for name in set(_METROPOLITAN) & set(geography.columns):
            columns[name] = further_column(geography, name).take(entities.first_block)
    for name in set(_AREAS) & set(geography.columns):
        columns[name] = _area(entities, geography[name])
    for name, column in own_columns(entities).items():
        known = columns.get(name, pa.repeat(pa.scalar(""), len(entities)))
        columns[name] = pc.if_else(pc.equal(column, ""), known.cast(pa.string()), column)
    return columns


def _state_columns(fips: pa.Array) -> dict[str, pa.Array]:
    encoded = fips.dictionary_encode()
    states = [state_of(code) for code in encoded.dictionary.to_pylist()]
    return {
        name: pa.array([getattr(state, attribute) for state in states], pa.string()).take(
            encoded.indices
        )
        for name, attribute in _DECLARED["of_states"].items()
    }


def _block_columns(geography: pd.DataFrame) -> dict[str, pa.Array]:
    """Fields of blocks: entities they belong to, and every further column named as a field.

    Blocks by geocode are in the order of the geography frame.
    """
    further = set(HEADER_FIELDS) & set(geography.columns) - set(_AREAS)
    columns = {name: further_column(geography, name) for name in further}
    for name, column in COLUMNS.items():
        columns[name] = texts_of(geography[column])
    columns["BLKGRP"] = pc.utf8_slice_codeunits(texts_of(geography["block_geocode"]), 11, 12)
    for part, fields in _DECLARED["outside"].items():
        is_outside = pc.equal(columns[part], OUTSIDE[part])
        for name, code in fields.items():
            if name not in columns:
                columns[name] = pc.if_else(is_outside, code, "")
    return columns


def _names(entities: Entities) -> tuple[pa.Array, pa.Array]:
    """BASENAME and NAME; an entity without a known name is named by its code."""
    level = entities.level
    code = entities.parts[level.parts[-1]]
    if level.code == "040":
        names = pa.array([state_of(fips).name for fips in code.to_pylist()], pa.string())
        return names, names
    if level.code == "140":
        # The last two of the six digits are decimals, written only where there are any.
        whole = pc.utf8_ltrim(pc.utf8_slice_codeunits(code, 0, 4), "0")
        decimals = pc.utf8_slice_codeunits(code, 4, 6)
        with_decimals = pc.binary_join_element_wise(whole, decimals, ".")
        code = pc.if_else(pc.equal(decimals, "00"), whole, with_decimals)
        return code, pc.binary_join_element_wise("Census Tract ", code, "")
    kind = level.name if level.code == "280" else level.name.title()
    return code, pc.binary_join_element_wise(f"{kind} ", code, "")


def _area(entities: Entities, column: pd.Series) -> pa.Array:
    """Square metres, summed over the blocks of each entity; empty if some block's is no number."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().any():
        return pa.repeat(pa.scalar(""), len(entities))
    values = numbers.to_numpy(dtype=np.int64)
    return pa.array(incidence(entities.block_entity, len(entities)) @ values)


LEGACY_FORMAT = "pl94171"
"""Folder of the files in a release."""

YEAR = "2020"
"""Year of the layout, in the names of the files."""

GEOGRAPHIC_HEADER = "geo"
SEGMENTS = {"00001": ("P1", "P2"), "00002": ("P3", "P4", "H1"), "00003": ("P5",)}
"""Tables of each segment, by the segment's code in its file name."""
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


def legacy_files(directory: Path, states: Sequence[str]) -> dict[str, list[Path]]:
    """The four files of each state by its FIPS code, header first."""
    folder = directory / LEGACY_FORMAT
    stamp = f"_{NOT_PRIVATE.replace(' ', '_')}" if stamp_at(folder) else ""
    files = {}
    for fips in states:
        state = state_of(fips).abbreviation.lower()
        place = folder if len(states) == 1 else folder / state
        parts = (GEOGRAPHIC_HEADER, *SEGMENTS)
        files[fips] = [place / f"{state}{part}{YEAR}{stamp}.pl" for part in parts]
    return files


def write_state(tables: Sequence[LevelTable], files: Sequence[Path]) -> None:
    """Write the four files of a state, header first, from its tables of every summary level."""
    fields = [HEADER_FIELDS]
    fields += [(*SEGMENT_FIELDS, *segment_variables(segment)) for segment in SEGMENTS]
    with ExitStack() as stack:
        streams = [
            stack.enter_context(stack.enter_context(replacing(file)).open("wb")) for file in files
        ]
        n_records = 0
        for table in tables:
            for columns in _records(table, n_records):
                for number, (stream, names) in enumerate(zip(streams, fields, strict=True)):
                    if number:
                        columns["CIFSN"] = f"{number:02d}"
                    _write(stream, columns, names)
            n_records += len(table.entities)


def _records(table: LevelTable, n_before: int) -> Iterator[dict[str, pa.Array | str]]:
    """The records of one summary level of a state, after `n_before` others, some at a time: columns
    of header fields that are known, and of variables, by name."""
    known = header_columns(table.entities)
    for columns in table.batches(known):
        persons, units = columns["P0010001"], columns["H0010001"]
        numbers = pa.array(n_before + 1 + np.arange(len(persons)))
        n_before += len(persons)
        yield columns | {"POP100": persons, "HU100": units, "LOGRECNO": numbers}


def _write(stream: BinaryIO, columns: Mapping[str, pa.Array | str], fields: Sequence[str]) -> None:
    """Write records; fields without a column are empty."""
    n = len(columns["LOGRECNO"])
    arrays = [columns.get(name, "") for name in fields]
    arrays = [pa.repeat(pa.scalar(a), n) if isinstance(a, str) else a for a in arrays]
    pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(arrays, list(fields)), stream, _FORM)
