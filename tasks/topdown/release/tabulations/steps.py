"""The step that writes the redistricting tables of a release."""

from __future__ import annotations

from ....runs.directory import RunDirectory
from ....runs.handles import Made, found, made
from ....runs.steps import step
from ...settings import TopdownSettings
from .run import write_release_tables, written_tables


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
