"""What a detailed-households run guarantees, and what it states exactly, in words."""

from __future__ import annotations

from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import DetailedHouseholdsSettings
from .households import HouseholdParameters, household_plan, tabulation_plan


def statement_of(
    settings: DetailedHouseholdsSettings, parameters: HouseholdParameters
) -> Statement:
    """The guarantee for one household, added or removed, by pass; under pure DP by tabulation."""
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    twice = "the epsilon" if parameters.is_pure else "the rho (as in Theorem 2 of SafeTab-P)"
    more = "twice the epsilon of that" if parameters.is_pure else "four times that rho"
    losses = tuple(household_plan(parameters, name) for name in parameters.passes)
    together = ""
    if parameters.is_pure:
        # The ledger has a draw of each, and epsilons that add up are more than their rho does.
        losses = tuple(tabulation_plan(parameters, name) for name in parameters.of)
        together = "Every household is in both, so that their epsilons add up."
    elif len(parameters.passes) > 1:
        together = (
            "No household is counted in both passes, so that the larger loss is that of both "
            "together."
        )
    return Statement(
        None,
        (
            "Protected is every household's record: the groups of its householder, its type, its "
            "tenure and its block.",
        ),
        (
            "The guarantee compares two tables, one of which has one household more than the "
            f"other. Changing a household instead costs twice {twice}, which the ledger counts. "
            f"Who moves from one household to another changes both, for which {more} holds.",
        ),
        losses,
        together,
        are_disjoint=not parameters.is_pure,
    )


EXACT = (
    ExactFact("groups and regions", "which groups and regions there are is public, not their size"),
    ExactFact(
        "the earlier release",
        "which groups have tables, and how detailed they are, follows from the noisy totals of "
        "persons that are released already, and is charged with those",
    ),
)
"""The declared facts that the release rests on."""
