"""What a detailed-groups run would cost, and what it buys, before anything is measured.

Beside it stand the settings that do nothing beside the parameters of `config.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ...ledger.accounting import BOUNDED, SAFETAB_P, UNBOUNDED
from ...ledger.exact_curve import PrivacyCurve
from ...ledger.plan import Measure, UniversePlan
from ...noise.quantiles import margin
from ...products.budget import Cost
from ...products.privacy_curves import Curves
from ...runs.errors import InputRefused, refused
from ..ingest.ingest import parameters_of
from ..postprocess.suppression import threshold_of
from ..settings import DetailedGroupsSettings, ExplorerSettings
from ..workload.exact_loss import exact_curve
from ..workload.explorer import (
    LevelBudget,
    budget_by_formula,
    budget_for_margin,
    budget_for_threshold,
    margin_by_formula,
    target_of,
)
from ..workload.guarantee import universe_plan
from ..workload.mechanism import MechanismParameters
from ..workload.parameters import read_specification
from ..workload.regions import COARSE, REGION_TYPES
from ..workload.specification import Specification
from ..workload.wanted_margins import level_budgets, refuse_missed_margins
from .noise_comparison import compare_noise
from .relative_errors import table_populations


@dataclass(frozen=True)
class LevelMargin:
    """The budget of a population group level, and the margin that it buys.

    margin : the smallest m with P(|X| <= m) >= the coverage that is asked for, X being the noise of
        the second stage.
    """

    region_type: str
    level: int
    budget: LevelBudget
    margin: int

    def told(self, coverage: Fraction) -> dict[str, Any]:
        """All of it, as `spineflow budget --json` prints it."""
        return {
            "region_type": self.region_type,
            "level": self.level,
            "budget": str(self.budget.budget),
            "stability": self.budget.stability,
            "confidence": str(coverage),
            "margin": self.margin,
        }


@dataclass(frozen=True)
class LevelFigures(LevelMargin):
    """What the budget of a population group level buys.

    margin_total_only : the margin for groups that are measured by a total only.
    wanted : the margin that the settings want; None for none.
    margin_by_formula : floor(1.96 sigma) of [SafeTabP2025], None under pure DP.
    margin_target : the margin for which the paper's formula gives this budget, rounded.
    threshold : the largest total that is suppressed, None where none is.
    """

    margin_total_only: int
    wanted: int | None
    margin_by_formula: int | None
    margin_target: int | None
    threshold: int | None


def level_figures(
    parameters: MechanismParameters, specification: Specification, region_pass: str | None = None
) -> tuple[LevelFigures, ...]:
    """Margins of error and thresholds of every measured level, of one pass if it is named; none
    without noise.

    Raises InputRefused for a budget so small that its noise is too wide to tell them.
    """
    if parameters.infinite:
        return ()
    budgets = level_budgets(parameters, specification, region_pass)
    chance, wanted = parameters.zero_suppression_chance, parameters.wanted
    figures = []
    for (region_type, level), budget in budgets.items():
        noise = budget.second_stage
        with refused_budget(f"{region_type}, level {level}", budget):
            if budget.stage_1_fraction:
                margin(budget.first_stage, wanted.coverage)  # The report compares it as well.
            figures.append(
                LevelFigures(
                    region_type,
                    level,
                    budget,
                    margin=margin(noise, wanted.coverage),
                    margin_total_only=margin(budget.total_only, wanted.coverage),
                    wanted=wanted.by_level.get((region_type, level)),
                    margin_by_formula=None if budget.is_pure else margin_by_formula(noise),
                    margin_target=target_of(budget),
                    threshold=threshold_of(region_type, noise, chance),
                )
            )
    return tuple(figures)


def refused_budget(what: str, level: LevelBudget) -> AbstractContextManager[None]:
    """Refuses the budget of what is measured where the figures of its noise cannot be told."""
    return refused(
        f"The budget of {what}, is {level.budget}: ", "; give it more, or 0 to leave it out."
    )


def refuse_settings(settings: DetailedGroupsSettings) -> None:
    """Refuse parameters or a specification that contradict themselves, before input is read.

    Budgets that miss a wanted margin are refused too, and those whose noise is too wide for its
    threshold to be known. Raises InputRefused.
    """
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    refuse_idle_settings(settings, parameters)
    if not parameters.infinite:
        refuse_missed_margins(parameters, specification)
    figures = level_figures(parameters, specification)
    level_reports(figures, parameters, settings.explorer)


def costs(settings: DetailedGroupsSettings) -> dict[str, Cost]:
    """What a run would cost, and what it buys, by pass: with the other noise's guarantee at the
    same margins.
    """
    specification = read_specification(settings.input.parameters)
    return costs_of(parameters_of(settings), specification, settings.explorer)


def costs_of(
    parameters: MechanismParameters, specification: Specification, explorer: ExplorerSettings
) -> dict[str, Cost]:
    """What a run with these parameters would cost, and what it buys, by pass."""
    found = {}
    for region_pass in parameters.passes:
        compared: list[dict[str, Any]] = []
        if not parameters.infinite:
            levels = level_budgets(parameters, specification, region_pass).values()
            compared = list(compare_noise(levels, parameters.wanted.coverage))
        figures = level_figures(parameters, specification, region_pass)
        measures = [own for item in figures for own in _measures(item, parameters, region_pass)]
        found[region_pass] = cost_of_pass(
            region_pass,
            replace(universe_plan(parameters, region_pass), measures=tuple(measures)),
            exact_curve([parameters], specification, region_pass, is_bounded=True),
            levels=level_reports(figures, parameters, explorer),
            noise_comparison=compared,
        )
    return found


def curves_of(parameters: MechanismParameters, specification: Specification) -> Curves | None:
    """By pass, in words, the curve of one person added or removed, and its rho; None without
    noise.
    """
    plans = {name: universe_plan(parameters, name) for name in parameters.passes}
    return curves_of_passes(plans, [parameters], specification)


def curves_of_passes(
    plans: Mapping[str, UniversePlan],
    measured: Collection[MechanismParameters],
    specification: Specification,
) -> Curves | None:
    """By pass, in words, the curve of one record added or removed, and its rho; None without
    noise.
    """
    if any(own.infinite for own in measured):
        return None
    return Curves(
        {plan.universe: plan.promised.own_rho for plan in plans.values()},
        {
            plan.universe: exact_curve(measured, specification, name, is_bounded=False)
            for name, plan in plans.items()
        },
        "whether this one's record is there or not",
    )


def level_reports(
    figures: Iterable[LevelFigures], parameters: MechanismParameters, explorer: ExplorerSettings
) -> list[dict[str, Any]]:
    """What the budgets of levels buy, as `spineflow budget --json` prints it: margins of error,
    the suppression threshold, the populations from which tables are accurate and, where the
    settings name a target, the budget that meets it.
    """
    coverage = parameters.wanted.coverage
    return [
        {
            **item.told(coverage),
            "margin_wanted": item.wanted,
            "margin_total_only": item.margin_total_only,
            "margin_by_formula": item.margin_by_formula,
            "margin_target": item.margin_target,
            "suppression_threshold": item.threshold,
            "table_thresholds": list(thresholds),
            "tables": table_populations(
                item.budget, thresholds, explorer.shown_relative_errors, coverage
            ),
            "needed_budget": needed_budgets(item.budget, item.region_type, explorer, parameters),
        }
        for item in figures
        for thresholds in [parameters.thresholds[item.region_type, item.level]]
    ]


def needed_budgets(
    level: LevelBudget,
    region_type: str,
    explorer: ExplorerSettings,
    parameters: MechanismParameters,
) -> dict[str, str | None]:
    """The smallest budgets of a level that meet the settings' targets, as strings.

    `margin` and `threshold` are exact, at the settings' number of decimals; `margin_by_formula` is
    the paper's, exact too. Raises InputRefused for targets that cannot be met.
    """
    found: dict[str, str | None] = {}
    decimals, chance = explorer.decimals, parameters.zero_suppression_chance
    coverage = parameters.wanted.coverage
    with refused("[explorer] cannot be met: ", "; ask for something else."):
        if explorer.margin is not None:
            due = budget_for_margin(level, explorer.margin, coverage=coverage, decimals=decimals)
            found["margin"] = str(due)
            if explorer.margin and not level.is_pure:
                found["margin_by_formula"] = str(budget_by_formula(level, explorer.margin))
        if explorer.threshold is not None and chance:
            is_suppressed = threshold_of(region_type, level.second_stage, chance) is not None
            found["threshold"] = (
                str(budget_for_threshold(level, explorer.threshold, chance, decimals=decimals))
                if is_suppressed
                else None
            )
    return found


def cost_of_pass(
    region_pass: str, plan: UniversePlan, curve: PrivacyCurve | None, **figures: Any
) -> Cost:
    """What a pass costs, of one record changed (Theorem 2 of [SafeTabP2025]), with figures of its
    own; the native loss of the plan is that of one record added or removed.
    """
    further = {"native": native_loss(plan), **figures}
    return Cost(plan, curve, BOUNDED, SAFETAB_P, region_pass, further=further)


def native_loss(plan: UniversePlan) -> dict[str, str]:
    """The loss of one record added or removed."""
    return {"neighbors": UNBOUNDED, plan.symbol: plan.stated_loss}


def _measures(
    item: LevelFigures, parameters: MechanismParameters, region_pass: str
) -> Iterator[Measure]:
    budget, total = item.budget, parameters.total_of(region_pass)
    gamma = budget.stage_1_fraction
    parts = (("total only", Fraction(1)), ("stage 1", gamma), ("stage 2", 1 - gamma))
    for name, share in parts if gamma else parts[:1]:
        part = f"{item.region_type}/{item.level}/{name}"
        query = f"level {item.level}, {name}"
        yield budget.measure(part, total, share, item.region_type, query)


def refuse_idle_settings(settings: DetailedGroupsSettings, parameters: MechanismParameters) -> None:
    """Refuse settings of the file that change nothing of what is measured or shown.

    Raises InputRefused for budgets, margins and thresholds of a pass that is not run, margins and
    thresholds of a level without a budget, states without the pass that has them, a chance of
    suppression where no group can be suppressed, a target for a threshold where nothing is
    suppressed, and coterminous geographies or suppression of 'alone' groups of a single region
    type.
    """
    own = settings.mechanism
    measured = parameters.budgets
    tables: dict[str, Mapping[str, Iterable[str]]] = {
        "budgets": own.budgets,
        "margins": own.margins or {},
        "thresholds": own.thresholds,
    }
    for key, region_types in tables.items():
        refuse_idle_levels(f"mechanism.{key}", region_types, parameters)
    for region_type, number in parameters.wanted.by_level:
        if (region_type, number) not in measured:
            refuse_idle(
                f"mechanism.margins.{region_type}.{number}", f"a budget of {region_type} above 0"
            )
    refuse_idle_levels("mechanism.thresholds", own.thresholds, parameters, need_budgets=True)
    if own.states is not None and not parameters.run_us:
        refuse_idle("mechanism.states", "run_us = true")
    types = {region_type for region_type, _ in measured}
    has_coarse = any(REGION_TYPES[name].granularity == COARSE for name in types)
    if own.zero_suppression_chance and not has_coarse:
        refuse_idle("mechanism.zero_suppression_chance", "a budget of a level below the state")
    if settings.explorer.threshold is not None and not (
        parameters.zero_suppression_chance and has_coarse
    ):
        refuse_idle(
            "explorer.threshold",
            "suppression: a zero_suppression_chance above 0, and levels below the state",
        )
    if own.coterminous and len(types) == 1:
        refuse_idle("mechanism.coterminous", "budgets of two region types")


def refuse_idle_levels(
    where: str,
    region_types: Mapping[str, Iterable[str]],
    parameters: MechanismParameters,
    *,
    need_budgets: bool = False,
) -> None:
    """Refuse a setting by region type and level of a pass that is not run and, if levels
    `need_budgets`, of one that has none; raises InputRefused."""
    for region_type, levels in region_types.items():
        region_pass = REGION_TYPES[region_type].region_pass
        if region_pass not in parameters.passes:
            refuse_idle(f"{where}.{region_type}", f"run_{region_pass} = true")
        for level in levels if need_budgets else ():
            if (region_type, int(level)) not in parameters.budgets:
                need = f"a budget of {region_type}, level {level}"
                refuse_idle(f"{where}.{region_type}.{level}", need)


def refuse_idle(key: str, need: str) -> None:
    raise InputRefused(f"{key} does nothing without {need}; remove it.")
