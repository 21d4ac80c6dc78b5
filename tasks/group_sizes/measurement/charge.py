"""The plan of a group-sizes run: what it measures and is charged for."""

from __future__ import annotations

from dataclasses import replace

from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..paths import UNIVERSE, plan_file, regions_file
from ..settings import GroupSizesSettings
from ..workload.costs import universe_plan
from ..workload.exact_loss import exact_curve
from ..workload.statement import exact_of, statement_of


def plan_of_run(run: RunDirectory, settings: GroupSizesSettings) -> Plan:
    """The plan of a run."""
    plan = read_plan(run)
    return Plan.of_run(
        run,
        settings,
        [replace(universe_plan(plan), curve=exact_curve(plan, is_bounded=True))],
        statement_of(settings, plan),
        exact_of(plan),
        decided_by=[regions_file(run), plan_file(run)],
        counts=[run.histogram(UNIVERSE)],
    )
