"""What the front page of a detailed-groups report says: guarantee, budget, how accurate it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...pages.document import NONE, Section, Table
from ...products.reports import Overview, bars_panel, first_rows
from ...products.statement import in_one_sentence
from ...runs.directory import RunDirectory
from ..settings import DetailedGroupsSettings
from ..workload.mechanism import MechanismParameters
from ..workload.wanted_margins import shown_percent
from .budget import LevelFigures
from .certificate import statement_of
from .files import TIDY_FILE

FIRST_COLUMNS = ("region_name", "iteration_name", "sex", "age_start", "age_end", "margin", "count")
"""Columns of the first released counts."""


def overview(
    run: RunDirectory,
    settings: DetailedGroupsSettings,
    parameters: MechanismParameters,
    figures: Sequence[LevelFigures],
    accuracy: pd.DataFrame | None,
) -> Overview:
    """The front page; `accuracy` is given for inputs that are not confidential.

    `figures` are those of the levels that are measured with noise.
    """
    shown = _implied(figures, parameters) if accuracy is None else _errors(accuracy)
    return Overview(
        f"Detailed race and ethnicity groups of the dataset {settings.privacy.dataset}, by the "
        "adaptive mechanism SafeTab-P",
        in_one_sentence(statement_of(settings, parameters)),
        (_budget(parameters), shown),
        counts=first_rows(run.release / TIDY_FILE, FIRST_COLUMNS),
    )


def shown_level(region_type: str, level: int) -> str:
    """A population group level in words: capitals are too wide for a chart."""
    kind = region_type.removeprefix("PR-")
    name = {"USA": "nation", "AIANNH": "AIANNH area"}.get(kind, kind.lower())
    return f"{name if kind == region_type else f'PR {name}'}, {level}"


def _budget(parameters: MechanismParameters) -> Section:
    levels = {} if parameters.infinite else parameters.budgets
    loss = "epsilon" if parameters.is_pure else "rho"
    return bars_panel(
        "The budget",
        "Loss of every population group level; the levels of a pass add up.",
        [shown_level(*level) for level in levels],
        {loss: [float(budget) for budget in levels.values()]},
        value_label=loss,
    )


def _errors(accuracy: pd.DataFrame) -> Section:
    used = accuracy[(accuracy["shown"] > 0) & accuracy["mean_absolute_error"].notna()]
    labels, errors = mean_errors(used, "mean_absolute_error", "shown")
    return bars_panel(
        "How accurate it is",
        "Mean absolute error of the total of a group that is shown, by population group level.",
        labels,
        {"error": errors},
        value_label="mean absolute error (persons)",
        nothing="No group is shown.",
    )


def _implied(figures: Sequence[LevelFigures], parameters: MechanismParameters) -> Section:
    percent = shown_percent(parameters.wanted.coverage)
    return bars_panel(
        "What the budget implies",
        f"Margin of error of a count: it is within this of the truth in {percent} of 100 cases.",
        [shown_level(item.region_type, item.level) for item in figures],
        {"margin": [float(item.margin) for item in figures]},
        value_label=f"margin of error, {percent} % (persons)",
    )


def mean_errors(accuracy: pd.DataFrame, column: str, weight: str) -> tuple[list[str], list[float]]:
    """Population group levels, and the means of a column at each, weighted by another."""
    labels, errors = [], []
    for (region_type, level), rows in accuracy.groupby(["region_type", "level"], sort=False):
        labels.append(shown_level(str(region_type), int(level)))
        errors.append(float(np.average(rows[column], weights=rows[weight])))
    return labels, errors


def accuracy_section(accuracy: pd.DataFrame, columns: Mapping[str, str]) -> Section:
    """The errors of every level and table; `columns` are figures with their headers."""
    rows = tuple(
        (
            row["region_type"],
            int(row["level"]),
            row["table"],
            *(NONE if pd.isna(row[name]) else row[name] for name in columns),
        )
        for row in accuracy.to_dict("records")
    )
    headers = ("region type", "level", "table", *columns.values())
    return Section(
        "Accuracy",
        (
            "Differences between the release and the input, which is not confidential.",
            Table(headers, rows, columns["mean_absolute_error"]),
        ),
    )
