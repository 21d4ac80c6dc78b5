"""What a group-sizes run would cost."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ...ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, ZCDP, Guarantee
from ...ledger.plan import Measure, UniversePlan
from ...runs.errors import InputRefused
from ...solvers.level_design import LevelErrors
from ...solvers.level_split import RegularTree
from ..paths import UNIVERSE
from .mechanisms import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    PROVEN,
    TOPDOWN,
)
from .plan import Plan


def universe_plan(plan: Plan) -> UniversePlan:
    """What all levels are measured with, and what that guarantees: epsilon of pure differential
    privacy, or rho of zCDP; nothing without noise, or of the published scale.

    The levels' parts add up. The noise is calibrated to the neighbours of the plan: bounded, where
    a person moves between groups, or unbounded, where one joins or leaves a group; an unbounded
    rho is charged as four times itself in bounded zCDP, by group privacy.
    """
    guarantee = None
    if plan.loss is not None and plan.calibration == PROVEN:
        neighbors = BOUNDED if plan.bounded else UNBOUNDED
        guarantee = Guarantee(PURE_DP if plan.rho is None else ZCDP, plan.loss, neighbors)
    return UniversePlan(
        UNIVERSE,
        plan.noise,
        guarantee,
        plan.loss,
        tuple(
            Measure(
                level.level,
                level.noise_of(plan.noise),
                level.share,
                level.level,
                plan.vector,
                moved=level.sensitivity,
                areas=level.n_regions,
                answers=level.n_regions * plan.n_sizes,
            )
            for level in plan.levels
        ),
    )


def needed_split(plan: Plan, wanted: Mapping[str, int]) -> str | None:
    """A sentence: the smallest rho, and its shares, with which estimates of levels have margins.

    `wanted` has the margins by level. The estimates are those of every entry of the measured vector
    on a tree of the mean fan-outs, before counts are made whole, ordered and not negative. None for
    pure differential privacy, whose program is another, and for the chain, which is no tree. Raises
    InputRefused for a level that is not there or is the same as another.
    """
    errors = level_errors(plan)
    if errors.tree is None:
        return None
    depths = {name: depth for depth, name in errors.names.items()}
    unknown = [target for target in wanted if target not in depths]
    if unknown:
        raise InputRefused(f"--target {unknown[0]}: name one of {', '.join(depths)}.")

    def setting(shares: Mapping[int, Fraction]) -> str:
        named = shares_by_name(plan, shares).items()
        listed = ", ".join(f'{name} = "{share}"' for name, share in named)
        return f"mechanism.levels = {{ {listed} }}"

    margins = {depths[name]: margin for name, margin in wanted.items()}
    return errors.smallest_budget(margins, shares_now(plan), setting)


def level_errors(plan: Plan) -> LevelErrors:
    """How the errors of measured entries follow from what the levels spend, by distinct level.

    Levels are taken together on a tree of the mean fan-outs. Under pure differential privacy, and
    along the chain, which is no tree, every level stands for itself.
    """
    levels = [level for level in plan.levels if level.same_as is None]
    names = {depth: level.level for depth, level in enumerate(levels)}
    if plan.rho is None:
        units = {depth: 2.0 * level.sensitivity**2 for depth, level in enumerate(levels)}
        return LevelErrors(names, units, None, 2, "epsilon")
    units = {depth: level.sensitivity / 2 for depth, level in enumerate(levels)}
    if plan.vector == CHAINED_CUMULATIVE_GROUP_SIZES:
        return LevelErrors(names, units, None, 1, "rho")
    numbers = [level.n_regions for level in levels]
    fanouts = tuple(below / above for above, below in zip(numbers, numbers[1:], strict=False))
    tree = RegularTree(fanouts, is_root_exact=False, is_combined=plan.mechanism != TOPDOWN)
    return LevelErrors(names, units, tree, 1, "rho")


def shares_now(plan: Plan) -> dict[int, Fraction]:
    """The shares of a plan by distinct level, as `level_errors` numbers them."""
    levels = [level for level in plan.levels if level.same_as is None]
    return {depth: level.share for depth, level in enumerate(levels)}


def shares_by_name(plan: Plan, shares: Mapping[int, Fraction]) -> dict[str, Fraction]:
    """Shares of distinct levels as `mechanism.levels` has them; 0 for one that repeats another."""
    found: dict[str, Fraction] = {}
    given = iter(shares.values())
    for level in plan.levels:
        found[level.level] = next(given) if level.same_as is None else Fraction(0)
    return found
