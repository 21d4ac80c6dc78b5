"""From budgets to margins of error and suppression thresholds, and back, exactly.

A population group level with privacy-loss budget b and stability s counts, in stage i with its
part b_i of b, with noise of P(x) proportional to exp(-(b_i / s) |x|^power): the discrete Gaussian
of sigma^2 = s / (2 b_i) under zCDP (power 2), the two-sided geometric of scale s / b_i under pure
DP (power 1). Groups measured by a total only have all of b, the others gamma b in the first stage
and (1 - gamma) b in the second, whose counts are released.

Margins and thresholds are quantiles of these distributions, found by exact comparisons
(`tasks.noise.quantiles`). A further function gives [SafeTabP2025]'s approximation of the margin,
floor(1.96 sigma), which takes the discrete Gaussian for the continuous one and can be one too small
to cover 95 %. The margin falls as b grows, so that the least b that meets a margin is the least of
the second stage over 1 - gamma. The levels of a pass add up, and each has its own margin: together
these budgets are the least too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ...ledger.plan import Measure
from ...noise.distributions import IntegerDistribution
from ...noise.draws import Noise
from ...noise.margins import loss_for_margin
from ...noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ...noise.quantiles import margin
from ...runs.errors import InputRefused
from .parameters import MechanismParameters
from .regions import REGION_TYPES
from .specification import Specification, iteration_universe, stability

NORMAL_QUANTILE = Fraction(196, 100)
"""The paper's factor between sigma and its 95 % margin of error."""

DECIMALS = 3
"""Decimal places of a budget, in the production specification and by default."""


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

    @property
    def second_stage(self) -> IntegerDistribution:
        """Noise of the released counts of groups that get a table by their size."""
        return self._noise(self.budget * (1 - self.stage_1_fraction))

    @property
    def first_stage(self) -> IntegerDistribution:
        """Noise of the total that chooses the table."""
        return self._noise(self.budget * self.stage_1_fraction)

    @property
    def total_only(self) -> IntegerDistribution:
        """Noise of the groups that are measured by a total only."""
        return self._noise(self.budget)

    @property
    def mechanism(self) -> str:
        """The distribution of all noise."""
        return DISCRETE_LAPLACE if self.is_pure else DISCRETE_GAUSSIAN

    def measure(
        self, part: str, total: Fraction, share: Fraction, level: str, query: str
    ) -> Measure:
        """Counts that cost a share of the level's budget, in a plan that costs `total`."""
        noise = Noise(self.mechanism, noise_parameter(self._noise(self.budget * share)))
        return Measure(part, noise, share * self.budget / total, level, query, moved=self.stability)

    def with_budget(self, budget: Fraction) -> LevelBudget:
        """This level at another budget."""
        return LevelBudget(budget, self.stability, self.stage_1_fraction, self.is_pure)

    def _noise(self, loss: Fraction) -> IntegerDistribution:
        return IntegerDistribution(loss / self.stability, power=1 if self.is_pure else 2)


def noise_parameter(noise: IntegerDistribution) -> Fraction:
    """sigma^2 of a discrete Gaussian, or the scale of a two-sided geometric."""
    return 1 / (noise.power * noise.c)


def margin_by_formula(noise: IntegerDistribution) -> int:
    """The paper's 95 % margin of error floor(1.96 sigma), in integer arithmetic.

    Raises ValueError for noise that is not Gaussian.

    >>> margin_by_formula(LevelBudget(Fraction("2.134"), 9, Fraction("0.1")).second_stage)
    3
    """
    if noise.power != 2:
        raise ValueError("the formula holds for the discrete Gaussian only")
    square = NORMAL_QUANTILE**2 * noise_parameter(noise)
    return math.isqrt(square.numerator // square.denominator)


def budget_by_formula(level: LevelBudget, margin_of_error: int) -> Fraction:
    """The paper's budget of a level for a margin (Corollary 2): 1.96^2 s / (2 m^2 (1 - gamma)).

    Rounded to three decimals this gives the Total column of the paper's Table 7; times
    1 - gamma, its Step 2 column. The level's own `budget` is not used.

    >>> round(float(budget_by_formula(LevelBudget(Fraction(1), 9, Fraction("0.1")), 11)), 3)
    0.159
    """
    if level.is_pure:
        raise ValueError("the formula holds for the discrete Gaussian only")
    second = NORMAL_QUANTILE**2 * level.stability / (2 * margin_of_error**2)
    return second / (1 - level.stage_1_fraction)


def target_of(level: LevelBudget) -> int | None:
    """The margin that a budget was set for: the largest whose formula budget rounds to it.

    None under pure DP, or if no whole margin has this budget. The paper's Table 7 lists the margins
    of its budgets.

    >>> target_of(LevelBudget(Fraction("0.008"), 9, Fraction("0.1")))
    50
    """
    if level.is_pure or level.budget <= 0:
        return None
    smallest = level.budget - Fraction(1, 2 * 10**DECIMALS)
    if smallest <= 0:
        return None
    square = budget_by_formula(level, 1) / smallest
    target = math.isqrt(square.numerator // square.denominator)
    if target == 0 or round(budget_by_formula(level, target), DECIMALS) != level.budget:
        return None
    return target


DIGITS = 6
"""Significant digits of a budget that a wanted margin sets."""


def level_budgets(
    parameters: MechanismParameters, specification: Specification, region_pass: str | None = None
) -> dict[tuple[str, int], LevelBudget]:
    """Budget and stability of every measured level, of one pass if it is named, by region type and
    level.

    A level whose groups are all measured by a total only has no first stage.
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

    The level's own `budget` is not used.

    >>> least_budget(LevelBudget(Fraction(1), 9, Fraction(1, 10)), 11, Fraction(95, 100))
    Fraction(28977, 200000)
    """
    one = Fraction(1)
    noise = Noise(level.mechanism, noise_parameter(level.with_budget(one).second_stage))
    near = loss_for_margin(noise, one, margin_of_error, coverage=coverage)
    unit = Fraction(1, 10 ** max(0, DIGITS - math.ceil(math.log10(near))))
    return loss_for_margin(noise, one, margin_of_error, unit, coverage)


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
            f"of {format_percent(wanted.coverage)} %; remove the budget, or give it {least} at "
            "least."
        )


def format_percent(probability: Fraction) -> str:
    """A probability as a percentage.

    >>> format_percent(Fraction(95, 100))
    '95'
    """
    return f"{float(100 * probability):.6g}"
