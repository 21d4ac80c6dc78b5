"""The step that estimates group sizes."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.group_sizes.estimation.run import estimate_run
from spineflow.tasks.group_sizes.ingest.run_files import estimates_file, read_plan
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


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
