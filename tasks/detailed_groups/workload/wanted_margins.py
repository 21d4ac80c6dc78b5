"""Wanted margins of error as budgets: the least that meet them, and whether given ones do.

A level's released counts have the noise of the second stage, which spends (1 - gamma) of the
level's budget b (all of b where every group is measured by a total only). Its margin falls as b
grows, so that the least b that meets a margin is the least of the second stage over 1 - gamma. The
levels of a pass add up, and each has its own margin: together these budgets are the least too.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ...noise.quantiles import margin
from ...runs.errors import InputRefused
from .explorer import LevelBudget, budget_for_margin, continuous_budget
from .mapping import iteration_universe, stability
from .mechanism import MechanismParameters
from .regions import REGION_TYPES
from .specification import Specification

DIGITS = 6
"""Significant digits of a budget that a wanted margin sets."""


def level_budgets(
    parameters: MechanismParameters, specification: Specification, region_pass: str | None = None
) -> dict[tuple[str, int], LevelBudget]:
    """Budget and stability of every measured level, of one pass if it is named, by region type and
    level.

    A level of nothing but groups that are measured by a total only has no first stage.
    """
    found = {}
    own = parameters.budgets if region_pass is None else parameters.budgets_of(region_pass)
    for (region_type, level), budget in own.items():
        granularity = REGION_TYPES[region_type].granularity
        universe = iteration_universe(specification, granularity, level)
        has_stage_1 = not len(universe) or not universe.total_only.all()
        found[region_type, level] = LevelBudget(
            budget,
            stability(universe, parameters.max_race_codes),
            parameters.stage_1_fraction if has_stage_1 else Fraction(0),
            parameters.is_pure,
        )
    return found


def budgets_for_margins(
    parameters: MechanismParameters, specification: Specification
) -> dict[tuple[str, int], Fraction]:
    """The least budgets, to six significant digits, of measured levels that have wanted margins."""
    wanted = parameters.wanted
    return {
        level: least_budget(budget, wanted.by_level[level], wanted.coverage)
        for level, budget in level_budgets(parameters, specification).items()
        if level in wanted.by_level
    }


def least_budget(level: LevelBudget, margin_of_error: int, coverage: Fraction) -> Fraction:
    """The least budget, to six significant digits, whose released counts meet a margin.

    >>> least_budget(LevelBudget(Fraction(1), 9, Fraction(1, 10)), 11, Fraction(95, 100))
    Fraction(28977, 200000)
    """
    near = continuous_budget(level, max(margin_of_error, 0.5), float((1 + coverage) / 2))
    decimals = max(0, DIGITS - math.ceil(math.log10(near)))
    return budget_for_margin(level, margin_of_error, coverage=coverage, decimals=decimals)


def refuse_missed_margins(parameters: MechanismParameters, specification: Specification) -> None:
    """Raise InputRefused if a level has a budget that does not meet the margin wanted of it."""
    wanted = parameters.wanted
    budgets = level_budgets(parameters, specification) if wanted.by_level else {}
    for level, budget in budgets.items():
        due = wanted.by_level.get(level)
        if due is None or margin(budget.second_stage, wanted.coverage) <= due:
            continue
        region_type, number = level
        least = least_budget(budget, due, wanted.coverage)
        raise InputRefused(
            f"mechanism.budgets.{region_type}.{number} is {budget.budget}, at which counts are "
            f"not within mechanism.margins.{region_type}.{number} = {due} with a probability "
            f"of {shown_percent(wanted.coverage)} %; remove the budget, or give it {least} at "
            "least."
        )


def shown_percent(probability: Fraction) -> str:
    """A probability as a percentage.

    >>> shown_percent(Fraction(95, 100))
    '95'
    """
    return f"{float(100 * probability):.6g}"
