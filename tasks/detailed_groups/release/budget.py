"""Cost and accuracy of a run before anything is measured, and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...ledger.accounting import BOUNDED, SAFETAB_P, UNBOUNDED
from ...ledger.plan import Measure
from ...noise.quantiles import margin, margin_of_sum
from ...products.budget import Cost
from ...products.privacy_curves import Curves
from ...runs.errors import refuse_errors
from ..ingest.ingest import Settings, parameters_of
from ..postprocess import threshold_of
from ..workload.budgets import LevelBudget, level_budgets, level_noise, refuse_missed_margins
from ..workload.guarantee import exact_curve, pass_plan
from ..workload.parameters import Level, Parameters, read_specification
from ..workload.specification import Specification
from ..workload.tabulations import Tabulation


def level_figures(
    parameters: Parameters, specification: Specification, region_pass: str | None = None
) -> list[dict[str, Any]]:
    """Budget and accuracy of every measured level of every tabulation, of one pass if it is named,
    as `spineflow budget --json` has them; none without noise.

    `confidence` is the probability with which the margins hold. `margin` is that of a released
    count, `margin_total_only` that of groups of persons that are measured by a total only,
    `margin_wanted` the one in the settings, and `margins_of_totals` those of the sums of all counts
    of each table. `table_thresholds` are of the totals that choose tables, and
    `suppression_threshold` is the largest total that is suppressed; None where there is none.

    Raises InputRefused for a budget so small that its noise is too wide for these figures.
    """
    figures = []
    for tabulation, level, budget in _budgets(parameters, specification, region_pass):
        coverage, noise = parameters.coverage, budget.second_stage
        sizes = zip(tabulation.names, tabulation.n_cells.tolist(), strict=True)
        named = "" if tabulation.of_persons else f"{tabulation.name}, "
        with refuse_errors(
            f"The budget of {named}{level[0]}, level {level[1]}, is {budget.budget}: ",
            "; give it more, or 0 to leave it out.",
        ):
            of_total_only = None
            if tabulation.of_persons:
                of_total_only = margin(budget.of_released(is_total_only=True), coverage)
            figures.append(
                {
                    "tabulation": tabulation.name,
                    "region_type": level[0],
                    "level": level[1],
                    "budget": str(budget.budget),
                    "stability": budget.stability,
                    "confidence": str(coverage),
                    "margin": margin(noise, coverage),
                    "margin_wanted": parameters.wanted.get(level),
                    "margin_total_only": of_total_only,
                    "margins_of_totals": {
                        table: margin_of_sum(((noise, n),), coverage) for table, n in sizes
                    },
                    "table_thresholds": list(parameters.thresholds[tabulation.name][level]),
                    "suppression_threshold": threshold_of(
                        level[0], noise, parameters.zero_suppression_chance
                    ),
                }
            )
    return figures


def _budgets(
    parameters: Parameters, specification: Specification, region_pass: str | None
) -> Iterator[tuple[Tabulation, Level, LevelBudget]]:
    """The measured levels of every tabulation, of one pass if it is named; none without noise."""
    for tabulation in () if parameters.infinite else parameters.tabulations:
        budgets = level_budgets(parameters, specification, tabulation.name, region_pass)
        for level, budget in budgets.items():
            yield tabulation, level, budget


def refuse_settings(settings: Settings) -> None:
    """Refuse parameters or a specification that contradict themselves, before input is read.

    Budgets that miss a wanted margin are refused too, and those whose noise is too wide for its
    threshold to be known. Raises InputRefused.
    """
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    if not parameters.infinite:
        refuse_missed_margins(parameters, specification)
    level_figures(parameters, specification)


def costs_of(parameters: Parameters, specification: Specification) -> dict[str, Cost]:
    """Cost and accuracy of a run with these parameters, by pass: for one record changed (Theorem 2
    of [SafeTabP2025]), `native` for one added or removed.
    """
    found = {}
    for region_pass in parameters.passes:
        measures = tuple(_measures(parameters, specification, region_pass))
        plan = replace(pass_plan(parameters, region_pass), measures=measures)
        native = {"neighbors": UNBOUNDED, plan.symbol: plan.stated_loss}
        levels = level_figures(parameters, specification, region_pass)
        further: dict[str, Any] = {"native": native, "levels": levels}
        if len(parameters.budgets) > 1:
            further["tabulations"] = {
                name: "inf"
                if parameters.infinite
                else str(parameters.of(name).total_of(region_pass))
                for name in parameters.budgets
            }
        curve = exact_curve(parameters, specification, region_pass, is_bounded=True)
        found[region_pass] = Cost(plan, curve, BOUNDED, SAFETAB_P, region_pass, further=further)
    return found


def curves_of(parameters: Parameters, specification: Specification) -> Curves | None:
    """By pass, in words, the curve of one record added or removed, and its rho; None without
    noise.
    """
    if parameters.infinite:
        return None
    plans = {name: pass_plan(parameters, name) for name in parameters.passes}
    return Curves(
        {plan.universe: plan.promised.rho_per_record for plan in plans.values()},
        {
            plan.universe: exact_curve(parameters, specification, name, is_bounded=False)
            for name, plan in plans.items()
        },
        "whether this one's record is there or not",
    )


def _measures(
    parameters: Parameters, specification: Specification, region_pass: str
) -> Iterator[Measure]:
    """The measures of the levels of a pass, by names of a budget rather than of a run."""
    total = parameters.total_of(region_pass)
    for tabulation, level, budget in _budgets(parameters, specification, region_pass):
        number = f"level {level[1]}"
        for own in level_noise(budget, tabulation, level, total).stages:
            query = f"{number}, {own.query}"
            if not tabulation.of_persons:
                query = f"{tabulation.name}, {number}"
            yield replace(own, level=level[0], query=query)
