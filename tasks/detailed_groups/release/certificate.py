"""What the certificate of detailed groups says: public content only, true of its settings."""

from __future__ import annotations

from fractions import Fraction

from ...pages.document import Section, Table
from ...products.certificate import BLURRED, Facts
from ..settings import DetailedGroupsSettings
from ..workload.budgets import shown_percent
from ..workload.parameters import MechanismParameters, Parameters
from ..workload.specification import Specification
from .budget import LevelFigures, curves_of, level_figures

WANTED = "The budgets of levels with a wanted margin were set by it. "


def facts_of(
    settings: DetailedGroupsSettings, parameters: Parameters, specification: Specification
) -> Facts:
    """What was protected, against which change, with which noise and margins, and what is exact."""
    sections: tuple[Section, ...] = ()
    own = parameters.first
    if settings.is_private:
        levels = level_figures(parameters, specification)
        sections = (margins_section(levels, own.wanted.coverage),)
    total = "an exact total" if settings.privacy.infinite else "a noisy total"
    return Facts(
        made=(
            "by the SafeTab-P mechanism: every group of the specification in every region, whether "
            f"anybody is in it or not, got {total}, which decided how finely the group is "
            "tabulated by sex and age"
        ),
        public=(
            f"{BLURRED} A number of a small group says little: {_suppression(own)}The "
            "margin within which a number is of the truth in "
            f"{shown_percent(own.wanted.coverage)} of 100 cases stands under margins of "
            "error."
        ),
        sections=sections,
        curves=curves_of(parameters, specification) if settings.is_private else None,
    )


def margins_section(figures: tuple[LevelFigures, ...], coverage: Fraction) -> Section:
    """Margins of error, which hold with a probability of `coverage`, and thresholds of levels."""
    is_wanted = any(item.wanted is not None for item in figures)
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
        for item in figures
    ]
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
            Table.of(rows, "margin"),
        ),
    )


def _suppression(parameters: MechanismParameters) -> str:
    if parameters.zero_suppression_chance:
        return (
            "groups below the nation and the state whose noisy total is small are left out, and "
            "others may be noise alone. "
        )
    return "it may be noise alone. "
