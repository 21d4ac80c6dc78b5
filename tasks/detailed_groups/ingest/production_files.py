"""Readers of the production layout: `person-records.txt` and `GRF-C.txt`, pipe-delimited.

Persons pass through in batches; rows of other states are left out before any check, as in the
production program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd

from ....validation.detailed_groups.input_rules import (
    ETHNICITY_COLUMN,
    GEOGRAPHY_WIDTHS,
    PERSON_WIDTHS,
    RACE_COLUMNS,
)
from ....validation.rules import Value
from ...census.counting import RawColumns
from ...census.joins import coded
from ...census.value_tallies import ValueTally
from ...tables.columns import CodedColumn
from ...tables.layouts import Field, TableLayout
from ...tables.readers import Selection, read_batches
from ...tables.sources import InputFile, TextStream, open_binary
from ..settings import DATA_FILES
from .counts import PersonBatch, coded_persons, person_evidence

PERSONS_FILE, GEOGRAPHY_FILE = DATA_FILES

PERSONS_LAYOUT = TableLayout(
    "persons",
    (
        Field("QAGE", "number"),
        Field("QSEX", "number"),
        Field("HOUSEHOLDER", "text"),
        *(Field(name, "text") for name in PERSON_WIDTHS),
        Field("CENRACE", "number"),
        *(Field(name, "text") for name in RACE_COLUMNS),
        Field(ETHNICITY_COLUMN, "text"),
    ),
    column_names="production",
)
GEOGRAPHY_LAYOUT = TableLayout(
    "geography", tuple(Field(name, "text") for name in GEOGRAPHY_WIDTHS), column_names="production"
)

BLOCK_PARTS = tuple(PERSON_WIDTHS)
PERSON_COLUMNS = tuple(name for name in PERSONS_LAYOUT.names if name not in BLOCK_PARTS)


def data_file(directory: str, layout: TableLayout) -> InputFile:
    """The persons or the geography in a data directory of the production layout."""
    name = PERSONS_FILE if layout is PERSONS_LAYOUT else GEOGRAPHY_FILE
    return InputFile("data", f"{directory.rstrip('/')}/{name}", name, layout)


def read_geography(file: InputFile, states: Collection[str], evidence: ValueTally) -> pd.DataFrame:
    """The blocks of some states, by geocode.

    The frame has the string columns block_geocode (16 digits; the block group is the first digit
    of the block), TABBLKST, TABBLKCOU, TABTRACTCE, PLACEFP, AIANNHCE. Blocks that a rule refuses
    are in it: it is sound only if the evidence is. Further columns are allowed.
    """
    _check_header(file, exactly=False)
    parts = [
        pd.DataFrame(
            {
                name: CodedColumn.from_arrow(array, GEOGRAPHY_LAYOUT.field(name)).texts()
                for name, array in batch.items()
            },
            dtype=object,
        )
        for batch in read_batches(file, Selection(GEOGRAPHY_LAYOUT.names))
    ]
    frame = pd.concat(parts, ignore_index=True)
    evidence.add("geography", "TABBLKST", _counts(frame["TABBLKST"]))
    frame = frame[frame["TABBLKST"].isin(set(states))]
    for name in GEOGRAPHY_LAYOUT.names[1:]:
        evidence.add("geography", name, _counts(frame[name]))
    whole = frame[list(BLOCK_PARTS)].notna().all(axis=1)
    repeated = frame.duplicated(list(BLOCK_PARTS), keep=False) & whole
    evidence.add_mask("cross_table", "repeated_block", repeated.to_numpy())
    state, county, tract, block = (frame[name].fillna("") for name in BLOCK_PARTS)
    frame = frame.assign(block_geocode=state + county + tract + block.str[:1] + block)
    frame = frame.sort_values("block_geocode", kind="stable", ignore_index=True)
    names = ("block_geocode", "TABBLKST", "TABBLKCOU", "TABTRACTCE", "PLACEFP", "AIANNHCE")
    return frame[list(names)].astype("str")


def read_persons(
    file: InputFile,
    blocks: pd.DataFrame,
    states: Collection[str],
    codes: Mapping[str, int],
    evidence: ValueTally,
    raw: RawColumns,
) -> Iterator[PersonBatch]:
    """The persons of some states, batch by batch; `raw` gets their `PERSON_COLUMNS` by block.

    `blocks` is the result of `read_geography`, `codes` the number of every race or ethnicity code.
    Persons that a rule refuses are left out; the evidence then holds the rule.
    """
    _check_header(file, exactly=True)
    # The block group, fifth from the right of the geocode, is not part of a person's record.
    geocode = blocks["block_geocode"].str.replace(r"^(.{11}).", r"\1", regex=True)
    known = pd.to_numeric(geocode, errors="coerce").fillna(-1).astype(np.int64)
    first = ~known.duplicated()
    index, position = pd.Index(known[first].to_numpy()), np.flatnonzero(first)
    for batch in read_batches(file, Selection(PERSONS_LAYOUT.names)):
        columns = coded(batch, PERSONS_LAYOUT.names, PERSONS_LAYOUT)
        evidence.add("persons", "TABBLKST", columns["TABBLKST"].counts())
        is_kept = columns["TABBLKST"].lookup(lambda value: value in states, bool)
        if not is_kept.all():
            columns = {name: column.at(is_kept) for name, column in columns.items()}
        if not is_kept.any():
            continue
        for name in (*BLOCK_PARTS[1:], "HOUSEHOLDER"):
            evidence.add("persons", name, columns[name].counts())
        number = _block_numbers(columns)
        found = index.get_indexer(number)
        block = np.where(found < 0, -1, position[found]) if len(position) else found
        # A block that is no number is refused as such, not as unknown.
        evidence.add_mask("cross_table", "person_in_unknown_block", (number >= 0) & (block < 0))
        person_evidence(columns, codes, evidence)
        raw.add_rows(columns, block)
        yield coded_persons(columns, block, codes)


def _block_numbers(columns: Mapping[str, CodedColumn]) -> np.ndarray:
    """State, county, tract and block of each person as one number, -1 where they are not digits."""
    number = np.zeros(columns["TABBLK"].codes.size, dtype=np.int64)
    is_whole = np.ones(number.size, dtype=bool)
    for name, width in PERSON_WIDTHS.items():
        part = columns[name].lookup(partial(_digits, width=width), np.int64)
        is_whole &= part >= 0
        number = number * 10**width + part
    return np.where(is_whole, number, -1)


def _digits(value: str | None, width: int) -> int:
    if value is None or len(value) != width or not value.isascii() or not value.isdigit():
        return -1
    return int(value)


def _counts(values: pd.Series) -> dict[Value, int]:
    counts = values.value_counts(dropna=False)
    return {None if pd.isna(value) else value: int(n) for value, n in counts.items()}


def _check_header(file: InputFile, *, exactly: bool) -> None:
    """Refuse columns that are missing, or, if `exactly`, in another order or not in the layout."""
    names = file.columns.names
    with open_binary(file) as stream:
        line = TextStream(file, stream).read_line().decode("utf-8", "replace")
    header = [name.strip('"') for name in line.split("|")]
    if exactly and header != list(names):
        raise file.unreadable(
            f"the first line must be {'|'.join(names)}", "correct the columns and their order"
        )
    for name in names:
        if name not in header:
            raise file.unreadable(
                f"the column {name} is missing from the first line", "add it", column=name
            )
