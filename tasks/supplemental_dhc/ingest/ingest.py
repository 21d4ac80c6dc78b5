"""Ingest of a run of the supplemental tables: its input is read, checked, and turned into counts by
area in the run directory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from scipy import sparse

from ....validation.outcome import Outcome
from ....validation.supplemental_dhc.input_rules import TENURE_RULE
from ...census.cef_2020 import UNITS
from ...census.cef_tables import UNIT_KEY, IngestResult, check_inputs, load_geography, table_files
from ...census.counting import in_areas
from ...census.evidence import EvidenceTally
from ...census.histograms import write_histogram
from ...census.members import completed_files, completed_units, household_columns
from ...ledger.identity import store_identity
from ...runs.directory import RunDirectory
from ...tables.findings import (
    InputCheck,
    RuleTally,
    UnreadableInput,
    accepted_input,
    unreadable_refused,
)
from ...tables.sources import input_files
from ..paths import UNIVERSE, areas_file
from ..settings import SupplementalDhcSettings
from .areas import Areas, areas_of, write_areas
from .counts import count_people
from .households import TENURE, read_households

MEMBERS_AGREE = "households_and_members_agree"
COMPLETED = "units_with_members.parquet"


@dataclass(frozen=True)
class SupplementalInput:
    """What a run needs of its input: areas, confidential counts of them, and the census tables."""

    areas: Areas
    counts: sparse.csr_array
    census: IngestResult


def check_households(
    settings: SupplementalDhcSettings, scratch: Path | None = None
) -> InputCheck[SupplementalInput]:
    """Read the census tables, and check them against every rule.

    Columns of units that the members tell are made where a table lacks them, in a file of the
    folder `scratch`, by default the system's, that is removed at the end; where they are there,
    they must say what the members do.
    """
    paths = settings.input.paths()
    names = settings.input.file_names()
    check = check_inputs(
        **paths, person_schema=None, unit_schema=UNITS, names=names, scratch=scratch
    )
    if check.result is None:
        return InputCheck(check.outcomes, check.findings, None, check.files)
    result, files = check.result, table_files(paths, names)
    areas, area_of_block = areas_of(result.geography, settings.geography.levels, names["geography"])
    with TemporaryDirectory(dir=scratch) as folder:
        target = Path(folder) / COMPLETED
        try:
            found = completed_units(files["units"], files["persons"], UNIT_KEY, target)
            outcomes = (*check.outcomes, Outcome(MEMBERS_AGREE, "units", not found.findings))
            if found.findings:
                return InputCheck(outcomes, found.findings, None, check.files)
            units = completed_files(files["units"], target)
            households = read_households(units)
            block, n_blocks = result.unit_block, len(result.geography)
            raw = household_columns(units, (TENURE,), block, n_blocks, scratch)
            raw += [*result.raw, *in_areas(found.raw.columns(), block, n_blocks)]
        except UnreadableInput as error:
            return InputCheck(check.outcomes, (error.finding,), None, check.files)
    tally = RuleTally(names)
    tally.add(TENURE_RULE, households.n_of_unknown_tenure)
    outcomes = (*outcomes, *tally.outcomes())
    if findings := tally.findings(outcomes):
        return InputCheck(outcomes, findings, None, check.files)
    counts = count_people(
        households, found.members, area_of_block[block], settings.mechanism.taus, len(areas)
    )
    result = replace(result, raw=raw)
    accepted = SupplementalInput(areas, counts, result)
    return InputCheck(outcomes, (), accepted, check.files)


def ingest_households(run: RunDirectory, settings: SupplementalDhcSettings) -> None:
    """Write the public areas and the confidential counts of a run.

    The areas come last: where they are, all is. Raises InputRefused for input that breaks a rule;
    its counts are then in `confidential/findings.json`, and for input that is not confidential in
    the message too.
    """
    accepted = accepted_input(run, settings, check_households(settings, run.confidential))
    store_identity(run, settings, accepted.census.digests)
    write_histogram(run.histogram(UNIVERSE), accepted.counts, accepted.areas.names)
    write_areas(areas_file(run), accepted.areas)


def public_areas(settings: SupplementalDhcSettings) -> Areas:
    """The areas alone, from the geography table; raises InputRefused."""
    path = settings.input.geography
    name = path.rpartition("/")[2]
    with unreadable_refused():
        blocks = load_geography(input_files("geography", path, name), EvidenceTally())
    return areas_of(blocks.frame, settings.geography.levels, name)[0]
