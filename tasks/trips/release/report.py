"""The public report of a trips run.

Accuracy against the input is shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pandas as pd

from ...pages.document import Document, Figure, Table
from ...pages.figures import line_chart
from ...products.comparison import errors_table
from ...products.plan import Plan
from ...products.reports import first_rows, report_document
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of, read_tree
from ..plan import Plan as TreePlan
from ..settings import RHO_FROM_EPSILON, TripsSettings
from .certificate import delta_warning, noise_saved
from .errors import BETA, BOUND_OF, error_bounds, false_cells
from .table import TABLE, n_released, n_trips


def report(
    run: RunDirectory, settings: TripsSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document."""
    own = plan_of(run, settings)
    bounds = error_bounds(own, read_tree(run).total)
    return report_document(
        run,
        settings,
        plan,
        "trips/templates/report.md.j2",
        counts=first_rows(run.release / f"{TABLE}.parquet"),
        own=own,
        warning=delta_warning(settings, n_trips(run.release, own.tree)),
        less=noise_saved(settings),
        false_cells=false_cells(run, own).sentence,
        confidence=f"{1 - BETA:g}",
        bound_of=None if bounds is None else BOUND_OF[own.mechanism],
        levels=_levels(run, own, bounds),
        by_epsilon=_margins_by_epsilon(settings, own),
        errors=None
        if accuracy is None
        else {
            f"level {level}": error
            for level, error in zip(accuracy["level"], accuracy["mean_absolute_error"], strict=True)
        },
        accuracy=None if accuracy is None else _accuracy(accuracy),
    )


def _levels(run: RunDirectory, plan: TreePlan, bounds: Sequence[float] | None) -> Table:
    """Areas, nodes, released counts and error bounds of every level of the tree."""
    released, tree = n_released(run.release), plan.tree
    rows = [
        {
            "level": level,
            "areas": tree.level_name(level),
            "nodes": tree.n_nodes(level),
            "released": released[level],
            "error bound": None if bounds is None else bounds[level],
        }
        for level in range(tree.depth + 1)
    ]
    return Table.of(rows, "error bound")


def _accuracy(accuracy: pd.DataFrame) -> tuple[Table | Figure, ...]:
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
    table = errors_table(accuracy, known, columns["mean_absolute_error"])
    return table, *_error_charts(accuracy)


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


def _margins_by_epsilon(settings: TripsSettings, plan: TreePlan) -> Figure | None:
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
    return Figure(chart, "Margin of error of measured counts, by level, against epsilon.")
