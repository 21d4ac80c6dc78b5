"""What a detailed-households run would cost, and what it buys, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from ...noise.quantiles import margin
from ...noise.sums import margin_of_sum
from ...products.budget import Cost
from ...products.privacy_curves import Curves
from ..ingest.household_ingest import parameters_of
from ..settings import DetailedHouseholdsSettings
from ..workload.exact_loss import exact_curve
from ..workload.households import HouseholdParameters, household_plan
from ..workload.parameters import read_specification
from ..workload.specification import Specification
from ..workload.tabulations import HouseholdTabulation
from ..workload.wanted_margins import level_budgets
from .budget import (
    LevelMargin,
    cost_of_pass,
    curves_of_passes,
    refuse_idle,
    refuse_idle_levels,
    refused_budget,
)


@dataclass(frozen=True)
class HouseholdFigures(LevelMargin):
    """What the budget of a tabulation buys at a level.

    margins_of_totals : those of the sums of all counts of each table.
    """

    tabulation: HouseholdTabulation
    thresholds: tuple[int, ...]
    margins_of_totals: tuple[int, ...]


def household_figures(
    parameters: HouseholdParameters,
    specification: Specification,
    region_pass: str,
    settings: DetailedHouseholdsSettings,
) -> tuple[HouseholdFigures, ...]:
    """Margins of error of every measured level of a pass, tabulation by tabulation; none without
    noise.

    Raises InputRefused for a budget so small that its noise is too wide to tell them.
    """
    if parameters.infinite:
        return ()
    coverage = settings.mechanism.coverage
    found = []
    for tabulation, own in parameters.tables():
        for (region_type, level), budget in level_budgets(own, specification, region_pass).items():
            noise = budget.second_stage
            with refused_budget(f"{tabulation.name}, {region_type}, level {level}", budget):
                found.append(
                    HouseholdFigures(
                        region_type,
                        level,
                        budget,
                        margin(noise, coverage),
                        tabulation,
                        own.thresholds[region_type, level],
                        tuple(
                            margin_of_sum(noise, n, coverage)
                            for n in tabulation.tabulation.n_cells.tolist()
                        ),
                    )
                )
    return tuple(found)


def refuse_settings(settings: DetailedHouseholdsSettings) -> None:
    """Refuse parameters or a specification that contradict themselves, before input is read.

    Raises InputRefused.
    """
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    _refuse_idle(settings, parameters)
    for region_pass in parameters.passes:
        household_figures(parameters, specification, region_pass, settings)


def _refuse_idle(settings: DetailedHouseholdsSettings, parameters: HouseholdParameters) -> None:
    own = settings.mechanism
    for key in ("budgets", "thresholds"):
        for name, of_types in getattr(own, key).items():
            refuse_idle_levels(
                f"mechanism.{key}.{name}",
                of_types,
                parameters.of[name],
                need_budgets=key == "thresholds",
            )
    if own.states is not None and not parameters.first.run_us:
        refuse_idle("mechanism.states", "run_us = true")


def costs(settings: DetailedHouseholdsSettings) -> dict[str, Cost]:
    """What a run would cost, and what it buys, by pass.

    `rho` and `epsilon` are those of one household changed, `native` of one added or removed,
    `tabulations` the native loss of each.
    """
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    found = {}
    for region_pass in parameters.passes:
        figures = household_figures(parameters, specification, region_pass, settings)
        total = parameters.total_of(region_pass)
        measures = tuple(
            item.budget.measure(
                f"{item.tabulation.name}/{item.region_type}/{item.level}",
                total,
                Fraction(1),
                item.region_type,
                f"{item.tabulation.name}, level {item.level}",
            )
            for item in figures
        )
        found[region_pass] = cost_of_pass(
            region_pass,
            replace(household_plan(parameters, region_pass), measures=measures),
            exact_curve(parameters.of.values(), specification, region_pass, is_bounded=True),
            tabulations={
                name: "inf" if own.infinite else str(own.total_of(region_pass))
                for name, own in parameters.of.items()
            },
            levels=[
                {
                    "tabulation": item.tabulation.name,
                    **item.told(settings.mechanism.coverage),
                    "margins_of_totals": dict(
                        zip(item.tabulation.names, item.margins_of_totals, strict=True)
                    ),
                    "table_thresholds": list(item.thresholds),
                }
                for item in figures
            ],
        )
    return found


def curves_of(parameters: HouseholdParameters, specification: Specification) -> Curves | None:
    """By pass, in words, the curve of one household added or removed, and its rho; None without
    noise.
    """
    plans = {name: household_plan(parameters, name) for name in parameters.passes}
    return curves_of_passes(plans, parameters.of.values(), specification)
