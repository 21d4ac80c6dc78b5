"""Certificate and report of a detailed-households run: public content only."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...pages.document import Cell, Document, Table
from ...pages.template import table
from ...products.certificate import Facts
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.ingest import run_parameters, run_specification
from ..settings import DetailedHouseholdsSettings
from ..workload.budgets import format_percent
from ..workload.parameters import Parameters
from .budget import LevelFigures, curves_of, level_figures
from .files import TIDY_FILES, measured_groups
from .report import accuracy_table, format_level, mean_errors

FIRST_COLUMNS = ("region_name", "iteration_name", "category", "margin", "count")
"""Columns of the first released counts."""

_ACCURACY_COLUMNS = {
    "groups": "groups",
    "mean_absolute_error": "mean |error| of totals",
    "mean_error": "mean error of totals",
    "mean_absolute_cell_error": "mean |error| of counts",
}


def facts_of_run(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Facts:
    """Facts for a run's certificate, including the margins of its noise."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    figures = level_figures(parameters, specification) if settings.is_private else ()
    context = {
        "percent": format_percent(settings.mechanism.wanted.coverage),
        "margins": margins_table(figures),
    }
    curves = curves_of(parameters, specification)
    return Facts("detailed_groups/templates/household_certificate.md.j2", context, curves)


def margins_table(figures: tuple[LevelFigures, ...]) -> Table | None:
    """Margins of error and thresholds of levels; None without noise."""
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
    return table(rows, "margin of a count")


def report(
    run: RunDirectory,
    settings: DetailedHouseholdsSettings,
    plan: Plan,
    accuracy: pd.DataFrame | None,
) -> Document:
    """The public report: settings, accuracy, and tables of groups.

    Errors are given, and shown, only for input that is not confidential.
    """
    parameters = run_parameters(run, settings)
    figures = level_figures(parameters, run_specification(run))
    shown = None if accuracy is None else accuracy_table(accuracy, _ACCURACY_COLUMNS)
    errors = None
    if accuracy is not None:
        errors = mean_errors(accuracy, "mean_absolute_cell_error", "groups")
    return report_document(
        run,
        settings,
        plan,
        "detailed_groups/templates/household_report.md.j2",
        counts=first_rows(run.release / TIDY_FILES["households"], FIRST_COLUMNS),
        percent=format_percent(settings.mechanism.wanted.coverage),
        loss="epsilon" if parameters.is_pure else "rho",
        budget=_budget(parameters),
        implied=margins_by_level(figures),
        margins=margins_table(figures),
        tables=_tables(run, parameters),
        errors=errors,
        accuracy=shown,
    )


def _budget(parameters: Parameters) -> dict[str, dict[str, float]]:
    """The loss of every level, by tabulation."""
    loss = "epsilon" if parameters.is_pure else "rho"
    levels = () if parameters.infinite else parameters.levels()
    return {
        f"{loss} of {name.upper()}": {
            format_level(*level): float(own.budgets.get(level, 0)) for level in levels
        }
        for name, own in parameters.of.items()
    }


def margins_by_level(figures: tuple[LevelFigures, ...]) -> dict[str, dict[str, float]]:
    """Margins of error of both tabulations by level; 0 where a tabulation lacks the level."""
    levels = dict.fromkeys((format_level(own.region_type, own.level) for own in figures), 0.0)
    series: dict[str, dict[str, float]] = {}
    for item in figures:
        own = series.setdefault(f"margin of {item.tabulation.name.upper()}", dict(levels))
        own[format_level(item.region_type, item.level)] = float(item.margin)
    return series


def _tables(run: RunDirectory, parameters: Parameters) -> Table:
    """Number of groups by table."""
    rows = []
    for tabulation, _ in parameters.tables():
        for region_type, level, groups in measured_groups(run, parameters, tabulation.name):
            times = np.bincount(groups["table"].to_numpy(), minlength=len(tabulation.names))
            counted = [f"{name}: {n:,}" for name, n in zip(tabulation.names, times, strict=True)]
            rows.append((region_type, level, tabulation.what, groups.num_rows, ", ".join(counted)))
    return Table(("region type", "level", "tabulation", "groups", "by table"), tuple(rows))
