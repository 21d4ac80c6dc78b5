"""The steps that write microdata and margins."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..settings import TopdownSettings
from .margins import are_written, write_margins
from .microdata import write_universe


@step("write microdata", TopdownSettings, run_name="microdata-{universe}")
def write_microdata(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Turn block estimates into one row a person, housing unit or facility."""
    for folder in (run.release, run.unchecked_release):
        if (folder / f"mdf_{universe}.csv").exists():
            return found(folder / f"mdf_{universe}.csv")
    written = write_universe(run, settings, universe)
    return made(written.csv, {"rows": written.n_rows})


@step("write margins", TopdownSettings, run_name="margins")
def write_release_margins(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write an interval beside every count of the tables, from the measurements alone."""
    place = run.release if run.release.exists() else run.unchecked_release
    if run.release.exists() or are_written(run, settings):
        return found(place)
    files = write_margins(run, settings)
    return made(place, {"files": len(files)})
