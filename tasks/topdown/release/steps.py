"""The step that writes microdata."""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.release.declared_run import write_declared_universe
from spineflow.tasks.topdown.release.microdata import write_universe
from spineflow.tasks.topdown.settings import TopdownSettings


@step("write microdata", TopdownSettings, run_name="microdata-{universe}")
def write_microdata(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Turn block estimates into one row a person, housing unit or facility."""
    for folder in (run.release, run.unchecked_release):
        if (folder / f"mdf_{universe}.csv").exists():
            return found(folder / f"mdf_{universe}.csv")
    write = write_declared_universe if settings.is_declared else write_universe
    written = write(run, settings, universe)
    return made(written.csv, {"rows": written.n_rows})
