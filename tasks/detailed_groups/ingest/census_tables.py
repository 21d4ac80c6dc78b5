"""Readers of the census tables (persons, units, geography) for detailed groups and households.

`HHT` of a unit follows from its members: if the table has it, it is compared with them, else it is
derived (`tasks.census.members`). Seven types become five, since nonfamily households are not
distinguished by the householder's sex.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from ....validation.detailed_groups.input_rules import (
    ETHNICITY_COLUMN,
    HOUSEHOLD_TENURE,
    RACE_COLUMNS,
)
from ...census.cef_tables import UNIT_KEY, CefTables, unit_codes, units_of
from ...census.counting import RawColumns, in_areas
from ...census.households import HOUSEHOLDER
from ...census.invariants import block_invariants
from ...census.joins import JoinedTable, read_coded
from ...census.members import completed_units, household_columns
from ...census.value_tallies import ValueTally
from ...ledger.recognition import RecordColumn
from ...tables.columns import is_blank_key
from ...tables.copies import RecordSums
from ...tables.findings import Finding
from ...tables.sources import InputFile
from ..workload.specification import NONE
from ..workload.tabulations import TENURES
from .counts import ATTRIBUTE_COLUMNS, PersonBatch, coded_persons, person_evidence

_RELATIONSHIP = "RELSHIP"
PERSON_COLUMNS = (*ATTRIBUTE_COLUMNS, *RACE_COLUMNS, ETHNICITY_COLUMN)


@dataclass(frozen=True)
class CensusGeography:
    """Blocks of some states, and the units of all.

    `blocks` has the columns of `production_files.read_geography`, `invariants` each block's housing
    units and facilities, row by row. `block_of_unit` is a position in `blocks`, -1 for units of
    other states, shape (n_units,).
    """

    blocks: pd.DataFrame
    invariants: pd.DataFrame
    units: JoinedTable
    block_of_unit: np.ndarray


def read_geography(
    tables: CefTables,
    states: Collection[str],
    evidence: ValueTally,
    scratch: Path | None = None,
) -> CensusGeography:
    """Read the geography and the units; sound only if the evidence is.

    Large columns of the units go to temporary files in the folder `scratch`.
    """
    before = tables.read_before(evidence, scratch)
    frame, units = before.areas.frame, units_of(before)
    geocode = frame["block_geocode"].str
    blocks = pd.DataFrame(
        {
            "block_geocode": frame["block_geocode"],
            "TABBLKST": geocode[:2],
            "TABBLKCOU": geocode[2:5],
            "TABTRACTCE": geocode[5:11],
            "PLACEFP": frame["PLACEFP"],
            "AIANNHCE": frame["AIANNHCE"],
        }
    )
    is_kept = blocks["TABBLKST"].isin(set(states)).to_numpy()
    position = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    has_block = units.area >= 0
    kind = unit_codes(units, has_block).kind
    invariants = block_invariants(
        frame["block_geocode"], units.area[has_block], np.maximum(kind, 0)
    )
    return CensusGeography(
        blocks[is_kept].reset_index(drop=True),
        invariants[is_kept].reset_index(drop=True),
        units,
        np.where(has_block, position[units.area], -1),
    )


def read_persons(
    files: Sequence[InputFile],
    geography: CensusGeography,
    codes: Mapping[str, int],
    evidence: ValueTally,
    raw: RawColumns,
    household_of_unit: np.ndarray | None = None,
) -> Iterator[PersonBatch]:
    """The persons whose units lie in the blocks, batch by batch.

    Persons that a rule refuses are left out; the evidence then holds the rule. `raw` gets the
    `PERSON_COLUMNS` of all by block. With the cells of households, shape (n_units,), `NONE` for
    none, the batches also have householders' cells.
    """
    units = geography.units
    wanted = PERSON_COLUMNS if household_of_unit is None else (*PERSON_COLUMNS, _RELATIONSHIP)
    sums = RecordSums(files)
    for file, batch, of_all in read_coded(files, wanted, (UNIT_KEY,)):
        sums.add(file, batch, of_all, (UNIT_KEY,))
        unit = units.index.positions(batch[UNIT_KEY])
        is_blank = is_blank_key(batch[UNIT_KEY])
        for suite, column, mask in (
            ("persons", "blank_mafid", is_blank),
            ("cross_table", "person_in_unknown_unit", (unit < 0) & ~is_blank),
            (
                "cross_table",
                "person_in_vacant_unit",
                (unit >= 0) & (unit_codes(units, unit).occupancy == 0),
            ),
        ):
            evidence.add_mask(suite, column, mask, file=file)
        block = np.where(unit < 0, -1, geography.block_of_unit[unit])
        household = None
        if household_of_unit is not None:
            relationship = of_all[_RELATIONSHIP]
            is_head = relationship.lookup(lambda value: value == str(HOUSEHOLDER), bool)
            household = np.where(is_head & (unit >= 0), household_of_unit[unit], NONE)
        columns = {name: of_all[name] for name in PERSON_COLUMNS}
        raw.add_rows(columns, block)
        rows = block >= 0
        if not rows.all():
            columns = {name: column.at(rows) for name, column in columns.items()}
            block = block[rows]
            household = None if household is None else household[rows]
        if block.size:
            person_evidence(columns, codes, evidence, file=file)
            yield coded_persons(columns, block, codes, household)
    evidence.files.add_records(sums)


TYPE, TENURE = "HHT", "TEN"
TYPE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 3, "6": 3, "5": 4, "7": 4}
"""Type of a household by HHT: 4 and 6 live alone, 5 and 7 do not."""
TENURE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 2}
"""Tenure by TEN: rented with and without payment are one."""


def household_cells(
    units: Sequence[InputFile],
    persons: Sequence[InputFile],
    evidence: ValueTally,
    block: np.ndarray,
    n_blocks: int,
    scratch: Path | None = None,
) -> tuple[np.ndarray, tuple[Finding, ...], list[RecordColumn]]:
    """Type by tenure of the household of every unit, shape (n_units,), `NONE` for none, and
    contradictions by members, in which case no unit has a household. Third, the raw columns of
    units and members by block; `block` has every unit's block, -1 for none.

    The evidence gets the tenures of households. A completed table is kept in the confidential
    folder `scratch` while it is read. Raises UnreadableInput.
    """
    with TemporaryDirectory(dir=scratch) as folder:
        target = Path(folder) / "units_with_members.parquet"
        findings, _, members, files = completed_units(units, persons, UNIT_KEY, target)
        cells = []
        for file, _, columns in read_coded(files, (TYPE, TENURE), ()) if not findings else ():
            kind = columns[TYPE].lookup(lambda value: TYPE_OF_CODE.get(value or "", NONE), np.int8)
            tenure = columns[TENURE].lookup(
                lambda value: TENURE_OF_CODE.get(value or "", NONE), np.int8
            )
            counts = columns[TENURE].at(np.flatnonzero(kind != NONE)).counts()
            evidence.add("units", HOUSEHOLD_TENURE, counts, file=file)
            is_known = (kind != NONE) & (tenure != NONE)
            cells.append(np.where(is_known, kind * len(TENURES) + tenure, NONE))
        raw = in_areas(members.columns(), block, n_blocks)
        if not findings:
            raw += household_columns(files, (TENURE,), block, n_blocks, scratch)
    if findings:
        n_units = sum(len(batch[UNIT_KEY]) for _, batch, _ in read_coded(units, (), (UNIT_KEY,)))
        return np.full(n_units, NONE, dtype=np.int8), findings, []
    return np.concatenate(cells), (), raw
