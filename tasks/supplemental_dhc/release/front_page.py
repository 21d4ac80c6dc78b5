"""What the front page of a report on the supplemental tables says: guarantee, budget, accuracy."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from ...pages.document import Section
from ...products.reports import Overview, bars_panel, first_rows
from ...products.statement import in_one_sentence
from ...runs.directory import RunDirectory
from ..settings import SupplementalDhcSettings
from ..workload.costs import noise_plan
from ..workload.plan import Plan
from .certificate import statement_of
from .tables import SUPPLEMENTAL_DHC

COLUMNS = ("table", "level", "region", "iteration", "label", "low", "high", "estimate")
"""Of the released rows that the front page shows."""


def overview(
    run: RunDirectory, settings: SupplementalDhcSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Overview:
    """The front page; `accuracy` is given for input that is not confidential."""
    return Overview(
        f"People joined with their households in the dataset {settings.privacy.dataset}: tables "
        "PH1 to PH8",
        in_one_sentence(statement_of(settings, plan)),
        (
            _budget(plan),
            noise_plan(plan).noise_panel("Noise in each count.")
            if accuracy is None
            else _errors(accuracy),
        ),
        counts=first_rows(run.release / f"{SUPPLEMENTAL_DHC}.parquet", COLUMNS),
    )


def _budget(plan: Plan) -> Section:
    shares: dict[str, Fraction] = {}
    for query in plan.queries:
        share = query.rho / plan.rho
        shares[query.measure] = shares.get(query.measure, Fraction(0)) + share
    return bars_panel(
        "The budget",
        "Part of the loss that the counts of each table cost.",
        list(shares),
        {"budget": [100 * float(share) for share in shares.values()]},
        value_label="% of the loss",
    )


def _errors(accuracy: pd.DataFrame) -> Section:
    means = accuracy[accuracy["kind"] == "count"].groupby("table", sort=False)["rmse"].mean()
    return bars_panel(
        "How accurate it is",
        "Root mean square error of the estimated counts of persons, mean over levels and "
        "iterations.",
        [str(name) for name in means.index],
        {"error": means.tolist()},
        value_label="persons",
    )
