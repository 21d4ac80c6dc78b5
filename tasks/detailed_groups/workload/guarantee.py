"""The guarantee of detailed groups: exact curves, plans by pass, and the statement in words.

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

The mechanism for persons follows [SafeTabP2025], the mechanism for households [SafeTabH2025] and
the code that the Census Bureau released with it. One person is in at most s groups of a level, in
one region of every type, and a household in as many as its householder; in each group it moves one
cell of every tabulation. By Theorems 1 and 2 of [SafeTabP2025] adding or removing one costs the sum
of the levels of a pass, of all tabulations, and changing one twice as much rho. The table of a
group of households is chosen by the noisy total of persons that a finished run has published, at no
loss.

A person moving from one household to another changes both. Two records may leave and join the same
counts: these then move by two, which costs four times as much as one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product

from ...ledger.accounting import (
    GROUP_OF_TWO,
    PURE_DP,
    SAFETAB_P,
    UNBOUNDED,
    UNBOUNDED_OF_SEVERAL,
    ZCDP,
    Guarantee,
)
from ...ledger.exact_curve import MOST_COMBINATIONS, PrivacyCurve, count_moves, known_curve
from ...ledger.loss_laws import ChangedCount
from ...ledger.plan import UniversePlan
from ...noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ...products.plan import ExactFact, Statement
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .budgets import ONE, LevelBudget, level_budgets
from .parameters import Parameters
from .regions import REGION_TYPES
from .specification import Specification, exact_stability, iteration_universe
from .tabulations import TABULATIONS


def exact_curve(
    parameters: Parameters, specification: Specification, region_pass: str, *, is_bounded: bool
) -> PrivacyCurve | None:
    """The curve of one person or household added or removed in a pass, or changed within it if
    `is_bounded`: each of the tables, of persons one and of households by tabulation, moves one cell
    of every group that the person, or the householder, is in.

    None if unknown, and without noise.
    """
    if parameters.infinite:
        return None
    return known_curve({}, _choices(parameters, specification, region_pass, 1 + is_bounded))


def curve_of_change(parameters: Parameters, specification: Specification) -> PrivacyCurve | None:
    """The curve of one person's change in any pass that is run, which the ledger counts.

    Where there are two passes, a person leaves the groups of one of them and joins groups of the
    same or of the other. None if unknown.
    """
    if len(parameters.passes) == 1:
        return exact_curve(parameters, specification, parameters.passes[0], is_bounded=True)
    # Laws are most accurate about the first pass, and the largest loss is required.
    passes = sorted(parameters.passes, key=parameters.total_of, reverse=True)
    of_passes = [_choices(parameters, specification, name, 1) for name in passes]
    if sum(math.prod(map(len, choices)) for choices in of_passes) > MOST_COMBINATIONS:
        return None
    nothing = Counter[ChangedCount]()
    ends = [sum(end, nothing) for choices in of_passes for end in product(*choices)]
    return known_curve({}, (ends, ends))


def _choices(
    parameters: Parameters, specification: Specification, region_pass: str, persons: int
) -> list[list[Counter[ChangedCount]]]:
    """The counts of a pass moved by one person or two who join it, by tabulation, granularity and
    level: alternatives of each.
    """
    budgets: dict[tuple[str, str, int], list[LevelBudget]] = {}
    for name in parameters.budgets:
        of_levels = level_budgets(parameters, specification, name, region_pass)
        for (region_type, level), budget in of_levels.items():
            granularity = REGION_TYPES[region_type].granularity
            budgets.setdefault((name, granularity, level), []).append(budget)
    choices = []
    for (_, granularity, level), own in budgets.items():
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
    return count_moves(
        (budget.noise(share), {1: n})
        for budget in budgets
        for share, n in (
            (ONE, by_total),
            (budget.stage_1_fraction, number - by_total),
            (1 - budget.stage_1_fraction, number - by_total),
        )
        if share
    )


_CHANGES = {
    "persons": (UNBOUNDED, SAFETAB_P),
    "households": (UNBOUNDED_OF_SEVERAL, GROUP_OF_TWO),
}
"""The neighbours of a guarantee for records, and of a person's whole move."""


def pass_plan(parameters: Parameters, region_pass: str) -> UniversePlan:
    """The plan of all tabulations in a pass."""
    return _plan(f"{region_pass.upper()} pass", parameters.total_of(region_pass), parameters)


