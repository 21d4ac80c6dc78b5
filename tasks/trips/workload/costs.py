"""What a trips run would cost."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ...ledger.plan import REPORT_DELTA, Measure, UniversePlan
from ...runs.errors import InputRefused
from ...solvers.level_design import LevelErrors
from ...solvers.level_split import RegularTree
from ..paths import UNIVERSE, level_folder
from .budget import mean_fanouts
from .mechanisms import FULL_INFORMATION
from .plan import Plan


def universe_plan(plan: Plan, delta: Fraction = REPORT_DELTA) -> UniversePlan:
    """What all levels are measured with; epsilons of a rho are told at `delta`."""
    shares = {plan.tree.depth: Fraction(1)} if plan.budget is None else plan.budget.shares
    moved: dict[int, int] = {}
    if plan.budget is not None:
        moved = dict(plan.budget.squared_sensitivities)
    elif plan.guarantee is not None and plan.stability.scale is not None:
        moved[plan.tree.depth] = int(plan.stability.scale * plan.guarantee.parameter)
    return UniversePlan(
        UNIVERSE,
        plan.noise_mechanism,
        plan.guarantee,
        None if plan.guarantee is None else plan.guarantee.parameter,
        tuple(
            Measure(
                level_folder(level),
                plan.noise_of(level),
                shares[level],
                plan.tree.level_name(level),
                "counts" if plan.histogram is None else "positive counts",
                moved=moved.get(level),
                areas=plan.tree.n_nodes(level),
            )
            for level in plan.levels
        ),
        delta,
    )


def within_areas(plan: Plan, delta: Fraction) -> dict[str, float | str]:
    """Epsilon of all that is measured below each level, by the level's name."""
    if plan.budget is None:
        return {}
    shares = plan.budget.shares
    return {
        plan.tree.level_name(level): universe_plan(plan, delta).epsilons(
            sum((shares[below] for below in plan.levels if below > level), Fraction(0))
        )["tight"]
        for level in plan.levels[:-1]
    }


def needed_split(plan: Plan, wanted: Mapping[str, int]) -> str | None:
    """A sentence: the smallest rho, and its shares, with which estimates of levels have margins.

    `wanted` has the margins by the levels' numbers or names. The estimates are those on a tree of
    the mean fan-outs, before counts are made whole and not negative. None for mechanisms that share
    no budget of zCDP among levels. Raises InputRefused for a level that is not measured.
    """
    errors = level_errors(plan)
    if errors is None:
        return None

    def setting(shares: Mapping[int, Fraction]) -> str:
        listed = ", ".join(f'"{shares[level]}"' for level in plan.levels)
        return f"mechanism.shares = [{listed}]"

    margins = {level_of(plan, target): margin for target, margin in wanted.items()}
    return errors.smallest_budget(margins, plan.level_budget.shares, setting)


def level_errors(plan: Plan) -> LevelErrors | None:
    """How the errors of counts follow from what the measured levels spend.

    Levels are taken together on a tree of the mean fan-outs: combined where all nodes are measured
    and used, and else each fitted to the one above. None for mechanisms that share no budget of
    zCDP among levels.
    """
    if plan.guarantee is None or plan.budget is None or len(plan.levels) == 1:
        return None
    rho, shares = plan.guarantee.parameter, plan.budget.shares
    tree = RegularTree(
        tuple(mean_fanouts(plan.tree)),
        is_root_exact=0 not in shares,
        is_combined=plan.mechanism == FULL_INFORMATION and plan.measures_all,
    )
    units = {level: float(plan.noise[level] * shares[level] * rho) for level in plan.levels}
    names = {level: plan.tree.level_name(level) for level in plan.levels}
    return LevelErrors(names, units, tree, 1, "rho")


def level_of(plan: Plan, target: str, where: str = "--target") -> int:
    """The measured level of a number or a name; raises InputRefused for another.

    `where` is what the sentence begins with.
    """
    names = {level: plan.tree.level_name(level) for level in plan.levels}
    found = [level for level, name in names.items() if target in (str(level), name)]
    if not found:
        known = ", ".join(f"{level} ({name})" for level, name in names.items())
        raise InputRefused(f"{where} {target}: name a measured level: {known}.")
    return found[0]
