"""The certificate of detailed groups: public content only, true of its settings."""

from __future__ import annotations

from collections.abc import Iterable

from ...pages.document import Table
from ...pages.template import table
from ...products.certificate import Facts
from ..settings import DetailedGroupsSettings
from ..workload.budgets import format_percent
from ..workload.parameters import Parameters
from ..workload.specification import Specification
from .budget import LevelFigures, curves_of, level_figures


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
