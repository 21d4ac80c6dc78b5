"""The public report of a trips run.

Accuracy against the input is shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from ...pages.document import NONE, Document, Figure, Section, Table
from ...pages.figures import line_chart
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import (
    Overview,
    bars_panel,
    budget_panel,
    first_rows,
    noise_panel,
    report_document,
    sections_of,
)
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of, read_tree
from ..settings import RHO_FROM_EPSILON, TripsSettings
from ..workload.costs import universe_plan
from ..workload.mechanisms import FULL_INFORMATION
from ..workload.plan import Plan as TreePlan
from .certificate import (
    conversion_sentence,
    cost_table,
    delta_warning,
    method_of,
)
from .error_bound import BETA, BOUND_OF, error_bounds
from .false_cells import false_cells
from .table import TABLE, n_released, n_trips


def report(
    run: RunDirectory, settings: TripsSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document."""
    own, (universe,) = plan_of(run, settings), plan.universes
    sections = [_release(run, settings, own), _levels(run, own, read_tree(run).total)]
    if accuracy is not None:
        sections.append(_accuracy(accuracy))
    sections += sections_of("trips/templates/noise.md.j2", plan, own=own)
    by_epsilon = _by_epsilon(settings, own)
    if by_epsilon is not None:
        sections.append(by_epsilon)
    front = Overview(
        f"Trips of the dataset {settings.privacy.dataset}, by the mechanism {own.mechanism}",
        (
            _budget(own),
            noise_panel(universe, "Noise in each measured count, by level of the tree.")
            if accuracy is None
            else _errors(accuracy),
        ),
        counts=first_rows(run.release / f"{TABLE}.parquet"),
    )
    return report_document(run, settings, plan, front, sections)


def _release(run: RunDirectory, settings: TripsSettings, plan: TreePlan) -> Section:
    warning = delta_warning(settings, n_trips(run.release, plan.tree))
    blocks: list[str | Table] = [
        f"Made {method_of(plan)}.",
        cost_table(settings, plan),
        *conversion_sentence(settings),
    ]
    if warning is not None:
        blocks.append(f"Warning: {warning}.")
    expected = false_cells(run, plan).sentence
    blocks.append(f"{expected[:1].upper()}{expected[1:]}, by their noisy counts alone.")
    if plan.mechanism == FULL_INFORMATION:
        blocks.append(
            "Every node of the tree was measured, so that the combined estimates are best linear "
            "unbiased before they are brought to counts."
            if plan.measures_all
            else "A first pass decided by noisy counts which nodes are measured, so that the "
            "combined estimates have a selection bias, which confidential/ keeps by level."
        )
    return Section("The release", tuple(blocks))


def _levels(run: RunDirectory, plan: TreePlan, total: int | None) -> Section:
    bounds, released, tree = error_bounds(plan, total), n_released(run.release), plan.tree
    rows = tuple(
        (
            level,
            tree.level_name(level),
            tree.n_nodes(level),
            released[level],
            NONE if bounds is None else bounds[level],
        )
        for level in range(tree.depth + 1)
    )
    texts = ["Every level of the tree: how many counts there could be and how many are not zero."]
    if bounds is not None:
        texts.append(
            f"With probability {1 - BETA:g} no count of a level is further from the truth than the "
            f"bound, {BOUND_OF[plan.mechanism]} of InfTDA with its constants; typical errors are "
            "far smaller."
        )
    headers = ("level", "areas", "nodes", "released", "error bound")
    return Section("Levels", (*texts, Table(headers, rows, "error bound")))


def _accuracy(accuracy: pd.DataFrame) -> Section:
    columns = {
        "level": "level",
        "areas": "areas",
        "max_absolute_error": "largest error",
        "theorem_4_bound": "error bound",
        "proposition_1_bound": "error bound",
        "mean_absolute_error": "mean error",
        "false_discovery_percent": "false discoveries, %",
        "false_negative_percent": "false negatives, %",
        "bias": "bias of the combined estimates",
    }
    # Older runs have no bound by Proposition 1.
    known = {
        name: text
        for name, text in columns.items()
        if name in accuracy and accuracy[name].notna().all()
    }
    return Section(
        "Accuracy",
        (
            "Errors by level, over the nodes that have trips in the input or in the release. The "
            "input is not confidential, so it may be compared with the release.",
            errors_table(accuracy, known, columns["mean_absolute_error"]),
            *_error_charts(accuracy),
        ),
    )


def _error_charts(accuracy: pd.DataFrame) -> tuple[Figure, ...]:
    """Errors and false discoveries by level, as figures 3 to 5 of [InfTDA2024] show them."""
    levels = accuracy["level"].tolist()
    errors = {
        "largest": (levels, accuracy["max_absolute_error"].tolist()),
        "mean": (levels, accuracy["mean_absolute_error"].tolist()),
    }
    false = {"released": (levels, accuracy["false_discovery_percent"].tolist())}
    return (
        Figure(
            line_chart(
                errors, title="Error by level", x_label="level", y_label="absolute error of a count"
            ),
            "Absolute errors by level, from the root to the cells.",
        ),
        Figure(
            line_chart(
                false,
                title="False discoveries by level",
                x_label="level",
                y_label="released nodes without trips, %",
            ),
            "False discoveries by level: nodes that are released with trips and have none.",
        ),
    )


def _by_epsilon(settings: TripsSettings, plan: TreePlan) -> Section | None:
    """Margins of error against epsilon, from the noise alone; None where noise is not by zCDP."""
    if plan.budget is None or plan.guarantee is None:
        return None
    delta = settings.report_delta
    convert = RHO_FROM_EPSILON[settings.privacy.conversion]
    epsilons = [Fraction(10) ** power * step for power in (-1, 0) for step in (1, 2, 5)]
    epsilons.append(Fraction(10))
    factors = [float(plan.guarantee.parameter / convert(epsilon, delta)) for epsilon in epsilons]
    chosen = sorted({plan.levels[0], plan.levels[len(plan.levels) // 2], plan.levels[-1]})
    series = {
        f"level {level}": (
            [float(epsilon) for epsilon in epsilons],
            [1.96 * (float(plan.noise[level]) * factor) ** 0.5 for factor in factors],
        )
        for level in chosen
    }
    chart = line_chart(
        series,
        title="Margin of error against epsilon",
        x_label=f"epsilon at delta {float(delta):g}",
        y_label="95 % margin of a measured count",
        log_x=True,
        log_y=True,
    )
    return Section(
        "Error against epsilon",
        (
            "What these shares would buy at another epsilon: 1.96 standard deviations of the noise "
            "in a count, before counts are brought together.",
            Figure(chart, "Margin of error of measured counts, by level, against epsilon."),
        ),
    )


def _budget(plan: TreePlan) -> Section:
    if plan.budget is None:
        return Section("The budget", ("All of the loss is spent on the cells that have trips.",))
    words = "Part of the loss that each level of the tree costs, from its root to the cells."
    return budget_panel(universe_plan(plan), words)


def _errors(accuracy: pd.DataFrame) -> Section:
    return bars_panel(
        "How accurate it is",
        "Mean absolute error of a count, over the nodes that have trips in truth or release.",
        [f"level {level}" for level in accuracy["level"]],
        {"error": accuracy["mean_absolute_error"].tolist()},
        value_label="mean absolute error (trips)",
    )
