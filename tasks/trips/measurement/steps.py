"""Steps that cut the levels of a trips run into shards and draw noise."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..paths import cuts_file, measured_file
from ..settings import TripsSettings
from .measure import cut_level, measure_once


@step("cut level", TripsSettings, run_name="cut-level_{level:02d}", retried=False)
def cut(run: RunDirectory, settings: TripsSettings, level: int) -> Made:
    """Decide which nodes each shard of a level measures."""
    path = cuts_file(run, level)
    return once(path, cut_level, run, settings, level)


@step("measure level", TripsSettings, run_name="measure-level_{level:02d}-{shard}", retried=False)
def measure(run: RunDirectory, settings: TripsSettings, level: int, shard: str) -> Made:
    """Publish a shard's noisy counts; what is published is never drawn again."""
    return once(measured_file(run, level, shard), measure_once, run, settings, level, shard)
