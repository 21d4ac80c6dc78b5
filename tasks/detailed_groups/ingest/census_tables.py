"""Readers of the census tables (persons, units, geography) for detailed groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ....validation.detailed_groups.input_rules import ETHNICITY_COLUMN, RACE_COLUMNS
from ...census.cef_tables import UNIT_KEY, load_geography, load_units, unit_codes
from ...census.counting import RawColumns
from ...census.evidence import EvidenceTally
from ...census.households import HOUSEHOLDER
from ...census.invariants import block_invariants
from ...census.joins import JoinedTable, coded
from ...tables.columns import is_blank_key
from ...tables.copies import RecordSums
from ...tables.layouts import PERSONS_LAYOUT
from ...tables.readers import Selection, read_partitions
from ...tables.sources import InputFile
from ..workload.mapping import NONE
from .persons import ATTRIBUTE_COLUMNS, PersonBatch, coded_persons, person_evidence

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
    files: Mapping[str, Sequence[InputFile]],
    states: Collection[str],
    evidence: EvidenceTally,
    scratch: Path | None = None,
) -> CensusGeography:
    """Read the geography and the units; sound only if the evidence is.

    What is large of the units goes to temporary files in the folder `scratch`.
    """
    geography = load_geography(files["geography"], evidence)
    units = load_units(files["units"], geography, evidence, scratch)
    frame = geography.frame
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
    evidence: EvidenceTally,
    raw: RawColumns,
    household_of_unit: np.ndarray | None = None,
) -> Iterator[PersonBatch]:
    """The persons whose units lie in the blocks, batch by batch.

    Persons that a rule refuses are left out; the evidence then holds the rule. `raw` gets the
    `PERSON_COLUMNS` of all by block. With the cells of households, shape (n_units,), `NONE` for
    none, the batches tell those of householders.
    """
    units = geography.units
    wanted = PERSON_COLUMNS if household_of_unit is None else (*PERSON_COLUMNS, _RELATIONSHIP)
    sums = RecordSums(files)
    for file, batch in read_partitions(files, Selection((UNIT_KEY, *wanted))):
        of_all = coded(batch, wanted, PERSONS_LAYOUT)
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
