"""The steps that write microdata and margins."""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.release.declared_run import write_declared_universe
from spineflow.tasks.topdown.release.margins import are_written, write_margins
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


@step("write margins", TopdownSettings, run_name="margins")
def write_release_margins(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write an interval beside every count of the tables, from the measurements alone."""
    place = run.release if run.release.exists() else run.unchecked_release
    if run.release.exists() or are_written(run, settings):
        return found(place)
    files = write_margins(run, settings)
    return made(place, {"files": len(files)})
