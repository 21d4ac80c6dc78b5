"""The guarantee of a run, in one pass or in all: its plan by levels, and the statement in words.

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

from fractions import Fraction

from ...ledger.accounting import (
    GROUP_OF_TWO,
    PURE_DP,
    SAFETAB_P,
    UNBOUNDED,
    UNBOUNDED_OF_SEVERAL,
    ZCDP,
    Guarantee,
)
from ...ledger.plan import Measure, UniversePlan
from ...noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .parameters import Parameters
from .tabulations import TABULATIONS

_CHANGES = {
    "persons": (UNBOUNDED, SAFETAB_P),
    "households": (UNBOUNDED_OF_SEVERAL, GROUP_OF_TWO),
}
"""The neighbours of a guarantee for records, and of a person's whole move."""


def pass_plan(parameters: Parameters, region_pass: str | None = None) -> UniversePlan:
    """The plan of all tabulations in a pass, or in the whole run."""
    if region_pass is not None:
        name = f"{region_pass.upper()} pass"
        return _plan(name, parameters.total_of(region_pass), parameters)
    name = "households" if len(parameters.of) > 1 else TABULATIONS[next(iter(parameters.of))].what
    return _plan(name, parameters.total, parameters)


def tabulation_plan(
    parameters: Parameters, name: str, measures: tuple[Measure, ...] = ()
) -> UniversePlan:
    """The plan of one tabulation in the whole run, which is charged as one draw."""
    return _plan(TABULATIONS[name].what, parameters.of[name].total, parameters, measures)


def _plan(
    name: str, total: Fraction, parameters: Parameters, measures: tuple[Measure, ...] = ()
) -> UniversePlan:
    definition, mechanism = ZCDP, DISCRETE_GAUSSIAN
    if parameters.is_pure:
        definition, mechanism = PURE_DP, DISCRETE_LAPLACE
    if parameters.infinite:
        return UniversePlan(name, mechanism, None, None, measures)
    neighbors, factor = _CHANGES[parameters.records]
    guarantee = Guarantee(definition, total, neighbors, bounded_factor=factor)
    return UniversePlan(name, mechanism, guarantee, total, measures)


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
        losses = tuple(tabulation_plan(parameters, name) for name in parameters.of)
        together, are_disjoint = "Every household is in both, so that their epsilons add up.", False
    elif len(losses) > 1:
        together = (
            f"{'Nobody' if of_persons else 'No household'} is counted in both passes, so that the "
            "larger loss is that of both together."
        )
    return Statement(None, (protected,), (change,), losses, together, are_disjoint)


def _words_of_persons(parameters: Parameters) -> tuple[str, str]:
    codes = parameters.first.max_race_codes
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
