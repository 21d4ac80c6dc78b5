"""What a comparison of trips runs shows of each."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ..ingest.files import plan_of
from ..release.statements import cost_table
from ..settings import TripsSettings

KEYS = ("level", "areas")
FIGURES = {
    "max_absolute_error": "largest absolute error",
    "mean_absolute_error": "mean absolute error of the nodes with trips in truth or release",
    "false_discovery_percent": "released nodes without trips, %",
    "false_negative_percent": "nodes with trips that are not released, %",
}


def facts_of_run(run: RunDirectory, settings: TripsSettings) -> dict[str, str]:
    """What a run is, in words."""
    plan = plan_of(run, settings)
    cost = cost_table(settings, plan)
    told = {name: str(value) for name, value in zip(cost.headers, cost.rows[0], strict=True)}
    return {"mechanism": plan.mechanism, **told}
