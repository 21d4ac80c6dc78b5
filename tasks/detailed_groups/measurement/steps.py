"""Steps that charge the ledger and draw the noise of a detailed-groups run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.detailed_groups.ingest.run_files import (
    Shard,
    measured_file,
    read_shards,
    stage_1_file,
)
from spineflow.tasks.detailed_groups.measurement.run import (
    charge_run,
    measure_tables_once,
    measure_totals_once,
    measurement_files,
)
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.ledger.charging import is_settled
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("charge ledger for groups", run_name="charge ledger", retried=False)
def charge_groups(run_root: str) -> Artifact:
    """Enter the run in the ledger before anything is drawn."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(DetailedGroupsSettings, run.settings)
    if is_settled(run, settings, measurement_files(run)):
        return Artifact("", reused=True)
    with stopwatch() as seconds:
        charge_run(run, settings)
    return Artifact("", seconds=seconds())


@step("stage 1", run_name="stage-1-{region_type}-{level}-{shard}", retried=False)
def measure_totals(run_root: str, region_type: str, level: int, shard: str) -> Artifact:
    """Publish the noisy totals that choose a shard's tables; they are never drawn again."""
    return _measure(run_root, (region_type, level, shard), stage_1_file, measure_totals_once)


@step("stage 2", run_name="stage-2-{region_type}-{level}-{shard}", retried=False)
def measure_tables(run_root: str, region_type: str, level: int, shard: str) -> Artifact:
    """Publish a shard's noisy counts; they are never drawn again."""
    return _measure(run_root, (region_type, level, shard), measured_file, measure_tables_once)


def _measure(run_root: str, key: tuple[str, int, str], file_of, measure_once) -> Artifact:
    run = RunDirectory(Path(run_root))
    shard = _shard(run, key)
    path = file_of(run, shard)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            measure_once(run, frozen_settings(DetailedGroupsSettings, run.settings), shard)
    return run.artifact(path, seconds=seconds(), reused=reused)


def _shard(run: RunDirectory, key: tuple[str, int, str]) -> Shard:
    return next(s for s in read_shards(run) if (s.region_type, s.level, s.name) == key)
