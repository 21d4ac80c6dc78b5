"""The step that reads the input of a group-sizes run."""

from __future__ import annotations

from spineflow.tasks.group_sizes.ingest.ingest import ingest_groups
from spineflow.tasks.group_sizes.paths import plan_file
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.identity import refuse_changed_input, whole_digests
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step


@step("ingest groups", GroupSizesSettings, run_name="ingest")
def ingest(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Check the tables, and write the hierarchy, the plan and the confidential counts."""
    path = plan_file(run)
    if path.exists():
        refuse_changed_input(run, settings)
        return found(path, whole_digests(run))
    ingest_groups(run, settings)
    return made(path, whole_digests(run))
