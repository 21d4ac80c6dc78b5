"""The step that estimates group sizes."""

from __future__ import annotations

from spineflow.tasks.group_sizes.estimation.estimate import estimate_run
from spineflow.tasks.group_sizes.ingest.files import read_plan
from spineflow.tasks.group_sizes.paths import estimates_file
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step


@step("estimate groups", GroupSizesSettings, run_name="estimate")
def estimate(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Find the counts of all levels from the noisy vectors, by the mechanism of the plan."""
    path = estimates_file(run, read_plan(run).levels[-1].level)
    if path.exists():
        return found(path)
    estimate_run(run, settings)
    return made(path)
