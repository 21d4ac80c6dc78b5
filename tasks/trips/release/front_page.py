"""What the front page of a trips report says: the guarantee, the budget, how accurate it is."""

from __future__ import annotations

import pandas as pd

from ...pages.document import Section
from ...products.reports import Overview, bars_panel, first_rows
from ...products.statement import in_one_sentence
from ...runs.directory import RunDirectory
from ..settings import TripsSettings
from ..workload.costs import noise_plan
from ..workload.plan import Plan
from .certificate import statement_of
from .table import TABLE


def overview(
    run: RunDirectory, settings: TripsSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Overview:
    """The front page; `accuracy` is given for inputs that are not confidential."""
    return Overview(
        f"Trips of the dataset {settings.privacy.dataset}, by the mechanism {plan.mechanism}",
        in_one_sentence(statement_of(settings, plan)),
        (
            _budget(plan),
            noise_plan(plan).noise_panel("Noise in each measured count, by level of the tree.")
            if accuracy is None
            else _errors(accuracy),
        ),
        counts=first_rows(run.release / f"{TABLE}.parquet"),
    )


def _budget(plan: Plan) -> Section:
    if plan.budget is None:
        return Section("The budget", ("All of the loss is spent on the cells that have trips.",))
    words = "Part of the loss that each level of the tree costs, from its root to the cells."
    return noise_plan(plan).budget_panel(words)


def _errors(accuracy: pd.DataFrame) -> Section:
    return bars_panel(
        "How accurate it is",
        "Mean absolute error of a count, over the nodes that have trips in truth or release.",
        [f"level {level}" for level in accuracy["level"]],
        {"error": accuracy["mean_absolute_error"].tolist()},
        value_label="mean absolute error (trips)",
    )
