"""From budgets to margins of error and suppression thresholds, and back, exactly.

A population group level with privacy-loss budget b and stability s counts, in stage i with its
part b_i of b, with noise of P(x) proportional to exp(-(b_i / s) |x|^power): the discrete Gaussian
of sigma^2 = s / (2 b_i) under zCDP (power 2), the two-sided geometric of scale s / b_i under pure
DP (power 1). Groups measured by a total only have all of b, the others gamma b in the first stage
and (1 - gamma) b in the second, whose counts are released.

Margins and thresholds are quantiles of these distributions, found by exact comparisons
(`tasks.noise.quantiles`). [SafeTabP2025] approximates the margin by floor(1.96 sigma), which takes
the discrete Gaussian for the continuous one and can be one too small to cover 95 %. The margin
falls as b grows, so that the least b that meets a margin is the least of the second stage over
1 - gamma. The levels of a pass add up, and each has its own margin: together these budgets are the
least too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from ...ledger.plan import Measure
from ...noise.distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    IntegerDistribution,
    Noise,
    distribution_of,
)
from ...noise.quantiles import loss_for_margin, margin
from ...runs.errors import InputRefused
from .parameters import Level, Parameters
from .regions import REGION_TYPES
from .specification import IterationUniverse, Specification, iteration_universe, stability
from .tabulations import SEX_BY_AGE, Tabulation

ONE = Fraction(1)


@dataclass(frozen=True)
class LevelBudget:
    """The budget of one population group level, and the noise that it buys.

    budget : rho, or epsilon under pure DP, of the level.
    stability : the number of groups of the level that one person is protected in.
    stage_1_fraction : gamma, the part of `budget` that chooses each group's table.
    """

    budget: Fraction
    stability: int
    stage_1_fraction: Fraction
    is_pure: bool = False

    def noise(self, share: Fraction) -> Noise:
        """Noise of the counts that spend a share of the budget."""
        loss = self.budget * share
        if self.is_pure:
            return Noise(DISCRETE_LAPLACE, self.stability / loss)
        return Noise(DISCRETE_GAUSSIAN, self.stability / (2 * loss))

    @property
    def second_stage(self) -> IntegerDistribution:
        """Noise of the released counts of groups that get a table by their size."""
        return distribution_of(self.noise(1 - self.stage_1_fraction))

    def of_released(self, *, is_total_only: bool) -> IntegerDistribution:
        """Noise of the released counts of a group, which may be measured by a total only."""
        return distribution_of(self.noise(ONE)) if is_total_only else self.second_stage


@dataclass(frozen=True)
class LevelNoise:
    """The measures of a population group level: of groups by a total only, and of the two stages.

    Where no table is chosen by a first stage, all three are one. `total` is the loss of the plan.
    """

    total_only: Measure
    stage_1: Measure
    stage_2: Measure
    total: Fraction

    @property
    def stages(self) -> tuple[Measure, ...]:
        """All three measures, or the only one."""
        return tuple(dict.fromkeys((self.total_only, self.stage_1, self.stage_2)))


def level_noise(
    budget: LevelBudget,
    tabulation: Tabulation,
    level: Level,
    total: Fraction,
    *,
    infinite: bool = False,
) -> LevelNoise:
    """Measures of a level in a plan of a total loss, charged under its name; without noise if
    `infinite`."""
    name, gamma = "/".join(map(str, level)), budget.stage_1_fraction

    def measure(part: str, share: Fraction) -> Measure:
        noise = None if infinite else budget.noise(share)
        place, _, query = part.rpartition("/")
        spent = budget.budget * share / total
        return Measure(part, noise, spent, place, query, moved=budget.stability)

    is_of_persons = tabulation.of_persons
    whole = measure(f"{name}/total only" if is_of_persons else f"{tabulation.name}/{name}", ONE)
    if not gamma:
        return LevelNoise(whole, whole, whole, total)
    stages = measure(f"{name}/stage 1", gamma), measure(f"{name}/stage 2", 1 - gamma)
    return LevelNoise(whole, *stages, total)


DIGITS = 6
"""Significant digits of a budget that a wanted margin sets."""


def level_budgets(
    parameters: Parameters, specification: Specification, name: str, region_pass: str | None = None
) -> dict[Level, LevelBudget]:
    """Budget and stability of every level that a tabulation measures, of one pass if it is named.

    A level whose groups are all measured by a total only has no first stage.
    """
    found = {}
    for region_type, level in parameters.budgets[name]:
        kind = REGION_TYPES[region_type]
        if region_pass in (None, kind.region_pass):
            universe = iteration_universe(specification, kind.granularity, level)
            own = level_budget(parameters, name, (region_type, level), universe)
            if len(universe) and universe.total_only.all():
                own = replace(own, stage_1_fraction=Fraction(0))
            found[region_type, level] = own
    return found


def level_budget(
    parameters: Parameters, name: str, level: Level, universe: IterationUniverse
) -> LevelBudget:
    """Budget and stability of a level with these iterations that a tabulation measures."""
    protected = stability(universe, parameters.max_race_codes)
    budget = parameters.budgets[name][level]
    return LevelBudget(budget, protected, parameters.stage_1_fraction, parameters.is_pure)


def budgets_for_margins(
    parameters: Parameters, specification: Specification
) -> dict[Level, Fraction]:
    """The least budgets, to six significant digits, of measured levels that have wanted margins."""
    wanted = parameters.wanted
    return {
        level: least_budget(budget, wanted[level], parameters.coverage)
        for level, budget in level_budgets(parameters, specification, SEX_BY_AGE.name).items()
        if level in wanted
    }


def least_budget(level: LevelBudget, margin_of_error: int, coverage: Fraction) -> Fraction:
    """The least budget, to six significant digits, whose released counts meet a margin.

    The level's own `budget` is not used.

    >>> least_budget(LevelBudget(Fraction(1), 9, Fraction(1, 10)), 11, Fraction(95, 100))
    Fraction(28977, 200000)
    """
    noise = replace(level, budget=ONE).noise(1 - level.stage_1_fraction)
    return loss_for_margin(noise, ONE, margin_of_error, coverage=coverage, digits=DIGITS)


def refuse_missed_margins(parameters: Parameters, specification: Specification) -> None:
    """Raise InputRefused if a level has a budget that does not meet the margin wanted of it."""
    name = SEX_BY_AGE.name
    budgets = level_budgets(parameters, specification, name) if parameters.wanted else {}
    for (region_type, number), budget in budgets.items():
        due = parameters.wanted.get((region_type, number))
        if due is None or margin(budget.second_stage, parameters.coverage) <= due:
            continue
        least = least_budget(budget, due, parameters.coverage)
        raise InputRefused(
            f"mechanism.budgets.{region_type}.{number} is {budget.budget}, at which counts are "
            f"not within mechanism.margins.{region_type}.{number} = {due} with a probability "
            f"of {format_percent(parameters.coverage)} %; remove the budget, or give it {least} at "
            "least."
        )


def format_percent(probability: Fraction) -> str:
    """A probability as a percentage.

    >>> format_percent(Fraction(95, 100))
    '95'
    """
    return f"{float(100 * probability):.6g}"
