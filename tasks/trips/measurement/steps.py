"""Steps that charge a trips run, cut its levels into shards and draw noise."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.ledger.charging import is_settled
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.trips.measurement.files import cuts_file, measured_file, read_cuts
from spineflow.tasks.trips.measurement.run import (
    charge_run,
    cut_level,
    measure_once,
    measurement_files,
    plan_of,
)
from spineflow.tasks.trips.settings import TripsSettings


@step("charge ledger", run_name="charge ledger", retried=False)
def charge_trips(run_root: str) -> Artifact:
    """Enter the run in the ledger before anything is drawn."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    if is_settled(run, settings, measurement_files(run, plan_of(run, settings))):
        return Artifact("", reused=True)
    with stopwatch() as seconds:
        charge_run(run, settings)
    return Artifact("", seconds=seconds())


@step("cut level", run_name="cut-level_{level:02d}", retried=False)
def cut_trips(run_root: str, level: int) -> Artifact:
    """Decide which nodes each shard of a level measures."""
    run = RunDirectory(Path(run_root))
    path = cuts_file(run, level)
    reused = path.exists()
    with stopwatch() as seconds:
        cut_level(run, frozen_settings(TripsSettings, run.settings), level)
    return run.artifact(path, seconds=seconds(), reused=reused)


@step("measure level", run_name="measure-level_{level:02d}-{shard}", retried=False)
def measure_trips(run_root: str, level: int, shard: str) -> Artifact:
    """Publish a shard's noisy counts; what is published is never drawn again."""
    run = RunDirectory(Path(run_root))
    path = measured_file(run, level, shard)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            part = next(s for s in read_cuts(run, level).shards if s.name == shard)
            measure_once(run, frozen_settings(TripsSettings, run.settings), level, part)
    return run.artifact(path, seconds=seconds(), reused=reused)
