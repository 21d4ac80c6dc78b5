"""The step that reads the input of a group-sizes run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.group_sizes.ingest.run import ingest_groups
from spineflow.tasks.group_sizes.ingest.run_files import plan_file
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.identity import refuse_changed_input, stored_digests
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("ingest groups", run_name="ingest")
def ingest(run_root: str) -> Artifact:
    """Check the tables, and write the hierarchy, the plan and the confidential counts."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(GroupSizesSettings, run.settings)
    reused = plan_file(run).exists()
    with stopwatch() as seconds:
        if reused:
            refuse_changed_input(run, settings)
        else:
            ingest_groups(run, settings)
    facts = tuple((kind, digest.whole) for kind, digest in stored_digests(run).items())
    return run.artifact(plan_file(run), seconds=seconds(), reused=reused, facts=facts)
