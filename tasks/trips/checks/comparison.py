"""What a comparison of trips runs shows of each."""

from __future__ import annotations

from ...products.comparison import Compared, errors_or_refused
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of
from ..release.statements import cost_table
from ..settings import TripsSettings
from .accuracy import has_truth, read_accuracy, write_accuracy

KEYS = ("level", "areas")
FIGURES = {
    "max_absolute_error": "largest absolute error",
    "mean_absolute_error": "mean absolute error of the nodes with trips in truth or release",
    "false_discovery_percent": "released nodes without trips, %",
    "false_negative_percent": "nodes with trips that are not released, %",
}


def compared(run: RunDirectory, settings: TripsSettings) -> Compared:
    """A run with its errors; raises InputRefused if truth and errors are both gone."""
    if has_truth(run):
        write_accuracy(run, settings)
    plan = plan_of(run, settings)
    facts = {"dataset": settings.privacy.dataset, "mechanism": plan.mechanism}
    cost = cost_table(settings, plan)
    facts |= {name: str(value) for name, value in zip(cost.headers, cost.rows[0], strict=True)}
    return Compared(run, settings, facts, errors_or_refused(run, read_accuracy(run)))
