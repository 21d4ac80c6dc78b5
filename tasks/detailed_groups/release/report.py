"""The certificate and the public report of a run of detailed groups or households.

Shares of groups at each table describe the published noisy outcome. Errors against the input are
shown only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...pages.document import Cell, Document, Table
from ...products.certificate import Facts
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.ingest import Settings, run_parameters, run_specification
from ..postprocess.groups import mask_of
from ..postprocess.run import coterminous_of, groups_to_release
from ..settings import DetailedGroupsSettings
from ..workload.budgets import format_percent
from ..workload.parameters import Parameters
from ..workload.regions import region_types
from ..workload.tabulations import TABULATIONS
from .accuracy import FIGURES, HOUSEHOLD_FIGURES
from .budget import LevelFigures, curves_of, level_figures
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

Levels = Mapping[tuple[str, int], Any]
"""Figures by region type and iteration level."""


def certificate_facts(run: RunDirectory, settings: Settings) -> Facts:
    """Facts of a run's certificate; margins only with noise."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    figures = level_figures(parameters, specification) if settings.is_private else ()
    context = {
        "parameters": parameters.first,
        "percent": format_percent(parameters.first.wanted.coverage),
        "margins": margins_table(figures),
    }
    template = f"detailed_groups/templates/{PREFIX[parameters.records]}certificate.md.j2"
    return Facts(template, context, curves_of(parameters, specification))


def margins_table(figures: Iterable[LevelFigures]) -> Table | None:
    """Margins of error and thresholds of levels; None without noise."""
    listed = list(figures)
    several = len({item.tabulation.name for item in listed}) > 1
    rows: list[dict[str, Cell | None]] = [
        {
            "tabulation": item.tabulation.name.upper() if several else None,
            "region type": item.region_type,
            "level": item.level,
            "budget": str(item.budget.budget),
            "stability": item.budget.stability,
            "margin": item.margin,
            "wanted": item.wanted,
            "total only": item.margin_total_only,
            "of the total, by table": ", ".join(map(str, item.margins_of_totals)),
            "tables from totals of": ", ".join(map(str, item.thresholds)),
            "threshold": item.threshold,
        }
        for item in listed
    ]
    if not rows:
        return None
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return Table.of([{name: row[name] for name in known} for row in rows], "margin")


def report(
    run: RunDirectory, settings: Settings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    figures, records = level_figures(parameters, specification), parameters.records
    levels = () if parameters.infinite else parameters.levels()
    used = None if accuracy is None else accuracy[accuracy["groups"] > 0]
    columns, loss = REPORTED[records], "epsilon" if parameters.is_pure else "rho"
    budgets = {name: own.budgets for name, own in parameters.of.items()}
    margins: dict[str, dict[tuple[str, int], float]] = {name: {} for name in parameters.of}
    for item in figures:
        margins[item.tabulation.name][item.region_type, item.level] = item.margin
    chance = parameters.first.zero_suppression_chance
    is_suppressed = any(item.threshold is not None for item in figures)
    tables, detailed = _tables(run, settings, parameters)
    return report_document(
        run,
        settings,
        plan,
        f"detailed_groups/templates/{PREFIX[records]}report.md.j2",
        counts=first_rows(run.release / TIDY_FILES[records], FIRST_COLUMNS[records]),
        percent=format_percent(parameters.first.wanted.coverage),
        loss=loss,
        budget=_series(levels, loss, budgets),
        implied=_series(levels, "margin", margins),
        margins=margins_table(figures),
        tables=tables,
        detailed=_series(parameters.levels(), "groups", detailed),
        errors=None if accuracy is None else mean_errors(accuracy, *_ERROR[records]),
        accuracy=None
        if used is None
        else errors_table(used, _PLACES | columns, columns["mean_absolute_error"]),
        suppressed=100 * float(chance) if chance and is_suppressed else None,
        coterminous=_coterminous(run, settings, parameters),
    )


def _series(
    levels: Iterable[tuple[str, int]], what: str, figures: Mapping[str, Levels]
) -> dict[str, dict[str, float]]:
    """Figures of every tabulation by level, 0 where it lacks the level."""
    return {
        what if len(figures) == 1 else f"{what} of {name.upper()}": {
            format_level(*level): float(own.get(level, 0)) for level in levels
        }
        for name, own in figures.items()
    }


def _tables(
    run: RunDirectory, settings: Settings, parameters: Parameters
) -> tuple[Table, dict[str, dict[tuple[str, int], float]]]:
    """The groups of every level by table, as the published noisy outcome has them; and the part in
    percent that shows more than a total, by tabulation.
    """
    rows = []
    detailed: dict[str, dict[tuple[str, int], float]] = {name: {} for name in parameters.of}
    for name in parameters.of:
        tabulation = TABULATIONS[name]
        for level, groups in groups_to_release(run, settings, name):
            hidden, n = mask_of(groups, "is_suppressed"), max(1, groups.num_rows)
            shown = groups["table"].to_numpy()[~hidden]
            numbers = np.bincount(shown, minlength=len(tabulation.names))
            percent = [100 * int(number) / n for number in (hidden.sum(), *numbers)]
            named = zip(tabulation.names, percent[1:], strict=True)
            by_table = (f"{table}: {part:.2f} %" for table, part in named)
            cells = groups.num_rows, f"{percent[0]:.2f} %", ", ".join(by_table)
            rows.append((*level, tabulation.what, *cells))
            detailed[name][level] = sum(percent[2:])
    headers = ("region type", "level", "tabulation", "groups", "suppressed", "by table")
    return Table(headers, tuple(rows)), detailed


def _coterminous(run: RunDirectory, settings: Settings, parameters: Parameters) -> Table | None:
    """Number of regions that share their blocks with another; None without this step."""
    if not isinstance(settings, DetailedGroupsSettings) or not settings.mechanism.coterminous:
        return None
    rows = []
    for region_pass in parameters.passes:
        found = coterminous_of(run, settings, region_pass)
        rows += [
            (region_pass, kind.name, len(found.number[kind.name]))
            for kind in region_types(region_pass)
        ]
    return Table(("pass", "region type", "regions"), tuple(rows))


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
