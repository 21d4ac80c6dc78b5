"""Steps that draw the noise of a detailed-groups run."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..paths import Shard, household_file, measured_file, read_shards, stage_1_file
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .households import measure_once
from .measure import measure_tables_once, measure_totals_once


@step(
    "stage 1",
    DetailedGroupsSettings,
    run_name="stage-1-{region_type}-{level}-{shard}",
    retried=False,
)
def measure_totals(
    run: RunDirectory, settings: DetailedGroupsSettings, region_type: str, level: int, shard: str
) -> Made:
    """Publish the noisy totals that choose a shard's tables; they are never drawn again."""
    part = _shard(run, region_type, level, shard)
    path = stage_1_file(run, part)
    return once(path, measure_totals_once, run, settings, part)


@step(
    "stage 2",
    DetailedGroupsSettings,
    run_name="stage-2-{region_type}-{level}-{shard}",
    retried=False,
)
def measure_tables(
    run: RunDirectory, settings: DetailedGroupsSettings, region_type: str, level: int, shard: str
) -> Made:
    """Publish a shard's noisy counts; they are never drawn again."""
    part = _shard(run, region_type, level, shard)
    path = measured_file(run, part)
    return once(path, measure_tables_once, run, settings, part)


@step(
    "measure households",
    DetailedHouseholdsSettings,
    run_name="measure-{table}-{region_type}-{level}-{shard}",
    retried=False,
)
def measure_households(
    run: RunDirectory,
    settings: DetailedHouseholdsSettings,
    table: str,
    region_type: str,
    level: int,
    shard: str,
) -> Made:
    """Publish a shard's noisy counts of households by type or tenure; never drawn again."""
    part = _shard(run, region_type, level, shard)
    path = household_file(run, table, part)
    return once(path, measure_once, run, settings, table, part)


def _shard(run: RunDirectory, region_type: str, level: int, name: str) -> Shard:
    key = (region_type, level, name)
    return next(s for s in read_shards(run) if (s.region_type, s.level, s.name) == key)
