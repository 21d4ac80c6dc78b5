"""What certificate and report of a detailed-households run say: public content only."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...pages.document import Cell, Document, Section, Table
from ...products.certificate import BLURRED, Facts
from ...products.plan import Plan
from ...products.reports import Overview, bars_panel, first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.ingest import run_parameters, run_specification
from ..settings import DetailedHouseholdsSettings
from ..workload.budgets import shown_percent
from ..workload.guarantee import pass_plan
from ..workload.parameters import Parameters
from .budget import LevelFigures, curves_of, level_figures
from .files import TIDY_FILES, measured_groups
from .report import accuracy_section, mean_errors, shown_level

FIRST_COLUMNS = ("region_name", "iteration_name", "category", "margin", "count")
"""Columns of the first released counts."""

_ACCURACY_COLUMNS = {
    "groups": "groups",
    "mean_absolute_error": "mean |error| of totals",
    "mean_error": "mean error of totals",
    "mean_absolute_cell_error": "mean |error| of counts",
}


def facts_of_run(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Facts:
    """What the certificate of a run says, the margins of its noise among it."""
    parameters = run_parameters(run, settings)
    sections: tuple[Section, ...] = ()
    if settings.is_private:
        sections = (margins_section(level_figures(parameters, run_specification(run)), settings),)
    percent = shown_percent(settings.mechanism.wanted.coverage)
    return Facts(
        made=(
            "by the SafeTab-H mechanism: households of every group of the specification that has a "
            "released total of persons were counted with noise by type and by tenure, as finely as "
            "that total allows"
        ),
        public=(
            f"{BLURRED} A number of a small group says little: it may be noise alone. The margin "
            f"within which a number is of the truth in {percent} of 100 cases stands under margins "
            "of error."
        ),
        sections=sections,
        curves=curves_of(parameters, run_specification(run)) if settings.is_private else None,
    )


def margins_table(figures: tuple[LevelFigures, ...]) -> Table:
    """Margins of error and thresholds of levels, of one at least."""
    rows: list[dict[str, Cell | None]] = [
        {
            "tabulation": item.tabulation.name.upper(),
            "region type": item.region_type,
            "level": item.level,
            "budget": str(item.budget.budget),
            "groups of a household": item.budget.stability,
            "margin of a count": item.margin,
            "of the total, by table": ", ".join(map(str, item.margins_of_totals)),
            "tables from totals of": ", ".join(map(str, item.thresholds)),
        }
        for item in figures
    ]
    return Table.of(rows, "margin of a count")


def margins_section(
    figures: tuple[LevelFigures, ...], settings: DetailedHouseholdsSettings
) -> Section:
    """Margins of error, for certificate and report."""
    percent = shown_percent(settings.mechanism.wanted.coverage)
    return Section(
        "Margins of error",
        (
            "The margin of a noisy count is the smallest number within which it is of the truth "
            f"with a probability of {percent} %, by the distribution of the noise. A category that "
            "holds others is the sum of their counts, and has a larger margin, which the tidy file "
            "tells. A group has the table whose threshold its released total of persons reaches.",
            margins_table(figures),
        ),
    )


def report(
    run: RunDirectory,
    settings: DetailedHouseholdsSettings,
    plan: Plan,
    accuracy: pd.DataFrame | None,
) -> Document:
    """The public report: what was asked, how exact it is, which tables groups have.

    Errors are given, and shown, for input that is not confidential alone.
    """
    parameters = run_parameters(run, settings)
    figures = level_figures(parameters, run_specification(run))
    sections = [_guarantee(parameters)]
    if figures:
        sections.append(margins_section(figures, settings))
    sections.append(_tables(run, parameters))
    if accuracy is not None:
        sections.append(accuracy_section(accuracy, _ACCURACY_COLUMNS))
    overview = Overview(
        f"Households by detailed race and ethnicity group of the householder of the dataset "
        f"{settings.privacy.dataset}, by the mechanism SafeTab-H",
        (_budget(parameters), _front(figures, accuracy)),
        counts=first_rows(run.release / TIDY_FILES["households"], FIRST_COLUMNS),
    )
    return report_document(run, settings, plan, overview, sections)


def _guarantee(parameters: Parameters) -> Section:
    rows = []
    for region_pass in parameters.passes:
        plan = pass_plan(parameters, region_pass)
        own = (str(table.total_of(region_pass)) for table in parameters.of.values())
        losses = ("inf" if parameters.infinite else loss for loss in own)
        rows.append((region_pass, plan.symbol, *losses, plan.stated_loss, plan.bounded_rho))
    headers = ("pass", "in", *(name.upper() for name in parameters.of), "both", "changing one: rho")
    return Section(
        "What is guaranteed",
        (
            "Households of every group with a released total of persons were measured with noise, "
            "by type (T3) and by tenure (T4). The budgets of the levels of a pass add up, and so "
            "do those of both tabulations; choosing the tables cost nothing, since the totals are "
            "released already.",
            Table(headers, tuple(rows), "both"),
        ),
    )


def _budget(parameters: Parameters) -> Section:
    loss = "epsilon" if parameters.is_pure else "rho"
    levels = () if parameters.infinite else parameters.levels()
    series = {
        f"{loss} of {name.upper()}": [float(own.budgets.get(level, 0)) for level in levels]
        for name, own in parameters.of.items()
    }
    return bars_panel(
        "The budget",
        "Loss of every population group level; the levels of a pass add up, and both tabulations.",
        [shown_level(*level) for level in levels],
        series,
        value_label=loss,
    )


def _front(figures: tuple[LevelFigures, ...], accuracy: pd.DataFrame | None) -> Section:
    if accuracy is None:
        return margins_panel(figures)
    labels, errors = mean_errors(accuracy, "mean_absolute_cell_error", "groups")
    return bars_panel(
        "How accurate it is",
        "Mean absolute error of a measured count of households, by population group level.",
        labels,
        {"error": errors},
        value_label="mean absolute error (households)",
    )


def margins_panel(figures: tuple[LevelFigures, ...]) -> Section:
    """Margins of error of both tabulations by level, as bars of the front page; 0 where one has
    none."""
    levels = dict.fromkeys(shown_level(item.region_type, item.level) for item in figures)
    series: dict[str, dict[str, float]] = {}
    for item in figures:
        own = series.setdefault(
            f"margin of {item.tabulation.name.upper()}", dict.fromkeys(levels, 0.0)
        )
        own[shown_level(item.region_type, item.level)] = float(item.margin)
    return bars_panel(
        "What the budget implies",
        "Margin of error of a count of households.",
        list(levels),
        {name: list(own.values()) for name, own in series.items()},
        value_label="margin of error (households)",
    )


def _tables(run: RunDirectory, parameters: Parameters) -> Section:
    rows = []
    for tabulation, _ in parameters.tables():
        for region_type, level, groups in measured_groups(run, parameters, tabulation.name):
            times = np.bincount(groups["table"].to_numpy(), minlength=len(tabulation.names))
            counted = [f"{name}: {n:,}" for name, n in zip(tabulation.names, times, strict=True)]
            rows.append((region_type, level, tabulation.what, groups.num_rows, ", ".join(counted)))
    return Section(
        "Groups at each table",
        (
            "By the released totals of persons: how many groups have a table, and which.",
            Table(("region type", "level", "tabulation", "groups", "by table"), tuple(rows)),
        ),
    )
