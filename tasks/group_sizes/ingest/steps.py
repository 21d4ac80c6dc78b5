"""The step that reads the input of a group-sizes run."""

from __future__ import annotations

from ...ledger.identity import ingested_once
from ...runs.directory import RunDirectory
from ...runs.handles import Made
from ...runs.steps import step
from ..paths import plan_file
from ..settings import GroupSizesSettings
from .ingest import ingest_groups


@step("ingest groups", GroupSizesSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Check the tables, and write the hierarchy, the plan and the confidential counts."""
    return ingested_once(run, settings, plan_file(run), ingest_groups)
