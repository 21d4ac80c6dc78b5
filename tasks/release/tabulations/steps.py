"""The step that writes the redistricting tables of a release."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.release.tabulations.run import write_release_tables, written_tables
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.topdown import TopdownSettings
from tasks.steps import step
from tasks.timing import stopwatch


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
