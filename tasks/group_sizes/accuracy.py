"""Errors of released group sizes against the confidential truth; they are confidential too."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from ..products.budget import Cost
from ..products.comparison import write_errors
from ..runs.directory import RunDirectory
from .estimation.estimate import estimated_counts
from .ingest.read import read_plan, read_regions, true_counts
from .settings import GroupSizesSettings

KEYS = ("level",)
FIGURES = {
    "absolute_error": "absolute error, summed over the regions and sizes of a level",
    "error_per_region": "the same for a region, on average",
}


def write_accuracy(run: RunDirectory, _settings: GroupSizesSettings) -> None:
    """Write the errors by level and size to the confidential folder of the run."""
    plan, hierarchy = read_plan(run), read_regions(run)
    counts = estimated_counts(run, plan, hierarchy), true_counts(run, hierarchy, plan)
    frames = [
        pd.DataFrame(
            {
                "level": name,
                "size": np.arange(plan.smallest_size, plan.largest_size + 1),
                "regions": len(truth),
                "groups": truth.sum(axis=0),
                "absolute_error": np.abs(estimated - truth).sum(axis=0),
            }
        )
        for name, estimated, truth in zip(hierarchy.names, *counts, strict=True)
    ]
    write_errors(run, pa.Table.from_pandas(pd.concat(frames), preserve_index=False))


def facts_of_run(run: RunDirectory, _settings: GroupSizesSettings) -> dict[str, str]:
    """Description of a run in words."""
    plan = read_plan(run)
    return {
        "mechanism": plan.mechanism,
        "calibration": plan.calibration,
        "loss": Cost(plan.universe).in_words,
        "neighbours": "bounded" if plan.bounded else "unbounded",
        "sizes": f"{plan.smallest_size} to {plan.largest_size}",
    }
