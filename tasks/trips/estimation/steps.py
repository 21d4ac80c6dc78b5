"""Steps that estimate a trips run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.trips.estimation.run import ONLY_SHARD, combine, estimate_once
from spineflow.tasks.trips.measurement.files import UNIVERSE, NodeShard, estimates_file, read_cuts
from spineflow.tasks.trips.measurement.run import SELECTION, plan_of
from spineflow.tasks.trips.settings import TripsSettings


@step("estimate level", run_name="estimate-level_{level:02d}-{shard}")
def estimate_trips(run_root: str, level: int, shard: str) -> Artifact:
    """Project the noisy children of a shard's parents; an exact root needs no measurement."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    kind = SELECTION if plan_of(run, settings).is_selected else UNIVERSE
    path = estimates_file(run, level, shard, kind=kind)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            part = NodeShard(shard, 0, 1)
            if level:
                part = next(s for s in read_cuts(run, level).shards if s.name == shard)
            estimate_once(run, settings, level, part)
    return run.artifact(path, seconds=seconds(), reused=reused)


@step("combine levels", run_name="combine")
def combine_trips(run_root: str) -> Artifact:
    """Least squares over the measurements of all levels, then the integer pass."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    depth = plan_of(run, settings).tree.depth
    path = estimates_file(run, depth, ONLY_SHARD)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            combine(run, settings)
    return run.artifact(path, seconds=seconds(), reused=reused)
