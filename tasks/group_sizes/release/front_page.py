"""What the front page of a group-sizes report says: guarantee, budget, how accurate it is."""

from __future__ import annotations

import pandas as pd

from ...pages.document import Section
from ...products.reports import Overview, bars_panel, first_rows
from ...products.statement import in_one_sentence
from ...runs.directory import RunDirectory
from ..settings import GroupSizesSettings
from ..workload.costs import noise_plan
from ..workload.plan import Plan
from .certificate import statement_of
from .tables import GROUP_SIZES


def overview(
    run: RunDirectory, settings: GroupSizesSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Overview:
    """The front page; `accuracy` is given for inputs that are not confidential."""
    noise = noise_plan(plan)
    implied = f"Noise in each value of the measured vector, {plan.vector.replace('_', ' ')}."
    return Overview(
        f"Numbers of groups by size of the dataset {settings.privacy.dataset}, by the mechanism "
        f"{plan.mechanism.replace('_', ' ')}",
        in_one_sentence(statement_of(settings, plan)),
        (
            noise.budget_panel("Part of the loss that each level's measurements cost."),
            noise.noise_panel(implied) if accuracy is None else _errors(accuracy),
        ),
        counts=first_rows(run.release / f"{GROUP_SIZES}.parquet"),
    )


def _errors(accuracy: pd.DataFrame) -> Section:
    totals = accuracy.groupby("level", sort=False).agg(
        regions=("regions", "first"), error=("absolute_error", "sum")
    )
    return bars_panel(
        "How accurate it is",
        "Distance between the released and the true sizes of a region, all sizes together.",
        [str(level) for level in totals.index],
        {"error": (totals["error"] / totals["regions"]).tolist()},
        value_label="L1 error of a region, mean",
    )
