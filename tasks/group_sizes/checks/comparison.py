"""What a comparison of group-sizes runs shows of each."""

from __future__ import annotations

import pandas as pd

from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..release.report import loss_text
from ..settings import GroupSizesSettings

KEYS = ("level",)
FIGURES = {
    "absolute_error": "absolute error, summed over the regions and sizes of a level",
    "error_per_region": "the same for a region, on average",
}


def by_level(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors by level, from those by level and size that `write_accuracy` keeps."""
    of_level = errors.groupby("level", sort=False)
    figures = of_level.agg({"absolute_error": "sum", "regions": "first"}).reset_index()
    figures["error_per_region"] = figures["absolute_error"] / figures["regions"]
    return figures


def facts_of_run(run: RunDirectory, _settings: GroupSizesSettings) -> dict[str, str]:
    """What a run is, in words."""
    plan = read_plan(run)
    return {
        "mechanism": plan.mechanism,
        "calibration": plan.calibration,
        "loss": loss_text(plan),
        "neighbours": "bounded" if plan.bounded else "unbounded",
        "sizes": f"{plan.smallest_size} to {plan.largest_size}",
    }
