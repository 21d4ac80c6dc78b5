"""The public report of a run of the supplemental tables: its settings, its accuracy.

Errors against the input are shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

import pandas as pd

from ...pages.document import Document, Table
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..estimation import TITLES
from ..ingest.ingest import read_plan
from ..settings import SupplementalDhcSettings
from .tables import SUPPLEMENTAL_DHC

NEIGHBORS = "one person joins or leaves, with up to two records of units"


COLUMNS = ("table", "level", "region", "iteration", "label", "low", "high", "estimate")
"""Columns of the released rows on the front page."""


def report(
    run: RunDirectory, settings: SupplementalDhcSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    measured = read_plan(run)
    shares: dict[str, float] = {}
    for query in measured.queries:
        share = 100 * float(query.rho / measured.rho)
        shares[query.measure] = shares.get(query.measure, 0.0) + share
    return report_document(
        run,
        settings,
        plan,
        "supplemental_dhc/templates/report.md.j2",
        counts=first_rows(run.release / f"{SUPPLEMENTAL_DHC}.parquet", COLUMNS),
        taus=measured.taus,
        shares=shares,
        facts={
            **{f"regions of {level}": number for level, number in measured.levels.items()},
        },
        titles=Table(("table", "of"), tuple(TITLES.items())),
        accuracy=None if accuracy is None else _accuracy(accuracy),
        errors=None if accuracy is None else _errors(accuracy),
    )


def _accuracy(accuracy: pd.DataFrame) -> Table:
    columns = {name: name for name in ("table", "level", "iteration", "rows")} | {
        "rmse": "root mean square error",
        "rmse_noisy": "of noisy values",
        "covered": "% within the interval",
    }
    shown = accuracy.assign(covered=[f"{100 * share:.1f}" for share in accuracy["covered"]])
    return errors_table(shown, columns)


def _errors(accuracy: pd.DataFrame) -> dict[str, float]:
    """The mean error of counts of persons, by table."""
    counts = accuracy[accuracy["kind"] == "count"]
    return {str(k): v for k, v in counts.groupby("table", sort=False)["rmse"].mean().items()}
