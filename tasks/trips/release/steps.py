"""The step that writes the released table of trips."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.trips.release.table import TABLE, write_release
from spineflow.tasks.trips.settings import TripsSettings


@step("write table", run_name="table")
def write_trips(run_root: str) -> Artifact:
    """Write the table and its range queries from the leaves' estimates."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    for folder in (run.release, run.unchecked_release):
        if (folder / f"{TABLE}.csv").exists():
            return run.artifact(folder / f"{TABLE}.csv", reused=True)
    with stopwatch() as seconds:
        n_rows = write_release(run, is_private=settings.is_private)
    written = run.unchecked_release / f"{TABLE}.csv"
    return run.artifact(written, seconds=seconds(), facts=(("rows", n_rows),))
