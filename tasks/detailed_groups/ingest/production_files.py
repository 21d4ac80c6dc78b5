"""Readers of the production layout: `person-records.txt` and `GRF-C.txt`, pipe-delimited.

Persons pass through in batches; rows of other states are left out before any check, as in the
production program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from ....validation.detailed_groups.input_rules import (
    ETHNICITY_COLUMN,
    GEOGRAPHY_WIDTHS,
    PERSON_WIDTHS,
    RACE_COLUMNS,
    production_rules,
)
from ....validation.rules import Rule, Value
from ...census.joins import coded
from ...tables.columns import CodedColumn
from ...tables.layouts import Field, TableLayout
from ...tables.readers import Selection, read_batches
from ...tables.sources import InputFile
from ..settings import DATA_FILES
from .counts import GroupsReader, PersonBatch, coded_persons, person_evidence

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


@dataclass
class ProductionReader(GroupsReader):
    """Reads `person-records.txt` and `GRF-C.txt` in a folder of the production layout."""

    def __post_init__(self) -> None:
        folder = self.tables["data"].rstrip("/")
        self.files = {
            layout.table: (InputFile("data", f"{folder}/{name}", name, layout),)
            for name, layout in (
                (PERSONS_FILE, PERSONS_LAYOUT),
                (GEOGRAPHY_FILE, GEOGRAPHY_LAYOUT),
            )
        }

    def rules(self) -> tuple[Rule, ...]:
        """The rules on the tables."""
        return production_rules()

    def geography(self) -> tuple[pd.DataFrame, None]:
        """The blocks of the states, by geocode; there are no units.

        The frame has the string columns block_geocode (16 digits; the block group is the first
        digit of the block), TABBLKST, TABBLKCOU, TABTRACTCE, PLACEFP, AIANNHCE. Blocks that a rule
        refuses are in it: it is sound only if the evidence is. Further columns are allowed.
        """
        (file,), evidence = self.files["geography"], self.evidence
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
        frame = frame[frame["TABBLKST"].isin(self.states)]
        for name in GEOGRAPHY_LAYOUT.names[1:]:
            evidence.add("geography", name, _counts(frame[name]))
        whole = frame[list(BLOCK_PARTS)].notna().all(axis=1)
        repeated = frame.duplicated(list(BLOCK_PARTS), keep=False) & whole
        evidence.add_mask("cross_table", "repeated_block", repeated.to_numpy())
        state, county, tract, block = (frame[name].fillna("") for name in BLOCK_PARTS)
        frame = frame.assign(block_geocode=state + county + tract + block.str[:1] + block)
        frame = frame.sort_values("block_geocode", kind="stable", ignore_index=True)
        names = ("block_geocode", "TABBLKST", "TABBLKCOU", "TABTRACTCE", "PLACEFP", "AIANNHCE")
        self._blocks = frame[list(names)].astype("str")
        return self._blocks, None

    def persons(self) -> Iterator[PersonBatch]:
        """The persons of the states, batch by batch.

        Persons that a rule refuses are left out; the evidence then holds the rule.
        """
        (file,), evidence = self.files["persons"], self.evidence
        raw = self.begin_raw(PERSON_COLUMNS, len(self._blocks))
        # The block group, fifth from the right of the geocode, is not part of a person's record.
        geocode = self._blocks["block_geocode"].str.replace(r"^(.{11}).", r"\1", regex=True)
        known = pd.to_numeric(geocode, errors="coerce").fillna(-1).astype(np.int64)
        first = ~known.duplicated()
        index, position = pd.Index(known[first].to_numpy()), np.flatnonzero(first)
        for batch in read_batches(file, Selection(PERSONS_LAYOUT.names)):
            columns = coded(batch, PERSONS_LAYOUT.names, PERSONS_LAYOUT)
            evidence.add("persons", "TABBLKST", columns["TABBLKST"].counts())
            is_kept = columns["TABBLKST"].lookup(lambda value: value in self.states, bool)
            if not is_kept.any():
                continue
            columns = {name: column.at(is_kept) for name, column in columns.items()}
            for name in (*BLOCK_PARTS[1:], "HOUSEHOLDER"):
                evidence.add("persons", name, columns[name].counts())
            number = _block_numbers(columns)
            found = index.get_indexer(number)
            block = np.where(found < 0, -1, position[found]) if len(position) else found
            # A block that is no number is refused as such, not as unknown.
            is_unknown = (number >= 0) & (block < 0)
            evidence.add_mask("cross_table", "person_in_unknown_block", is_unknown)
            person_evidence(columns, self.codes, evidence)
            raw.add_rows(columns, block)
            yield coded_persons(columns, block, self.codes)


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
