"""Cost and exact privacy curve of a trips plan.

Noise is fixed for every level before anything is drawn. The measured nodes of a level follow from
the releases above it; in any case, a person moves no more of them, and by no more, than if all were
measured, so that the worst pairs of the levels compose (`ledger.exact_curve`).

A person makes up to m trips. Let there be k of them in one table and m in the other (k is 0 where a
person is added or removed, m where everybody makes m, and otherwise anything up to m; more trips on
both sides move every count as far or further). Then

- the total moves by m - k, and is not measured where that is 0 in any case;
- at any other level the m trips are in nodes whose moves add up to m, and the k trips in others:
  the worst is one node that moves by m and one that moves by k (the second rule of
  `ledger.exact_curve`), of two leaves that differ from the first measured level on. Trips in the
  same node cancel;
- where no two trips are in one leaf, m + k leaves move by one. A level above has the worst case of
  any trips if one of its nodes has m leaves. Between the two, where nodes have several leaves but
  fewer than m, the worst change is unknown, and no curve is given.

A person whose trips beyond m are dropped at random moves only counts of the remaining trips: a
curve that bounds every choice bounds the random one. The stability histogram adds noise to positive
counts alone, so that neighbouring tables have different counts: it has its epsilon and delta, and
no curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from ..ledger.accounting import UNBOUNDED
from ..ledger.exact_curve import MOST_COMBINATIONS, Counts, PrivacyCurve, known_curve
from ..ledger.loss_laws import ChangedCount
from ..ledger.plan import REPORT_DELTA, Measure, UniversePlan
from ..noise.quantiles import distribution_of
from ..solvers.level_design import LevelErrors, RegularTree
from .mechanisms import FULL_INFORMATION, Contribution, largest_leaf_counts
from .plan import UNIVERSE, Plan, level_folder, mean_fanouts


def universe_plan(plan: Plan, delta: Fraction = REPORT_DELTA) -> UniversePlan:
    """Noise of all levels; epsilons of a rho are given at `delta`."""
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


def epsilons_within_areas(plan: Plan, delta: Fraction) -> dict[str, float | str]:
    """Epsilon of all that is measured below each level, by the level's name.

    It protects the leaves of a person's trips against an observer who knows the areas of the level
    that they are in. Trips that move within an area leave one node below and enter another: where
    the guarantee is for a person who is added or removed, this moves the squares of the counts
    twice as far.
    """
    if plan.budget is None:
        return {}
    shares = plan.budget.shares
    is_added = plan.guarantee is not None and plan.guarantee.neighbors == UNBOUNDED
    nodes = 2 if is_added else 1
    return {
        plan.tree.level_name(level): universe_plan(plan, delta).epsilons(
            nodes * sum((shares[below] for below in plan.levels if below > level), Fraction(0))
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

    return errors.smallest_budget(wanted, plan.level_budget.shares, setting)


def level_errors(plan: Plan) -> LevelErrors | None:
    """Errors of counts as functions of the measured levels' losses.

    Levels are combined on a tree of the mean fan-outs: jointly where all nodes are measured and
    used, and else each fitted to the one above. None for mechanisms that share no budget of zCDP
    among levels.
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


def exact_curve(plan: Plan, contribution: Contribution) -> PrivacyCurve | None:
    """The curve between tables that differ in one person; None where it is not known."""
    m, levels = contribution.trips, list(plan.levels)
    if plan.guarantee is None or plan.budget is None or m >= MOST_COMBINATIONS:
        return None
    # Only the total distinguishes tables of more and of fewer trips, and the most trips are first.
    fewer = m if 0 in levels else 0
    others: Iterable[int] = [0]
    if contribution.is_bounded:
        others = [m] if contribution.is_exact else range(m, m - fewer - 1, -1)
    spread = [level for level in levels if level and _is_spread(plan, contribution, level)]
    if any(largest_leaf_counts(plan.tree, level, 1) != [1] for level in spread):
        return None
    return known_curve({}, [[_changed_counts(plan, m, k, spread) for k in others]])


def curve_of_change(plan: Plan, contribution: Contribution) -> PrivacyCurve | None:
    """The curve of one person's change, which the ledger counts, for any neighbours of the plan;
    None as `exact_curve`.

    Where the plan is for a person who is added or removed, a changed person may make any number of
    trips before and after.
    """
    if not contribution.is_bounded:
        contribution = replace(contribution, is_bounded=True, is_exact=False)
    return exact_curve(plan, contribution)


def _is_spread(plan: Plan, contribution: Contribution, level: int) -> bool:
    """Whether a person's trips cannot all be in one node of a level."""
    largest = largest_leaf_counts(plan.tree, level, 1)[0]
    return contribution.are_distinct and largest < contribution.trips


def _changed_counts(plan: Plan, m: int, k: int, spread: Iterable[int]) -> Counts:
    """The counts that m trips in one table and k others in the other move."""
    found: Counter[ChangedCount] = Counter()
    for level in plan.levels:
        moves: Mapping[int, int] = Counter([m - k] if level == 0 else [m, k])
        if level in spread:
            moves = {1: m + k}
        noise = plan.noise_of(level)
        for shift, number in moves.items():
            if shift and noise is not None:
                found[ChangedCount(distribution_of(noise), shift)] += number
    return found
