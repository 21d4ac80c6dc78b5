"""The public report of a detailed-groups run: what was asked, how exact it is, what was checked.

Shares of groups at each table are those of the published noisy outcome; the curves of suppression
follow from the noise alone. Errors against the input are shown for inputs that are not
confidential, and only for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...noise.distributions import IntegerDistribution
from ...pages.document import Document, Figure, Section, Table
from ...pages.figures import bar_chart
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import Overview, bars_panel, first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.ingest import run_parameters, run_specification
from ..postprocess.groups import mask_of
from ..postprocess.run import coterminous_of, groups_to_release
from ..settings import DetailedGroupsSettings
from ..workload.budgets import shown_percent
from ..workload.guarantee import bounded_epsilons, pass_plan
from ..workload.parameters import MechanismParameters, Parameters
from ..workload.regions import region_types
from .budget import LevelFigures, level_figures, level_reports
from .certificate import margins_section
from .figures import populations_table, suppression_figures
from .files import TIDY_FILES
from .tables import TABLE_NAMES

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
    figures = level_figures(parameters, specification)
    own = parameters.first
    sections = [guarantee_section(parameters)]
    if figures:
        sections += [
            margins_section(figures, own.wanted.coverage),
            suppression_section(figures, own),
        ]
        levels = level_reports(figures, own, settings.explorer)
        sections.append(populations_section(levels))
    sections.append(_shares(run, settings))
    if settings.mechanism.coterminous:
        sections.append(_coterminous(run, settings, own))
    if accuracy is not None:
        used = accuracy[accuracy["groups"] > 0]
        sections.append(accuracy_section(used, _ACCURACY_COLUMNS))
    shown = _implied(figures, own) if accuracy is None else _errors(accuracy)
    front = Overview(
        f"Detailed race and ethnicity groups of the dataset {settings.privacy.dataset}, by the "
        "adaptive mechanism SafeTab-P",
        (_budget(own), shown),
        counts=first_rows(run.release / TIDY_FILES["persons"], FIRST_COLUMNS),
    )
    return report_document(run, settings, plan, front, sections)


def guarantee_section(parameters: Parameters) -> Section:
    """What the mechanism guarantees, pass by pass."""
    rows = []
    for region_pass in parameters.passes:
        plan = pass_plan(parameters, region_pass)
        tight = bounded_epsilons(plan)["tight"]
        epsilon = tight if isinstance(tight, str) else f"{tight:.2f}"
        rows.append((region_pass, plan.symbol, plan.stated_loss, plan.bounded_rho, epsilon))
    headers = ("pass", "in", "adding or removing a person", "changing one: rho", "its epsilon")
    return Section(
        "What is guaranteed",
        (
            "Every group of the specification in every region was measured with noise, whether "
            "anybody is in it or not. The budgets of the levels of a pass add up.",
            Table(headers, tuple(rows), "its epsilon"),
        ),
    )


def suppression_section(
    figures: tuple[LevelFigures, ...], parameters: MechanismParameters
) -> Section:
    """What suppression does to groups of every size, from the noise alone."""
    levels: dict[tuple[IntegerDistribution, int], str] = {}
    for item in figures:
        if item.threshold is not None:
            label = f"budget {float(item.budget.budget):.4g}, up to {item.threshold}"
            levels.setdefault((item.budget.second_stage, item.threshold), label)
    drawn = suppression_figures({label: key for key, label in levels.items()})
    blocks: list[str | Table | Figure] = ["No group is suppressed by its size."]
    if levels and parameters.zero_suppression_chance is not None:
        chance = float(parameters.zero_suppression_chance) * 100
        blocks = [
            f"A sub-state group of nobody is suppressed with a probability of {chance:.6g} %, by "
            "the threshold on its noisy total. Larger groups are suppressed with the "
            "probabilities shown, and the counts of those that are released are too large on "
            "average.",
            *drawn,
        ]
    return Section("Suppression", tuple(blocks))


def populations_section(levels: Sequence[Mapping[str, Any]]) -> Section:
    """From which size of a group its tables are accurate, of levels as `level_reports` has them."""
    return Section(
        "Populations from which tables are accurate",
        (
            "A group of N persons has N / k of them in the average of the k cells of a table. From "
            "the populations below on, the margin of a noisy count is so small a part of that, and "
            "the margin of a sum of all cells so small a part of the whole. A table is given to "
            "groups whose noisy total reaches what stands under 'given from'.",
            populations_table(levels),
        ),
    )


def _shares(run: RunDirectory, settings: DetailedGroupsSettings) -> Section:
    budgets = run_parameters(run, settings).first.budgets
    rows, labels, shares = [], [], []
    for level, groups in zip(budgets, groups_to_release(run, settings), strict=True):
        n = groups.num_rows
        hidden = mask_of(groups, "is_suppressed")
        table = groups["table"].to_numpy()
        numbers = np.bincount(table[~hidden], minlength=len(TABLE_NAMES))
        percent = [100 * number / n if n else 0.0 for number in (int(hidden.sum()), *numbers)]
        rows.append((*level, n, *(f"{p:.2f} %" for p in percent)))
        labels.append(shown_level(*level))
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
    return Section(
        "Groups at each table",
        (
            "By the published noisy outcome: the part of each level's groups that is suppressed, "
            "that has a total only (T01001), and that has sex by age in 4, 9 or 23 bins.",
            Table(headers, tuple(rows)),
            Figure(chart, "Groups that are shown, and those of them with a table of sex by age."),
        ),
    )


def _coterminous(
    run: RunDirectory, settings: DetailedGroupsSettings, parameters: MechanismParameters
) -> Section:
    rows = []
    for region_pass in parameters.passes:
        found = coterminous_of(run, settings, region_pass)
        rows += [
            (region_pass, kind.name, len(found.number[kind.name]))
            for kind in region_types(region_pass)
        ]
    if settings.mechanism.units_are_invariant:
        rule = "the same blocks that have a housing unit or a facility by declaration"
    else:
        rule = "the same blocks"
    return Section(
        "Coterminous regions",
        (
            f"Regions of several summary levels that cover {rule} show the counts of the first "
            f"that is not suppressed, in the order {', '.join(settings.mechanism.summary_levels)}. "
            "The numbers below are of regions that share their blocks with another.",
            Table(("pass", "region type", "regions"), tuple(rows)),
        ),
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


def accuracy_section(accuracy: pd.DataFrame, columns: dict[str, str]) -> Section:
    """The errors of every level and table; `columns` are figures with their headers."""
    return Section(
        "Accuracy",
        (
            "Differences between the release and the input, which is not confidential.",
            errors_table(accuracy, _PLACES | columns, columns["mean_absolute_error"]),
        ),
    )
