"""The step that writes the redistricting tables of a release."""

from __future__ import annotations

from ....runs.directory import RunDirectory
from ....runs.handles import Made, found, made
from ....runs.steps import step
from ...settings import TopdownSettings
from .run import tables_of_run


@step("write tables", TopdownSettings, run_name="{piece}")
def write_redistricting_tables(run: RunDirectory, settings: TopdownSettings, piece: str) -> Made:
    """Tabulate the block estimates at every summary level, as tables and in the P.L. 94-171 format,
    or a piece of that."""
    if run.release.exists():
        return found(run.release)
    run.unchecked_release.mkdir(exist_ok=True)
    tables = tables_of_run(run, settings)
    files = tables.files(piece)
    if files and all(path.exists() for path in files):
        return found(files[-1])
    files = tables.write(piece)
    return made(files[-1] if files else run.unchecked_release, {"files": len(files)})
