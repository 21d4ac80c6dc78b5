"""The exact privacy curve of detailed groups, from the counts that one person moves.

One person is in at most s groups of a level, one region of every region type having all of them. In
a group that is measured by a total only, the person moves that total by one. In any other group the
total of the first stage moves by one, and in the table that it chooses, whichever that is, the one
cell that the person is in. The noise of both stages is fixed by the level's budget before anything
is drawn, and the second stage's is the same in every cell of every table; so the first stage's
outcome changes neither, and the worst pairs of all counts compose (`ledger.exact_curve`).

One person added or removed moves the counts of s groups a level. A person changed within a pass
leaves up to s groups and joins up to s. If both are the same group, its total stays and at most two
cells move, fewer counts than in two groups: a curve of fewer counts is never larger.

How many of the groups are measured by a total only differs between persons. They and the others
have the same rho and slightly different curves, and the bound is the largest over all possible
numbers, which are equal in all region types with the same iterations: the nation and the states.
Geometric noise needs no such comparison: there, as many groups by a total only as possible is the
worst case. A total that moves by one has the two losses +a and -a, a being the level's spend on the
group, and no two distributions with losses within these bounds have a larger delta; the losses of
two stages that spend as much together are within them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from itertools import product

from ...ledger.exact_curve import MOST_COMBINATIONS, PrivacyCurve, known_curve
from ...ledger.loss_laws import ChangedCount
from .budgets import LevelBudget, level_budgets
from .parameters import MechanismParameters
from .regions import REGION_TYPES
from .specification import Specification, exact_stability, iteration_universe


def exact_curve(
    tables: Collection[MechanismParameters],
    specification: Specification,
    region_pass: str,
    *,
    is_bounded: bool,
) -> PrivacyCurve | None:
    """The curve of one person or household added or removed in a pass, or changed within it if
    `is_bounded`: each of the tables, of persons one and of households by tabulation, moves one cell
    of every group that the person, or the householder, is in.

    None if unknown, and without noise.
    """
    if any(own.infinite for own in tables):
        return None
    choices = [
        choice
        for own in tables
        for choice in _choices(own, specification, region_pass, 1 + is_bounded)
    ]
    return known_curve({}, choices)


def curve_of_change(
    parameters: MechanismParameters, specification: Specification
) -> PrivacyCurve | None:
    """The curve of one person's change in any pass that is run, which the ledger counts.

    Where there are two passes, a person leaves the groups of one of them and joins groups of the
    same or of the other. None if unknown.
    """
    if len(parameters.passes) == 1:
        return exact_curve([parameters], specification, parameters.passes[0], is_bounded=True)
    # Laws are most accurate about the first pass, and the largest loss is required.
    passes = sorted(parameters.passes, key=parameters.total_of, reverse=True)
    of_passes = [_choices(parameters, specification, name, 1) for name in passes]
    if sum(math.prod(map(len, choices)) for choices in of_passes) > MOST_COMBINATIONS:
        return None
    nothing = Counter[ChangedCount]()
    ends = [sum(end, nothing) for choices in of_passes for end in product(*choices)]
    return known_curve({}, (ends, ends))


def _choices(
    parameters: MechanismParameters, specification: Specification, region_pass: str, persons: int
) -> list[list[Counter[ChangedCount]]]:
    """The counts of a pass moved by one person or two who join it, by granularity and level:
    alternatives of each.
    """
    budgets: dict[tuple[str, int], list[LevelBudget]] = {}
    for (region_type, level), budget in level_budgets(
        parameters, specification, region_pass
    ).items():
        granularity = REGION_TYPES[region_type].granularity
        budgets.setdefault((granularity, level), []).append(budget)
    choices = []
    for (granularity, level), own in budgets.items():
        universe = iteration_universe(specification, granularity, level)
        most = exact_stability(universe, parameters.max_race_codes)
        by_total = int(universe.total_only.sum())
        fewest = max(0, most - (len(universe) - by_total))
        compared = range(persons * fewest, persons * min(most, by_total) + 1)
        if parameters.is_pure:
            compared = compared[-1:]
        choices.append([_changed_counts(own, persons * most, number) for number in compared])
    return choices


def _changed_counts(
    budgets: list[LevelBudget], number: int, by_total: int
) -> Counter[ChangedCount]:
    """The counts that move at levels with the same iterations, of so many groups that persons leave
    and join, `by_total` of them having a total only."""
    found: Counter[ChangedCount] = Counter()
    for budget in budgets:
        noises = [(budget.total_only, by_total)]
        if budget.stage_1_fraction:
            noises.append((budget.first_stage, number - by_total))
        for noise, times in (*noises, (budget.second_stage, number - by_total)):
            if times:
                found[ChangedCount(noise)] += times
    return found
