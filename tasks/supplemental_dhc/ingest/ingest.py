"""Ingest of a run of the supplemental tables: public areas, and counts of people by area.

An area is all blocks in the same regions of every level. The input is read, checked, and turned
into counts by area in the run directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ....validation.outcome import Outcome
from ....validation.rules import TENURE_RULE
from ...census.cef_2020 import CENSUS, UNITS
from ...census.cef_tables import UNIT_KEY, CefTables, read_blocks
from ...census.census_input import CensusInput
from ...census.counting import in_areas
from ...census.histograms import read_histogram, write_histogram
from ...census.invariants import GEOCODE_DIGITS, codes_of_level
from ...census.members import completed_units, household_columns
from ...ledger.identity import store_identity
from ...ledger.plan import UniversePlan
from ...runs.directory import RunDirectory
from ...runs.settings_files import frozen_settings
from ...runs.stamps import write_parquet
from ...tables.columns import temporary_files_in, temporary_folder
from ...tables.findings import InputCheck, UnreadableInput, accepted_input, refuse_unreadable
from ...tables.value_tallies import ValueTally
from ..plan import N_COLUMNS, UNIVERSE, areas_file, make_plan
from ..settings import SupplementalDhcSettings
from .households import TENURE, count_people, read_households


@dataclass(frozen=True, eq=False)
class Areas:
    """The regions of areas, by level in the order of the settings.

    regions : codes of the regions of every level, ascending.
    region_of_area : by level, the position of every area's region, `(n_areas,)`; -1 for
        none.
    """

    regions: dict[str, np.ndarray]
    region_of_area: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.region_of_area.values())))

    @property
    def names(self) -> np.ndarray:
        """Names of the areas in files, ascending."""
        return np.array([f"{number:08d}" for number in range(len(self))], dtype=object)

    @property
    def n_regions(self) -> dict[str, int]:
        """The number of regions of every level."""
        return {name: len(own) for name, own in self.regions.items()}

    def summed(self, level: str, counts: np.ndarray) -> np.ndarray:
        """Sum counts to the regions of a level `(n_regions, n)`, from those of areas `(n_areas,
        n)`."""
        region = self.region_of_area[level]
        is_inside = region >= 0
        found = np.zeros((len(self.regions[level]), counts.shape[1]), dtype=np.int64)
        np.add.at(found, region[is_inside], counts[is_inside])
        return found


def areas_of(
    geography: pd.DataFrame, levels: Sequence[str], file: str = "geography"
) -> tuple[Areas, np.ndarray]:
    """The areas of a geography frame, and the area of every block.

    Codes of a column that occur in several states are made distinct by the state's code and a
    hyphen before them. Raises InputRefused as `codes_of_level`.
    """
    state = codes_of_level(geography, "State")
    columns: dict[str, pd.Series] = {}
    for name in levels:
        code = codes_of_level(geography, name, file)
        if name not in GEOCODE_DIGITS:
            is_blank = geography[name].isna() | (code.str.strip() == "")
            states = pd.DataFrame({"code": code, "state": state})[~is_blank].drop_duplicates()
            if states["code"].duplicated().any():
                code = state + "-" + code
            code = code.mask(is_blank, None)
        columns[name] = code
    frame = pd.DataFrame(columns).astype(object).fillna("")
    area = frame.groupby(list(levels)).ngroup().to_numpy(np.int64)
    distinct = frame.drop_duplicates().sort_values(list(levels))
    return areas_of_rows(distinct.mask(distinct == "", None)), area


def write_areas(path: Path, areas: Areas) -> None:
    """Write one row an area, with its regions by level; null for none."""
    columns = {
        name: pa.array([*areas.regions[name], None], pa.string()).take(
            pa.array(region % (len(areas.regions[name]) + 1))
        )
        for name, region in areas.region_of_area.items()
    }
    write_parquet(path, pa.table(columns))


def areas_of_rows(distinct: pd.DataFrame) -> Areas:
    """Read the areas of one row an area, with its regions by level; blank for none."""
    regions, of_area = {}, {}
    for name in distinct:
        # Areas in no region have the code -1.
        codes, found = pd.factorize(distinct[name], sort=True)
        regions[str(name)] = np.asarray(found, dtype=object)
        of_area[str(name)] = codes.astype(np.int64)
    return Areas(regions, of_area)


def read_areas(run: RunDirectory) -> Areas:
    """The areas of a run."""
    return areas_of_rows(pq.read_table(areas_file(run)).to_pandas().astype(object))


def read_plan(run: RunDirectory) -> UniversePlan:
    """The plan of a run, by its settings and areas."""
    return plan_of(frozen_settings(SupplementalDhcSettings, run.settings), read_areas(run))


def plan_of(settings: SupplementalDhcSettings, areas: Areas) -> UniversePlan:
    """The plan by settings and areas."""
    return make_plan(
        settings.rhos, settings.mechanism.taus, areas.n_regions, infinite=settings.privacy.infinite
    )


def true_counts(run: RunDirectory, areas: Areas, level: str) -> np.ndarray:
    """Confidential counts `(n_regions, N_COLUMNS)` of the regions of a level, after truncation."""
    found = read_histogram(run.histogram(UNIVERSE), areas.names, n_cells=N_COLUMNS)
    return areas.summed(level, found.toarray())


MEMBERS_AGREE = "households_and_members_agree"
COMPLETED = "units_with_members.parquet"


@dataclass(frozen=True)
class SupplementalInput:
    """The input of a run: areas, confidential counts of them, and the census tables."""

    areas: Areas
    counts: sparse.csr_array
    census: CensusInput


def check_households(settings: SupplementalDhcSettings) -> InputCheck[SupplementalInput]:
    """Read the census tables, and check them against every rule.

    Columns of units that follow from the members are made where a table lacks them, in a file that
    is removed at the end; where present, they must agree with the members.
    """
    tables = CefTables.of(CENSUS, {"units": UNITS}, settings.input.paths())
    check = tables.check()
    if check.result is None:
        return InputCheck(check.outcomes, check.findings, None, check.files)
    result, files = check.result, tables.files
    areas, area_of_block = areas_of(
        result.geography, settings.geography.levels, files["geography"][0].name
    )
    with temporary_folder() as folder:
        target = Path(folder) / COMPLETED
        try:
            found = completed_units(files["units"], files["persons"], UNIT_KEY, target)
            outcomes = (*check.outcomes, Outcome(MEMBERS_AGREE, "units", not found.findings))
            if found.findings:
                return InputCheck(outcomes, found.findings, None, check.files)
            households = read_households(found.units)
            block, n_blocks = result.referred["persons"].area, len(result.geography)
            raw = household_columns(found.units, (TENURE,), block, n_blocks)
            raw += [*result.raw["persons"], *in_areas(found.raw.columns(), block, n_blocks)]
        except UnreadableInput as error:
            return InputCheck(check.outcomes, (error.finding,), None, check.files)
    tally = ValueTally()
    tally.count(TENURE_RULE, households.n_of_unknown_tenure)
    area = area_of_block[block]

    def accept() -> SupplementalInput:
        taus = settings.mechanism.taus
        counts = count_people(households, found.members, area, taus, len(areas))
        return SupplementalInput(areas, counts, replace(result, raw={"persons": raw}))

    judged = tally.checked(tally.rules, files, outcomes, accept)
    return replace(judged, files=check.files)


def ingest_households(run: RunDirectory, settings: SupplementalDhcSettings) -> None:
    """Write the public areas and the confidential counts of a run.

    The areas come last: where they are, all is. Raises InputRefused for input that breaks a rule;
    its counts are then in `confidential/findings.json`, and for input that is not confidential in
    the message too.
    """
    with temporary_files_in(run.confidential):
        check = check_households(settings)
    accepted = accepted_input(run, settings, check)
    store_identity(run, settings, accepted.census.digests)
    write_histogram(run.histogram(UNIVERSE), accepted.counts, accepted.areas.names)
    write_areas(areas_file(run), accepted.areas)


def public_areas(settings: SupplementalDhcSettings) -> Areas:
    """The areas alone, from the geography table; raises InputRefused."""
    path = settings.input.geography
    name = path.rpartition("/")[2]
    with refuse_unreadable():
        blocks = read_blocks(path)
    return areas_of(blocks, settings.geography.levels, name)[0]
