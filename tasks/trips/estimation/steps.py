"""Steps that estimate a trips run."""

from __future__ import annotations

from ...runs.directory import ONLY_SHARD, RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..ingest.files import plan_of
from ..measurement.measure import passed_down
from ..paths import estimates_file
from ..settings import TripsSettings
from .estimate import combine_levels, estimate_once


@step("estimate level", TripsSettings, run_name="estimate-level_{level:02d}-{shard}")
def estimate(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> Made:
    """Project the noisy children of a shard's parents; what is inferred needs no measurement."""
    path = estimates_file(run, level, shard, kind=passed_down(plan_of(run, settings)))
    return once(path, estimate_once, run, settings, level, shard)


@step("combine levels", TripsSettings, run_name="combine")
def combine(run: RunDirectory, settings: TripsSettings) -> Made:
    """Least squares over the measurements of all levels, then the integer pass."""
    path = estimates_file(run, plan_of(run, settings).tree.depth, ONLY_SHARD)
    return once(path, combine_levels, run, settings)
