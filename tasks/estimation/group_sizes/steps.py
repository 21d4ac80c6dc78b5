"""The step that estimates group sizes."""

from __future__ import annotations

from pathlib import Path

from tasks.estimation.group_sizes.run import estimate_run
from tasks.handles import Artifact
from tasks.ingest.group_sizes.run_files import estimates_file, read_plan
from tasks.run_directory import RunDirectory
from tasks.settings.group_sizes import GroupSizesSettings
from tasks.settings.load import frozen_settings
from tasks.steps import step
from tasks.timing import stopwatch


@step("estimate groups", run_name="estimate")
def estimate(run_root: str) -> Artifact:
    """Find the counts of all levels from the noisy vectors, by the mechanism of the plan."""
    run = RunDirectory(Path(run_root))
    path = estimates_file(run, read_plan(run).levels[-1].level)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            estimate_run(run, frozen_settings(GroupSizesSettings, run.settings))
    return run.artifact(path, seconds=seconds(), reused=reused)
