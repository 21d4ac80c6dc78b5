"""The certificate and the public report of a run of detailed groups or households.

Shares of groups at each table describe the published noisy outcome. Errors against the input are
shown only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...pages.document import Document, Table
from ...products.certificate import Facts
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.ingest import Settings, run_parameters, run_specification
from ..postprocess import groups_to_release, mask_of
from ..workload.budgets import format_percent
from ..workload.parameters import Parameters
from .accuracy import FIGURES, HOUSEHOLD_FIGURES
from .budget import curves_of, level_figures
from .tables import TIDY_FILES

REPORTED = {
    "persons": FIGURES
    | {
        "percentile_95": "95th percentile of absolute errors",
        "mean_size_suppressed": "mean size of groups of somebody that are not shown",
    },
    "households": HOUSEHOLD_FIGURES,
}
"""Figures of a report, by kind of record."""


FIRST_COLUMNS: Mapping[str, Sequence[str]] = {
    "persons": (
        *("region_name", "iteration_name", "sex", "age_start", "age_end"),
        *("margin", "count"),
    ),
    "households": ("region_name", "iteration_name", "category", "margin", "count"),
}
"""Columns of the first released counts, by kind of record."""

PREFIX = {"persons": "", "households": "household_"}
"""Beginning of the names of templates, by kind of record."""

_PLACES = {"region_type": "region type", "level": "level", "table": "table"}
_ERROR = {
    "persons": ("mean_absolute_error", "shown"),
    "households": ("mean_absolute_cell_error", "groups"),
}
"""The error of a level on the front page, and the number of groups by which tables are weighed."""


def certificate_facts(run: RunDirectory, settings: Settings) -> Facts:
    """Facts of a run's certificate; margins only with noise."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    figures = level_figures(parameters, specification) if settings.is_private else ()
    context = {
        "parameters": parameters,
        "percent": format_percent(parameters.coverage),
        "margins": margins_table(figures),
    }
    template = f"detailed_groups/templates/{PREFIX[parameters.records]}certificate.md.j2"
    return Facts(template, context, curves_of(parameters, specification))


_MARGINS = {
    "tabulation": "tabulation",
    "region_type": "region type",
    "level": "level",
    "budget": "budget",
    "stability": "stability",
    "margin": "margin",
    "margin_wanted": "wanted",
    "margin_total_only": "total only",
    "margins_of_totals": "of the total, by table",
    "table_thresholds": "tables from totals of",
    "suppression_threshold": "threshold",
}
"""Headers of the table of margins."""


def margins_table(figures: Sequence[Mapping[str, Any]]) -> Table | None:
    """Margins of error and thresholds of levels, given `level_figures`; None without noise."""
    several = len({item["tabulation"] for item in figures}) > 1
    rows = [
        {
            **item,
            "tabulation": item["tabulation"].upper() if several else None,
            "margins_of_totals": ", ".join(map(str, item["margins_of_totals"].values())),
            "table_thresholds": ", ".join(map(str, item["table_thresholds"])),
        }
        for item in figures
    ]
    known = [key for key in _MARGINS if any(row[key] is not None for row in rows)]
    listed = [{_MARGINS[key]: row[key] for key in known} for row in rows]
    return Table.of(listed, "margin") if listed else None


def report(
    run: RunDirectory, settings: Settings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    figures, records = level_figures(parameters, specification), parameters.records
    used = None if accuracy is None else accuracy[accuracy["groups"] > 0]
    columns, chance = REPORTED[records], parameters.zero_suppression_chance
    is_suppressed = any(item["suppression_threshold"] is not None for item in figures)
    return report_document(
        run,
        settings,
        plan,
        f"detailed_groups/templates/{PREFIX[records]}report.md.j2",
        counts=first_rows(run.release / TIDY_FILES[records], FIRST_COLUMNS[records]),
        percent=format_percent(parameters.coverage),
        implied=_implied(parameters, figures),
        margins=margins_table(figures),
        tables=_tables(run, settings, parameters),
        errors=None if accuracy is None else mean_errors(accuracy, *_ERROR[records]),
        accuracy=None
        if used is None
        else errors_table(used, _PLACES | columns, columns["mean_absolute_error"]),
        suppressed=100 * float(chance) if chance and is_suppressed else None,
    )


def _implied(
    parameters: Parameters, figures: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """The margin of every tabulation by level, 0 where it lacks the level."""
    levels = {format_level(item["region_type"], item["level"]): 0.0 for item in figures}
    series = {name: dict(levels) for name in parameters.budgets}
    for item in figures:
        name = format_level(item["region_type"], item["level"])
        series[item["tabulation"]][name] = float(item["margin"])
    return {
        "margin" if len(series) == 1 else f"margin of {name.upper()}": own
        for name, own in series.items()
    }


def _tables(run: RunDirectory, settings: Settings, parameters: Parameters) -> Table:
    """The groups of every level by table, as the published noisy outcome has them."""
    rows = []
    for tabulation in parameters.tabulations:
        for level, groups in groups_to_release(run, settings, tabulation.name):
            hidden, n = mask_of(groups, "is_suppressed"), max(1, groups.num_rows)
            numbers = np.bincount(
                groups["table"].to_numpy()[~hidden], minlength=len(tabulation.names)
            )
            by_table = (
                f"{table}: {100 * int(number) / n:.2f} %"
                for table, number in zip(tabulation.names, numbers, strict=True)
            )
            suppressed = f"{100 * int(hidden.sum()) / n:.2f} %"
            cells = groups.num_rows, suppressed, ", ".join(by_table)
            rows.append((*level, tabulation.what, *cells))
    headers = ("region type", "level", "tabulation", "groups", "suppressed", "by table")
    return Table(headers, tuple(rows))


def format_level(region_type: str, level: int) -> str:
    """A population group level in words: capitals are too wide for a chart."""
    kind = region_type.removeprefix("PR-")
    name = {"USA": "nation", "AIANNH": "AIANNH area"}.get(kind, kind.lower())
    return f"{name if kind == region_type else f'PR {name}'}, {level}"


def mean_errors(accuracy: pd.DataFrame, column: str, weight: str) -> dict[str, float]:
    """Means of an error at each population group level, weighted by numbers of groups."""
    used = accuracy[(accuracy[weight] > 0) & accuracy[column].notna()]
    return {
        format_level(str(region_type), int(level)): float(
            np.average(rows[column], weights=rows[weight])
        )
        for (region_type, level), rows in used.groupby(["region_type", "level"], sort=False)
    }
