"""The certificate and the public report of a detailed-groups run: settings, accuracy and checks.

Shares of groups at each table describe the published noisy outcome; the curves of suppression
follow from the noise alone. Errors against the input are shown only for inputs that are not
confidential.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...noise.distributions import IntegerDistribution
from ...pages.document import Document, Figure, Table
from ...pages.figures import bar_chart
from ...pages.template import table
from ...products.certificate import Facts
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.ingest import run_parameters, run_specification
from ..postprocess.groups import mask_of
from ..postprocess.run import coterminous_of, groups_to_release
from ..settings import DetailedGroupsSettings
from ..workload.budgets import format_percent
from ..workload.parameters import MechanismParameters, Parameters
from ..workload.regions import region_types
from ..workload.specification import Specification
from .budget import LevelFigures, curves_of, level_figures, level_reports
from .figures import populations_table, suppression_figures
from .files import TIDY_FILES
from .tables import TABLE_NAMES


def facts_of(
    settings: DetailedGroupsSettings, parameters: Parameters, specification: Specification
) -> Facts:
    """Facts of the certificate; margins only with noise."""
    figures = level_figures(parameters, specification) if settings.is_private else ()
    own = parameters.first
    context = {
        "parameters": own,
        "percent": format_percent(own.wanted.coverage),
        "margins": margins_table(figures),
    }
    curves = curves_of(parameters, specification)
    return Facts("detailed_groups/templates/certificate.md.j2", context, curves)


def margins_table(figures: Iterable[LevelFigures]) -> Table | None:
    """Margins of error and thresholds of levels; None without noise."""
    levels = list(figures)
    is_wanted = any(item.wanted is not None for item in levels)
    rows = [
        {
            "region type": item.region_type,
            "level": item.level,
            "budget": str(item.budget.budget),
            "stability": item.budget.stability,
            "margin": item.margin,
            **({"wanted": item.wanted} if is_wanted else {}),
            "total only": item.margin_total_only,
            "formula": item.margin_by_formula,
            "target": item.margin_target,
            "threshold": item.threshold,
        }
        for item in levels
    ]
    return table(rows, "margin")


FIRST_COLUMNS = ("region_name", "iteration_name", "sex", "age_start", "age_end", "margin", "count")
"""Columns of the first released counts."""

_PLACES = {"region_type": "region type", "level": "level", "table": "table"}
_ACCURACY_COLUMNS = {
    "groups": "groups",
    "shown": "shown",
    "mean_absolute_error": "mean |error| of totals",
    "mean_error": "mean error of totals",
    "percentile_95": "95 % of |error|",
    "mean_absolute_cell_error": "mean |error| of cells",
    "somebody_suppressed": "suppressed with somebody",
    "mean_size_suppressed": "their mean size",
    "nobody_shown": "shown with nobody",
}


def report(
    run: RunDirectory,
    settings: DetailedGroupsSettings,
    plan: Plan,
    accuracy: pd.DataFrame | None,
) -> Document:
    """The report as a document; see the module's docstring."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    figures, own = level_figures(parameters, specification), parameters.first
    suppressed, suppression = _suppression(figures, own)
    levels = level_reports(figures)
    used = None if accuracy is None else accuracy[accuracy["groups"] > 0]
    return report_document(
        run,
        settings,
        plan,
        "detailed_groups/templates/report.md.j2",
        counts=first_rows(run.release / TIDY_FILES["persons"], FIRST_COLUMNS),
        percent=format_percent(own.wanted.coverage),
        loss="epsilon" if own.is_pure else "rho",
        budget={} if own.infinite else _name_levels(own.budgets),
        implied={
            format_level(item.region_type, item.level): float(item.margin) for item in figures
        },
        margins=margins_table(figures),
        suppressed=suppressed,
        suppression=suppression,
        populations=populations_table(levels) if levels else None,
        tables=_tables(run, settings),
        coterminous=_coterminous(run, settings, own),
        errors=None if accuracy is None else _errors(accuracy),
        accuracy=None if used is None else accuracy_table(used, _ACCURACY_COLUMNS),
    )


def _name_levels(budgets: Mapping[tuple[str, int], Any]) -> dict[str, float]:
    """Figures of population group levels by their names."""
    return {format_level(*level): float(budget) for level, budget in budgets.items()}


def _suppression(
    figures: tuple[LevelFigures, ...], parameters: MechanismParameters
) -> tuple[float | None, Sequence[Figure]]:
    """Probability in percent that an empty group is suppressed, and the probabilities of larger
    ones; None without suppression.
    """
    levels: dict[tuple[IntegerDistribution, int], str] = {}
    for item in figures:
        if item.threshold is not None:
            label = f"budget {float(item.budget.budget):.4g}, up to {item.threshold}"
            levels.setdefault((item.budget.second_stage, item.threshold), label)
    chance = parameters.zero_suppression_chance
    if not levels or chance is None:
        return None, ()
    return 100 * float(chance), suppression_figures({own: key for key, own in levels.items()})


def _tables(run: RunDirectory, settings: DetailedGroupsSettings) -> tuple[Table, Figure]:
    """The part of each level's groups that has each table, by the published noisy outcome."""
    budgets = run_parameters(run, settings).first.budgets
    rows, labels, shares = [], [], []
    for level, groups in zip(budgets, groups_to_release(run, settings), strict=True):
        n = groups.num_rows
        hidden = mask_of(groups, "is_suppressed")
        table = groups["table"].to_numpy()
        numbers = np.bincount(table[~hidden], minlength=len(TABLE_NAMES))
        percent = [100 * number / n if n else 0.0 for number in (int(hidden.sum()), *numbers)]
        rows.append((*level, n, *(f"{p:.2f} %" for p in percent)))
        labels.append(format_level(*level))
        shares.append(percent)
    chart = bar_chart(
        labels,
        {
            "shown": [100 - hidden for hidden, *_ in shares],
            "with sex by age": [sum(by_age) for _, _, *by_age in shares],
        },
        title="Groups that are shown",
        value_label="% of the level's groups",
    )
    headers = ("region type", "level", "groups", "suppressed", *TABLE_NAMES)
    caption = "Groups that are shown, and groups with a table of sex by age."
    return Table(headers, tuple(rows)), Figure(chart, caption)


def _coterminous(
    run: RunDirectory, settings: DetailedGroupsSettings, parameters: MechanismParameters
) -> Table | None:
    """Number of regions that share their blocks with another; None without this step."""
    if not settings.mechanism.coterminous:
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


def _errors(accuracy: pd.DataFrame) -> dict[str, float]:
    """Mean absolute errors of totals that are shown, by level."""
    used = accuracy[(accuracy["shown"] > 0) & accuracy["mean_absolute_error"].notna()]
    return mean_errors(used, "mean_absolute_error", "shown")


def mean_errors(accuracy: pd.DataFrame, column: str, weight: str) -> dict[str, float]:
    """Means of a column at each population group level, weighted by another."""
    return {
        format_level(str(region_type), int(level)): float(
            np.average(rows[column], weights=rows[weight])
        )
        for (region_type, level), rows in accuracy.groupby(["region_type", "level"], sort=False)
    }


def accuracy_table(accuracy: pd.DataFrame, columns: dict[str, str]) -> Table:
    """The errors of every level and table; `columns` are figures with their headers."""
    return errors_table(accuracy, _PLACES | columns, columns["mean_absolute_error"])
