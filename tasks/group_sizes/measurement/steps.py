"""Steps that charge the ledger and draw the noise of a group-sizes run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.group_sizes.ingest.run_files import measurement_file, read_plan
from spineflow.tasks.group_sizes.measurement.run import charge_run, measure_level, measurement_files
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.charging import is_settled
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("charge group sizes", run_name="charge ledger", retried=False)
def charge_ledger(run_root: str) -> Artifact:
    """Enter the run in the ledger before anything is drawn."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(GroupSizesSettings, run.settings)
    if is_settled(run, settings, measurement_files(run, read_plan(run))):
        return Artifact("", reused=True)
    with stopwatch() as seconds:
        charge_run(run, settings)
    return Artifact("", seconds=seconds())


@step("measure groups", run_name="measure-{level}", retried=False)
def measure(run_root: str, level: str) -> Artifact:
    """Publish a level's noisy vector; what is published is never drawn again."""
    run = RunDirectory(Path(run_root))
    path = measurement_file(run, level)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            measure_level(run, frozen_settings(GroupSizesSettings, run.settings), level)
    return run.artifact(path, seconds=seconds(), reused=reused)
