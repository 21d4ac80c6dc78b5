"""Margins of error of detailed groups, as certificate and report show them."""

from __future__ import annotations

from spineflow.tasks.detailed_groups.release.budget import LevelFigures
from spineflow.tasks.pages.document import NONE, Section, Table


def margins_section(figures: tuple[LevelFigures, ...]) -> Section:
    """Margins of error and thresholds of every level."""
    rows = tuple(
        (
            item.region_type,
            item.level,
            str(item.budget.budget),
            item.budget.stability,
            item.margin,
            item.margin_total_only,
            NONE if item.margin_by_formula is None else item.margin_by_formula,
            NONE if item.margin_target is None else item.margin_target,
            NONE if item.threshold is None else item.threshold,
        )
        for item in figures
    )
    headers = (
        "region type",
        "level",
        "budget",
        "stability",
        "margin",
        "total only",
        "formula",
        "target",
        "threshold",
    )
    return Section(
        "Margins of error",
        (
            "The margin of a noisy count is the smallest number within which it is of the truth "
            "with a probability of 95 %, by the distribution of the noise; groups that are "
            "measured by a total only have their own. The formula takes 1.96 standard deviations, "
            "rounded down, and the target is the margin for which it gives this budget. A sum of "
            "n cells has a margin that is about the square root of n times larger. Stability is "
            "the number of groups of the level that a person is protected in. Sub-state totals up "
            "to the threshold are suppressed.",
            Table(headers, rows),
        ),
    )
