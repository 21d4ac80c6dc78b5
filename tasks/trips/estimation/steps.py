"""Steps that estimate a trips run."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made, once
from ...runs.steps import step
from ..ingest.files import plan_of
from ..measurement.files import NodeShard, read_cuts
from ..measurement.measure import passed_down
from ..paths import estimates_file
from ..settings import TripsSettings
from .estimate import ONLY_SHARD, combine_levels, estimate_once


@step("estimate level", TripsSettings, run_name="estimate-level_{level:02d}-{shard}")
def estimate(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> Made:
    """Project the noisy children of a shard's parents; what is inferred needs no measurement."""
    plan = plan_of(run, settings)
    path = estimates_file(run, level, shard, kind=passed_down(plan))
    if path.exists():
        return found(path)
    part = NodeShard(shard, 0, 1)
    if level not in plan.inferred:
        part = next(s for s in read_cuts(run, level).shards if s.name == shard)
    estimate_once(run, settings, level, part)
    return made(path)


@step("combine levels", TripsSettings, run_name="combine")
def combine(run: RunDirectory, settings: TripsSettings) -> Made:
    """Least squares over the measurements of all levels, then the integer pass."""
    path = estimates_file(run, plan_of(run, settings).tree.depth, ONLY_SHARD)
    return once(path, combine_levels, run, settings)