def tabulation_plan(parameters: Parameters, name: str) -> UniversePlan:
    """The plan of one tabulation in the whole run, which is charged as one draw."""
    return _plan(TABULATIONS[name].what, parameters.of(name).total, parameters)


def drawn_plans(parameters: Parameters, specification: Specification) -> Iterator[UniversePlan]:
    """The plans of all tabulations, with their exact curves."""
    for name in parameters.budgets:
        curve = curve_of_change(parameters.of(name), specification)
        yield replace(tabulation_plan(parameters, name), curve=curve)


def _plan(name: str, total: Fraction, parameters: Parameters) -> UniversePlan:
    definition, mechanism = ZCDP, DISCRETE_GAUSSIAN
    if parameters.is_pure:
        definition, mechanism = PURE_DP, DISCRETE_LAPLACE
    if parameters.infinite:
        return UniversePlan(name, mechanism, None, None)
    neighbors, factor = _CHANGES[parameters.records]
    guarantee = Guarantee(definition, total, neighbors, bounded_factor=factor)
    return UniversePlan(name, mechanism, guarantee, total)


def statement_of(parameters: Parameters) -> Statement:
    """The guarantee for one record, added or removed, by pass; of households under pure DP by
    tabulation."""
    losses = tuple(pass_plan(parameters, name) for name in parameters.passes)
    together, are_disjoint = "", True
    of_persons = parameters.records == "persons"
    words = _words_of_persons if of_persons else _words_of_households
    protected, change = words(parameters)
    if not of_persons and parameters.is_pure:
        # The ledger has a draw of each, and summed epsilons exceed the epsilon of summed rhos.
        losses = tuple(tabulation_plan(parameters, name) for name in parameters.budgets)
        together, are_disjoint = "Every household is in both, so that their epsilons add up.", False
    elif len(losses) > 1:
        together = (
            f"{'Nobody' if of_persons else 'No household'} is counted in both passes, so that the "
            "larger loss is that of both together."
        )
    return Statement(None, (protected,), (change,), losses, together, are_disjoint)


def _words_of_persons(parameters: Parameters) -> tuple[str, str]:
    codes = parameters.max_race_codes
    counted = "the first race code" if codes == 1 else f"the first {codes} race codes"
    changed = (
        "Changing a record instead costs twice the rho (Theorem 2 of SafeTab-P), which is what "
        "the last column holds."
    )
    if parameters.is_pure:
        changed = "Changing a record instead costs twice the epsilon, since that is both."
    return (
        "Protected is every person's record: the groups that the person is in, by "
        f"{counted} and by the ethnicity code, and sex, age and block.",
        "The guarantee compares two tables, one of which has one person's record more than "
        f"the other. {changed}",
    )


def _words_of_households(parameters: Parameters) -> tuple[str, str]:
    twice = "the epsilon" if parameters.is_pure else "the rho (as in Theorem 2 of SafeTab-P)"
    more = "twice the epsilon of that" if parameters.is_pure else "four times that rho"
    return (
        "Protected is every household's record: the groups of its householder, its type, its "
        "tenure and its block.",
        "The guarantee compares two tables, one of which has one household more than the "
        f"other. Changing a household instead costs twice {twice}, which the ledger counts. "
        f"Who moves from one household to another changes both, for which {more} holds.",
    )


def exact_of(
    settings: DetailedGroupsSettings | DetailedHouseholdsSettings,
) -> tuple[ExactFact, ...]:
    """The declared facts that the release relies on."""
    exact = [
        ExactFact(
            "groups and regions", "which groups and regions there are is public, not their size"
        )
    ]
    if isinstance(settings, DetailedHouseholdsSettings):
        earlier = (
            "which groups have tables, and how detailed they are, follows from the noisy totals of "
            "persons that are released already, and is charged with those"
        )
        exact.append(ExactFact("the earlier release", earlier))
    elif settings.mechanism.units_are_invariant:
        meaning = (
            "the numbers of housing units and of facilities by type in every block are kept as "
            "they are in the run's public files"
        )
        if settings.mechanism.coterminous:
            meaning += "; which blocks have any decides which regions are the same"
        exact.append(ExactFact("addresses", meaning))
    return tuple(exact)
