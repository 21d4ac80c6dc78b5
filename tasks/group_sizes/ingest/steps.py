"""The step that reads the input of a group-sizes run."""

from __future__ import annotations

from ...ledger.identity import refuse_changed_input, whole_digests
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..paths import plan_file
from ..settings import GroupSizesSettings
from .ingest import ingest_groups


@step("ingest groups", GroupSizesSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Check the tables, and write the hierarchy, the plan and the confidential counts."""
    path = plan_file(run)
    if path.exists():
        refuse_changed_input(run, settings)
        return found(path, whole_digests(run))
    ingest_groups(run, settings)
    return made(path, whole_digests(run))
