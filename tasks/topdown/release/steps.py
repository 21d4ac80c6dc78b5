"""The steps that write microdata, and that copy a release to where it is published."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.census.invariants import read_invariants
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.publication import copy_release, marker_address, place_of
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.release.microdata import (
    block_estimate_parts,
    write_persons,
    write_units,
)
from spineflow.tasks.topdown.settings import TopdownSettings


@step("write microdata", run_name="microdata-{universe}")
def write_microdata(run_root: str, universe: str) -> Artifact:
    """Turn block estimates into one row a person, housing unit or facility."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TopdownSettings, run.settings)
    schema = settings.schema_of(universe)
    for folder in (run.release, run.unchecked_release):
        if (folder / f"mdf_{universe}.csv").exists():
            return run.artifact(folder / f"mdf_{universe}.csv", reused=True)
    with stopwatch() as seconds:
        estimates = block_estimate_parts(run, universe)
        run.unchecked_release.mkdir(exist_ok=True)
        if universe == "persons":
            written = write_persons(
                estimates, schema, run.unchecked_release, is_private=settings.is_private
            )
        else:
            written = write_units(
                estimates,
                read_invariants(run.invariants),
                schema,
                run.unchecked_release,
                is_private=settings.is_private,
            )
    facts = (("rows", written.n_rows),)
    return run.artifact(written.csv, seconds=seconds(), facts=facts)


@step("copy release", run_name="copy release")
def publish_copy(run_root: str) -> Artifact:
    """Copy the checked release to where the settings say, whole or not at all."""
    run = RunDirectory(Path(run_root))
    place = place_of(run)
    with stopwatch() as seconds:
        is_new = copy_release(run, place)
    marker = marker_address(place, run.read_manifest()["product"])
    return Artifact(marker, seconds=seconds(), reused=not is_new)
