"""Cost and accuracy of a run before anything is measured, and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ...ledger.accounting import BOUNDED, SAFETAB_P, UNBOUNDED
from ...ledger.plan import Measure
from ...noise.quantiles import margin, margin_of_sum
from ...products.budget import Cost
from ...products.privacy_curves import Curves
from ...runs.errors import refuse_errors
from ..ingest.ingest import Settings, parameters_of
from ..postprocess.groups import threshold_of
from ..workload.budgets import LevelBudget, level_budgets, level_noise, refuse_missed_margins
from ..workload.guarantee import exact_curve, pass_plan
from ..workload.parameters import Parameters, read_specification
from ..workload.specification import Specification
from ..workload.tabulations import Tabulation


@dataclass(frozen=True)
class LevelFigures:
    """The budget of a population group level of a tabulation, and its accuracy.

    thresholds : of the totals that choose tables.
    coverage : the probability with which margins hold.
    margin : the smallest m with P(|X| <= m) >= the coverage, X being the noise of released counts.
    margin_total_only : the margin for groups of persons that are measured by a total only.
    wanted : the margin wanted by the settings, if any.
    threshold : the largest total that is suppressed, None where none is.
    """

    tabulation: Tabulation
    region_type: str
    level: int
    budget: LevelBudget
    thresholds: tuple[int, ...]
    coverage: Fraction
    margin: int
    margin_total_only: int | None
    wanted: int | None
    threshold: int | None

    @property
    def margins_of_totals(self) -> tuple[int, ...]:
        """The margins of the sums of all counts of each table."""
        noise, n_cells = self.budget.second_stage, self.tabulation.n_cells.tolist()
        return tuple(margin_of_sum(((noise, n),), self.coverage) for n in n_cells)

    def to_json(self) -> dict[str, Any]:
        """The output of `spineflow budget --json` for a level."""
        margins = zip(self.tabulation.names, self.margins_of_totals, strict=True)
        return {
            "tabulation": self.tabulation.name,
            "region_type": self.region_type,
            "level": self.level,
            "budget": str(self.budget.budget),
            "stability": self.budget.stability,
            "confidence": str(self.coverage),
            "margin": self.margin,
            "margin_wanted": self.wanted,
            "margin_total_only": self.margin_total_only,
            "margins_of_totals": dict(margins),
            "table_thresholds": list(self.thresholds),
            "suppression_threshold": self.threshold,
        }


def level_figures(
    parameters: Parameters, specification: Specification, region_pass: str | None = None
) -> tuple[LevelFigures, ...]:
    """Margins of error and thresholds of every measured level of every tabulation, of one pass if
    it is named; none without noise.

    Raises InputRefused for a budget so small that its noise is too wide for these figures.
    """
    figures = []
    for tabulation, own in () if parameters.infinite else parameters.tables():
        coverage = own.wanted.coverage
        named = "" if tabulation.of_persons else f"{tabulation.name}, "
        for level, budget in level_budgets(own, specification, region_pass).items():
            noise = budget.second_stage
            with refuse_errors(
                f"The budget of {named}{level[0]}, level {level[1]}, is {budget.budget}: ",
                "; give it more, or 0 to leave it out.",
            ):
                figures.append(
                    LevelFigures(
                        tabulation,
                        *level,
                        budget,
                        own.thresholds[level],
                        coverage,
                        margin=margin(noise, coverage),
                        margin_total_only=margin(budget.total_only, coverage)
                        if tabulation.of_persons
                        else None,
                        wanted=own.wanted.by_level.get(level),
                        threshold=threshold_of(level[0], noise, own.zero_suppression_chance),
                    )
                )
    return tuple(figures)


def refuse_settings(settings: Settings) -> None:
    """Refuse parameters or a specification that contradict themselves, before input is read.

    Budgets that miss a wanted margin are refused too, and those whose noise is too wide for its
    threshold to be known. Raises InputRefused.
    """
    parameters = parameters_of(settings)
    specification = read_specification(settings.input.parameters)
    for own in () if parameters.infinite else parameters.of.values():
        refuse_missed_margins(own, specification)
    level_figures(parameters, specification)


def costs_of(parameters: Parameters, specification: Specification) -> dict[str, Cost]:
    """Cost and accuracy of a run with these parameters, by pass: for one record changed (Theorem 2
    of [SafeTabP2025]), `native` for one added or removed.
    """
    found = {}
    for region_pass in parameters.passes:
        figures = level_figures(parameters, specification, region_pass)
        total = parameters.total_of(region_pass)
        measures = tuple(own for item in figures for own in _measures(item, total))
        plan = replace(pass_plan(parameters, region_pass), measures=measures)
        native = {"neighbors": UNBOUNDED, plan.symbol: plan.stated_loss}
        levels = [item.to_json() for item in figures]
        further: dict[str, Any] = {"native": native, "levels": levels}
        if len(parameters.of) > 1:
            further["tabulations"] = {
                name: "inf" if own.infinite else str(own.total_of(region_pass))
                for name, own in parameters.of.items()
            }
        curve = exact_curve(parameters.of.values(), specification, region_pass, is_bounded=True)
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
            plan.universe: exact_curve(
                parameters.of.values(), specification, name, is_bounded=False
            )
            for name, plan in plans.items()
        },
        "whether this one's record is there or not",
    )


def _measures(item: LevelFigures, total: Fraction) -> Iterator[Measure]:
    """The measures of a level, by names of a budget rather than of a run."""
    tabulation, level = item.tabulation, f"level {item.level}"
    of_level = level_noise(item.budget, tabulation, (item.region_type, item.level), total)
    for own in of_level.stages:
        query = f"{level}, {own.query}" if tabulation.of_persons else f"{tabulation.name}, {level}"
        yield replace(own, level=item.region_type, query=query)
