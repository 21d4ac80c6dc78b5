"""Margins of error of detailed groups, as certificate and report show them."""

from __future__ import annotations

from fractions import Fraction

from ...pages.document import NONE, Section, Table
from ..workload.wanted_margins import shown_percent
from .budget import LevelFigures

WANTED = "The budgets of levels with a wanted margin were set by it. "


def margins_section(figures: tuple[LevelFigures, ...], coverage: Fraction) -> Section:
    """Margins of error, which hold with a probability of `coverage`, and thresholds of levels."""
    is_wanted = any(item.wanted is not None for item in figures)
    rows = tuple(
        (
            item.region_type,
            item.level,
            str(item.budget.budget),
            item.budget.stability,
            item.margin,
            *((NONE if item.wanted is None else item.wanted,) if is_wanted else ()),
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
        *(("wanted",) if is_wanted else ()),
        "total only",
        "formula",
        "target",
        "threshold",
    )
    return Section(
        "Margins of error",
        (
            "The margin of a noisy count is the smallest number within which it is of the truth "
            f"with a probability of {shown_percent(coverage)} %, by the distribution of the noise; "
            "groups that are measured by a total only have their own. The formula takes 1.96 "
            "standard deviations, rounded down, for 95 %, and the target is the margin for which "
            "it gives this budget. A sum of n cells has a margin that is about the square root of "
            "n times larger; the tidy file has it with every count. "
            f"{WANTED if is_wanted else ''}Stability is the number of groups of the level that a "
            "person is protected in. Sub-state totals up to the threshold are suppressed.",
            Table(headers, rows, "margin"),
        ),
    )
