"""What the front page of a trips report says: the guarantee, the budget, how accurate it is."""

from __future__ import annotations

import math

import pandas as pd

from ...noise.sampler import noise_variance
from ...pages.document import Section
from ...products.reports import Overview, bars_panel
from ...products.statement import in_one_sentence
from ..settings import TripsSettings
from ..workload.plan import Plan
from .certificate import statement_of


def overview(settings: TripsSettings, plan: Plan, accuracy: pd.DataFrame | None) -> Overview:
    """The front page; `accuracy` is given for inputs that are not confidential."""
    return Overview(
        f"Trips of the dataset {settings.privacy.dataset}, by the mechanism {plan.mechanism}",
        in_one_sentence(statement_of(settings, plan)),
        (_budget(plan), _implied(plan) if accuracy is None else _errors(accuracy)),
    )


def _budget(plan: Plan) -> Section:
    if plan.budget is None:
        return Section("The budget", ("All of the loss is spent on the cells that have trips.",))
    return bars_panel(
        "The budget",
        "Part of the loss that each level of the tree costs, from its root to the cells.",
        [f"level {level}" for level in plan.levels],
        {"budget": [100 * float(plan.budget.shares[level]) for level in plan.levels]},
        value_label="% of the loss",
    )


def _errors(accuracy: pd.DataFrame) -> Section:
    return bars_panel(
        "How accurate it is",
        "Mean absolute error of a count, over the nodes that have trips in truth or release.",
        [f"level {level}" for level in accuracy["level"]],
        {"error": accuracy["mean_absolute_error"].tolist()},
        value_label="mean absolute error (trips)",
    )


def _implied(plan: Plan) -> Section:
    title = "What the budget implies"
    noise = {level: plan.noise[level] for level in plan.levels if plan.noise[level]}
    if not noise:
        return Section(title, ("No noise was drawn.",))
    return bars_panel(
        title,
        "Noise in each measured count, by level of the tree.",
        [f"level {level}" for level in noise],
        {"noise": [math.sqrt(noise_variance(plan.noise_mechanism, p)) for p in noise.values()]},
        value_label="standard deviation of the noise",
    )
