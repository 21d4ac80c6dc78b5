"""All stages of a trips run one after the other in this process: for notebooks and studies."""

from __future__ import annotations

from collections.abc import Sequence

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.gate import publish
from spineflow.tasks.trips.checks.accuracy import write_accuracy
from spineflow.tasks.trips.checks.check import check_run
from spineflow.tasks.trips.estimation.estimate import ONLY_SHARD, combine_levels, estimate_once
from spineflow.tasks.trips.ingest.files import plan_of
from spineflow.tasks.trips.ingest.ingest import ingest_input
from spineflow.tasks.trips.measurement.charge import charge_run
from spineflow.tasks.trips.measurement.files import NodeShard, read_cuts
from spineflow.tasks.trips.measurement.measure import cut_level, measure_once
from spineflow.tasks.trips.release.certificate import write_certificate
from spineflow.tasks.trips.release.table import write_release
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.mechanisms import FULL_INFORMATION


def run_in_process(run: RunDirectory, settings: TripsSettings) -> None:
    """From the input of a run directory that has been started to its release, and its accuracy."""
    ingest_input(run, settings)
    tree_to_table(run, settings)
    check_run(run, settings)
    write_certificate(run, settings)
    publish(run)
    write_accuracy(run, settings)


def tree_to_table(run: RunDirectory, settings: TripsSettings) -> int:
    """Charge, measure, estimate and write the table of an ingested run; returns its rows."""
    plan = plan_of(run, settings)
    charge_run(run, settings)
    if plan.mechanism == FULL_INFORMATION and plan.measures_all:
        _measure(run, settings, plan.levels)
    else:
        if plan.is_top_down and 0 not in plan.levels:
            estimate_once(run, settings, 0, NodeShard(ONLY_SHARD, 0, 1))
        for level in plan.levels:
            _measure(run, settings, [level])
            for shard in read_cuts(run, level).shards:
                estimate_once(run, settings, level, shard)
    if plan.mechanism == FULL_INFORMATION:
        combine_levels(run, settings)
    return write_release(run, is_private=settings.is_private)


def _measure(run: RunDirectory, settings: TripsSettings, levels: Sequence[int]) -> None:
    for level in levels:
        cut_level(run, settings, level)
        for shard in read_cuts(run, level).shards:
            measure_once(run, settings, level, shard)
