"""The step that writes the redistricting tables of a release."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.release.tabulations.run import write_release_tables, written_tables
from spineflow.tasks.topdown.settings import TopdownSettings


@step("write tables", run_name="tables")
def write_redistricting_tables(run_root: str) -> Artifact:
    """Tabulate the microdata at every summary level, as tables and in the P.L. 94-171 format."""
    run = RunDirectory(Path(run_root))
    if run.release.exists():
        return Artifact(run.release.name, reused=True)
    settings = frozen_settings(TopdownSettings, run.settings)
    last = written_tables(run, settings)
    if last is not None:
        return run.artifact(last, reused=True)
    with stopwatch() as seconds:
        files = write_release_tables(run, settings)
    return run.artifact(files[-1], seconds=seconds(), facts=(("files", len(files)),))
