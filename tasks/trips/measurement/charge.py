"""The plan of a trips run: what it measures and is charged for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of, read_tree
from ..paths import areas_file, cuts_file, leaves_file, measured_file, plan_file, tree_file
from ..settings import TripsSettings
from ..workload.costs import universe_plan
from ..workload.exact_loss import curve_of_change
from ..workload.statement import exact_of, statement_of
from .files import read_cuts


def plan_of_run(run: RunDirectory, settings: TripsSettings) -> Plan:
    """The plan of a run; one charge covers all levels."""
    plan = plan_of(run, settings)
    curve = curve_of_change(plan, settings.contribution)
    return Plan.of_run(
        run,
        settings,
        [replace(universe_plan(plan, settings.report_delta), curve=curve)],
        statement_of(settings, plan),
        exact_of(plan, read_tree(run).total),
        decided_by=[tree_file(run), areas_file(run), plan_file(run)],
        counts=[leaves_file(run)],
    )


def measurement_files(run: RunDirectory, settings: TripsSettings) -> list[Path]:
    """The cuts of all levels, and the files of noisy counts of those that have been cut.

    Of a level that has not been cut, whatever stands there already: it is nothing that the run has
    measured, and must not be taken for that once the level is cut.
    """
    files = []
    for level in plan_of(run, settings).levels:
        files.append(cuts_file(run, level))
        if files[-1].exists():
            shards = read_cuts(run, level).shards
            files += [measured_file(run, level, shard.name) for shard in shards]
        else:
            folder = measured_file(run, level, "any").parent
            files += sorted(folder.glob("*.parquet"))
    return files
