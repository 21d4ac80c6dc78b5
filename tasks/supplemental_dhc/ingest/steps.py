"""The step that reads the input of a run of the supplemental tables."""

from __future__ import annotations

from ...ledger.identity import ingested_once
from ...runs.directory import RunDirectory
from ...runs.handles import Made
from ...runs.steps import step
from ..paths import areas_file
from ..settings import SupplementalDhcSettings
from .ingest import ingest_households


@step("ingest households", SupplementalDhcSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: SupplementalDhcSettings) -> Made:
    """Check the tables, and write the areas and the confidential counts."""
    return ingested_once(run, settings, areas_file(run), ingest_households)
