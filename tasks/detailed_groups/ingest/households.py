"""Types and tenures of households, from the records of units and of their members.

`HHT` of a unit is what its members say: where the table has it, it is compared with them, and where
it lacks it, it is made (`tasks.census.members`). Of seven types five stay, since nonfamily
households are not told apart by the householder's sex.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ....validation.detailed_groups.input_rules import HOUSEHOLD_TENURE
from ...census.cef_tables import UNIT_KEY
from ...census.counting import in_areas
from ...census.evidence import EvidenceTally
from ...census.joins import read_coded
from ...census.members import completed_files, completed_units, household_columns
from ...ledger.recognition import RecordColumn
from ...tables.findings import Finding
from ...tables.sources import InputFile
from ..workload.mapping import NONE
from ..workload.tabulations import TENURES

TYPE, TENURE = "HHT", "TEN"
TYPE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 3, "6": 3, "5": 4, "7": 4}
"""Type of a household by HHT: 4 and 6 live alone, 5 and 7 do not."""
TENURE_OF_CODE = {"1": 0, "2": 1, "3": 2, "4": 2}
"""Tenure by TEN: rented with payment or without is one."""


def household_cells(
    units: Sequence[InputFile],
    persons: Sequence[InputFile],
    evidence: EvidenceTally,
    block: np.ndarray,
    n_blocks: int,
    scratch: Path | None = None,
) -> tuple[np.ndarray, tuple[Finding, ...], list[RecordColumn]]:
    """Type by tenure of the household of every unit, shape (n_units,), `NONE` for none, and what
    members contradict; then no unit has a household. Third come the raw columns of units and
    members by block, of which `block` has that of every unit, -1 for none.

    The evidence gets the tenures of households. A completed table is kept in the confidential
    folder `scratch` while it is read. Raises UnreadableInput.
    """
    with TemporaryDirectory(dir=scratch) as folder:
        target = Path(folder) / "units_with_members.parquet"
        findings, _, members = completed_units(units, persons, UNIT_KEY, target)
        files = completed_files(units, target)
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
