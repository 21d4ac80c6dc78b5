"""The step that writes the redistricting tables of a release."""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.release.tabulations.run import write_release_tables, written_tables
from spineflow.tasks.topdown.settings import TopdownSettings


@step("write tables", TopdownSettings, run_name="{piece}")
def write_redistricting_tables(run: RunDirectory, settings: TopdownSettings, piece: str) -> Made:
    """Tabulate the block estimates at every summary level, as tables and in the P.L. 94-171 format,
    or a piece of that."""
    if run.release.exists():
        return found(run.release)
    run.unchecked_release.mkdir(exist_ok=True)
    last = written_tables(run, settings, piece)
    if last is not None:
        return found(last)
    files = write_release_tables(run, settings, piece)
    return made(files[-1] if files else run.unchecked_release, {"files": len(files)})
