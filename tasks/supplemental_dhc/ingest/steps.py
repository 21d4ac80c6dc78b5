"""The step that reads the input of a run of the supplemental tables."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..paths import plan_file
from ..settings import SupplementalDhcSettings
from .ingest import ingest_households


@step("ingest households", SupplementalDhcSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: SupplementalDhcSettings) -> Made:
    """Check the tables, and write the areas, the plan and the confidential counts."""
    path = plan_file(run)
    if path.exists():
        refuse_changed_input(run, settings)
        return found(path, whole_digests(run))
    ingest_households(run, settings)
    return made(path, whole_digests(run))
