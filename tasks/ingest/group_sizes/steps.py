"""The step that reads the input of a group-sizes run."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.ingest.group_sizes.run import ingest_groups
from tasks.ingest.group_sizes.run_files import plan_file
from tasks.ingest.identity import refuse_changed_input, stored_digests
from tasks.run_directory import RunDirectory
from tasks.settings.group_sizes import GroupSizesSettings
from tasks.settings.load import frozen_settings
from tasks.steps import step
from tasks.timing import stopwatch


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
