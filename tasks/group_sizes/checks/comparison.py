"""What a comparison of group-sizes runs shows of each."""

from __future__ import annotations

from ...products.comparison import Compared, errors_or_refused
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..release.report import loss_text
from ..settings import GroupSizesSettings
from .accuracy import has_truth, read_accuracy, write_accuracy

KEYS = ("level",)
FIGURES = {
    "absolute_error": "absolute error, summed over the regions and sizes of a level",
    "error_per_region": "the same for a region, on average",
}


def compared(run: RunDirectory, settings: GroupSizesSettings) -> Compared:
    """A run with its errors; raises InputRefused if truth and errors are both gone."""
    if has_truth(run):
        write_accuracy(run)
    plan = read_plan(run)
    errors = errors_or_refused(run, read_accuracy(run))
    by_level = errors.groupby("level", sort=False)
    figures = by_level.agg({"absolute_error": "sum", "regions": "first"}).reset_index()
    figures["error_per_region"] = figures["absolute_error"] / figures["regions"]
    facts = {
        "dataset": settings.privacy.dataset,
        "mechanism": plan.mechanism,
        "calibration": plan.calibration,
        "loss": loss_text(plan),
        "neighbours": "bounded" if plan.bounded else "unbounded",
        "sizes": f"{plan.smallest_size} to {plan.largest_size}",
    }
    return Compared(run, settings, facts, figures)
