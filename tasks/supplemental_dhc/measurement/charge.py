"""The plan of a run of the supplemental tables: what it measures and is charged for."""

from __future__ import annotations

from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of, read_areas
from ..paths import UNIVERSE, areas_file
from ..settings import SupplementalDhcSettings
from ..workload.costs import universe_plan
from ..workload.statement import EXACT, statement_of


def plan_of_run(run: RunDirectory, settings: SupplementalDhcSettings) -> Plan:
    """The plan of a run."""
    plan = plan_of(settings, read_areas(run))
    return Plan.of_run(
        run,
        settings,
        [universe_plan(plan)],
        statement_of(settings, plan),
        EXACT,
        decided_by=[areas_file(run)],
        counts=[run.histogram(UNIVERSE)],
    )
