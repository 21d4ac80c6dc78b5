"""Steps that charge the ledger, write constraints and draw the noise of a topdown run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.ledger.charging import is_settled
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.measurement.run import (
    charge_run,
    constrain_universe,
    measure_once,
    measurement_files,
)
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.shards import shard_of


@step("charge ledger", run_name="charge ledger", retried=False)
def charge_ledger(run_root: str) -> Artifact:
    """Recompute the shares, and enter the run in the ledger before anything is drawn."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TopdownSettings, run.settings)
    if is_settled(run, settings, measurement_files(run, settings)):
        return Artifact("", reused=True)
    with stopwatch() as seconds:
        charge_run(run, settings)
    return Artifact("", seconds=seconds())


@step("constrain", run_name="constraints-{universe}")
def constrain(run_root: str, universe: str) -> Artifact:
    """Write the constraints that the declared invariants put on every geounit."""
    run = RunDirectory(Path(run_root))
    with stopwatch() as seconds:
        written = constrain_universe(run, frozen_settings(TopdownSettings, run.settings), universe)
    folder = f"measurements/{universe}"
    return Artifact(folder, seconds=seconds(), facts=(("constraint files", written),))


@step("measure", run_name="measure-{universe}-{geolevel}-{shard}", retried=False)
def measure(run_root: str, universe: str, geolevel: str, shard: str) -> Artifact:
    """Publish a shard's noisy measurements; what is published is never drawn again."""
    run = RunDirectory(Path(run_root))
    path = run.dpqueries(universe, geolevel, shard)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            part = shard_of(run.spine(universe), geolevel, shard)
            measure_once(run, frozen_settings(TopdownSettings, run.settings), universe, part)
    return run.artifact(path, seconds=seconds(), reused=reused)
