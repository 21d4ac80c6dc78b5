"""The step that writes the released table of trips."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.release.trips.table import TABLE, write_release
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.trips import TripsSettings
from tasks.steps import step
from tasks.timing import stopwatch


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
