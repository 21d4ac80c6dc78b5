"""Readers of the census tables (persons, units, geography) for detailed groups and households.

`HHT` of a unit follows from its members: if the table has it, it is compared with them, else it is
derived (`tasks.census.members`). Seven types become five, since nonfamily households are not
distinguished by the householder's sex.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from ....validation.census.input_rules import RULES
from ....validation.detailed_groups.input_rules import (
    ETHNICITY_COLUMN,
    HOUSEHOLD_TENURE,
    RACE_COLUMNS,
    code_rules,
    household_rules,
)
from ....validation.rules import Rule
from ...census.areas import number_in
from ...census.cef_2020 import CENSUS
from ...census.cef_tables import UNIT_KEY, CefTables, recognised_columns, unit_codes, units_of
from ...census.counting import in_areas
from ...census.households import HOUSEHOLDER
from ...census.invariants import block_invariants
from ...census.joins import read_coded
from ...census.members import completed_units, household_columns
from ...ledger.recognition import RecordColumn
from ...tables.columns import is_blank_key
from ...tables.copies import RecordSums
from ..workload.specification import NONE
from ..workload.tabulations import TENURES
from .counts import ATTRIBUTE_COLUMNS, GroupsReader, PersonBatch, coded_persons, person_evidence

_RELATIONSHIP = "RELSHIP"
PERSON_COLUMNS = (*ATTRIBUTE_COLUMNS, *RACE_COLUMNS, ETHNICITY_COLUMN)

TYPE, TENURE = "HHT", "TEN"
TYPE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 3, "6": 3, "5": 4, "7": 4}
"""Type of a household by HHT: 4 and 6 live alone, 5 and 7 do not."""
TENURE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 2}
"""Tenure by TEN: rented with and without payment are one."""


@dataclass
class CensusReader(GroupsReader):
    """Reads persons and geography of the Census Edited File."""

    def __post_init__(self) -> None:
        self._tables = CefTables.of(CENSUS, {}, self.tables)
        self.files = self._tables.files

    def rules(self) -> tuple[Rule, ...]:
        """The rules on the tables."""
        return (*RULES, *code_rules(no_code=None))

    def geography(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The blocks of the states, and row by row their housing units and facilities; sound only
        if the evidence is.
        """
        before = self._tables.read_before(self.evidence, self.scratch)
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
        is_kept = blocks["TABBLKST"].isin(self.states).to_numpy()
        position = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
        has_block = units.area >= 0
        kind = unit_codes(units, has_block).kind
        invariants = block_invariants(
            frame["block_geocode"], units.area[has_block], np.maximum(kind, 0)
        )
        self._units, self._n_blocks = units, int(is_kept.sum())
        # Positions in the blocks of the states, -1 for units of other states.
        self._block_of_unit = np.where(has_block, position[units.area], -1)
        return (
            blocks[is_kept].reset_index(drop=True),
            invariants[is_kept].reset_index(drop=True),
        )

    def persons(self) -> Iterator[PersonBatch]:
        """The persons whose units lie in the blocks, batch by batch.

        Persons that a rule refuses are left out; the evidence then holds the rule.
        """
        return self._persons(PERSON_COLUMNS)

    def _persons(
        self, wanted: tuple[str, ...], household_of_unit: np.ndarray | None = None
    ) -> Iterator[PersonBatch]:
        """With the cells of households, shape (n_units,), `NONE` for none, the batches also have
        householders' cells.
        """
        units, raw = self._units, self.begin_raw(PERSON_COLUMNS, self._n_blocks)
        files, evidence = self.files["persons"], self.evidence
        sums = RecordSums(files)
        for file, batch, of_all in read_coded(files, wanted, (UNIT_KEY,)):
            sums.add(file, batch, of_all, (UNIT_KEY,))
            unit = units.index.positions(batch[UNIT_KEY])
            is_blank = is_blank_key(batch[UNIT_KEY])
            is_vacant = (unit >= 0) & (unit_codes(units, unit).occupancy == 0)
            for suite, column, mask in (
                ("persons", "blank_mafid", is_blank),
                ("cross_table", "person_in_unknown_unit", (unit < 0) & ~is_blank),
                ("cross_table", "person_in_vacant_unit", is_vacant),
            ):
                evidence.add_mask(suite, column, mask, file=file)
            block = np.where(unit < 0, -1, self._block_of_unit[unit])
            raw.add_rows({name: of_all[name] for name in PERSON_COLUMNS}, block)
            rows = block >= 0
            columns = {name: of_all[name].at(rows) for name in PERSON_COLUMNS}
            household = None
            if household_of_unit is not None:
                relationship = of_all[_RELATIONSHIP].at(rows)
                is_head = relationship.lookup(lambda value: value == str(HOUSEHOLDER), bool)
                household = np.where(is_head, household_of_unit[unit[rows]], NONE)
            if rows.any():
                person_evidence(columns, self.codes, evidence, file=file)
                yield coded_persons(columns, block[rows], self.codes, household)
        evidence.files.add_records(sums)

    def raw(self) -> list[RecordColumn]:
        """The raw columns of persons and units, by block."""
        units = replace(self._units, area=self._block_of_unit)
        return super().raw() + recognised_columns(units, self._n_blocks, self.scratch)


class HouseholdReader(CensusReader):
    """Reads housing tables too, and counts the householders among the persons."""

    def rules(self) -> tuple[Rule, ...]:
        """The rules on the tables."""
        return (*super().rules(), *household_rules())

    def persons(self) -> Iterator[PersonBatch]:
        """The persons, householders with type by tenure of their household.

        Where members contradict their units, no unit has a household. A completed table of units
        is kept in the confidential folder while it is read. Raises UnreadableInput.
        """
        n_units, block = len(self._units), self._block_of_unit
        cells, first = np.full(n_units, NONE, dtype=np.int8), 0
        with TemporaryDirectory(dir=self.scratch) as folder:
            target = Path(folder) / "units_with_members.parquet"
            units, persons = self.files["units"], self.files["persons"]
            self.findings, _, members, files = completed_units(units, persons, UNIT_KEY, target)
            self._of_households = in_areas(members.columns(), block, self._n_blocks)
            if not self.findings:
                for file, _, columns in read_coded(files, (TYPE, TENURE), ()):
                    kind, tenure = (
                        columns[name].lookup(partial(number_in, of_code), np.int8)
                        for name, of_code in ((TYPE, TYPE_OF_CODE), (TENURE, TENURE_OF_CODE))
                    )
                    counts = columns[TENURE].at(np.flatnonzero(kind != NONE)).counts()
                    self.evidence.add("units", HOUSEHOLD_TENURE, counts, file=file)
                    is_known = (kind != NONE) & (tenure != NONE)
                    found = np.where(is_known, kind * len(TENURES) + tenure, NONE)
                    cells[first : first + len(found)] = found
                    first += len(found)
                self._of_households += household_columns(
                    files, (TENURE,), block, self._n_blocks, self.scratch
                )
        return self._persons((*PERSON_COLUMNS, _RELATIONSHIP), cells)

    def raw(self) -> list[RecordColumn]:
        """The raw columns of persons, units and households, by block."""
        return super().raw() + self._of_households
