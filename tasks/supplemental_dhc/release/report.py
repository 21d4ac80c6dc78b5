"""The public report of a run of the supplemental tables: what was asked, how exact it is.

Errors against the input are shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from ...pages.document import Cell, Document, Section, Table
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import (
    Overview,
    bars_panel,
    first_rows,
    noise_panel,
    report_document,
    sections_of,
)
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..settings import SupplementalDhcSettings
from ..workload.costs import universe_plan
from ..workload.plan import Plan as MeasuredQueries
from ..workload.rows import TITLES
from .tables import SUPPLEMENTAL_DHC

NEIGHBORS = "one person joins or leaves, with up to two records of units"


COLUMNS = ("table", "level", "region", "iteration", "label", "low", "high", "estimate")
"""Of the released rows that the front page shows."""


def report(
    run: RunDirectory, settings: SupplementalDhcSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    measured = read_plan(run)
    sections = [
        _release(measured),
        *sections_of("supplemental_dhc/templates/noise.md.j2", plan, taus=measured.taus),
    ]
    if accuracy is not None:
        sections.append(_accuracy(accuracy))
    front = Overview(
        f"People joined with their households in the dataset {settings.privacy.dataset}: tables "
        "PH1 to PH8",
        (
            _budget(measured),
            noise_panel(plan.universes[0], "Noise in each count.")
            if accuracy is None
            else _errors(accuracy),
        ),
        counts=first_rows(run.release / f"{SUPPLEMENTAL_DHC}.parquet", COLUMNS),
    )
    return report_document(run, settings, plan, front, sections)


def loss_text(plan: MeasuredQueries) -> str:
    """What the run costs, in its own terms."""
    if not plan.is_noisy:
        return "nothing is guaranteed, since there is no noise"
    tight, simple = universe_plan(plan).epsilons().values()
    return (
        f"rho {float(plan.rho):g} (epsilon {tight:.4g} at delta 1e-10; simple conversion "
        f"{simple:.4g})"
    )


def _release(plan: MeasuredQueries) -> Section:
    rows: tuple[tuple[Cell, ...], ...] = (
        ("loss", loss_text(plan)),
        ("neighbouring datasets", NEIGHBORS),
        ("rho of bounded zCDP that this implies", universe_plan(plan).bounded_rho),
        *((f"regions of {level}", number) for level, number in plan.levels.items()),
    )
    return Section(
        "The release",
        (
            "Estimates are posterior means under a flat prior on what is possible: counts of at "
            "least 0, and of 1 to 10 persons in a household, 2 to 10 in a family, on average. "
            "Intervals have a probability of 90 %. Tables, iterations and levels were estimated "
            "apart, and need not agree.",
            Table(("what", "value"), rows),
            Table(("table", "of"), tuple(TITLES.items())),
        ),
    )


def _accuracy(accuracy: pd.DataFrame) -> Section:
    columns = {name: name for name in ("table", "level", "iteration", "rows")} | {
        "rmse": "root mean square error",
        "rmse_noisy": "of noisy values",
        "covered": "% within the interval",
    }
    shown = accuracy.assign(covered=[f"{100 * share:.1f}" for share in accuracy["covered"]])
    return Section(
        "Error",
        (
            "Estimates beside the true values of the input, which is not confidential, with at "
            "most tau persons of a household.",
            errors_table(shown, columns),
        ),
    )


def _budget(plan: MeasuredQueries) -> Section:
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
