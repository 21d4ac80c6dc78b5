"""What a detailed-groups run guarantees, and what it states exactly, in words."""

from __future__ import annotations

from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import DetailedGroupsSettings
from .guarantee import universe_plan
from .mechanism import MechanismParameters


def statement_of(settings: DetailedGroupsSettings, parameters: MechanismParameters) -> Statement:
    """The guarantee for one person, added or removed, by pass."""
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    codes = parameters.max_race_codes
    counted = "the first race code" if codes == 1 else f"the first {codes} race codes"
    if parameters.is_pure:
        changed = "Changing a record instead costs twice the epsilon, since that is both."
    else:
        changed = (
            "Changing a record instead costs twice the rho (Theorem 2 of SafeTab-P), which is what "
            "the last column holds."
        )
    together = ""
    if len(parameters.passes) > 1:
        together = (
            "Nobody is counted in both passes, so that the larger loss is that of both together."
        )
    return Statement(
        None,
        (
            "Protected is every person's record: the groups that the person is in, by "
            f"{counted} and by the ethnicity code, and sex, age and block.",
        ),
        (
            "The guarantee compares two tables, one of which has one person's record more than "
            f"the other. {changed}",
        ),
        tuple(universe_plan(parameters, name) for name in parameters.passes),
        together,
        are_disjoint=True,
    )


def exact_of(settings: DetailedGroupsSettings) -> tuple[ExactFact, ...]:
    """The declared facts that the release rests on."""
    exact = [
        ExactFact(
            "groups and regions", "which groups and regions there are is public, not their size"
        )
    ]
    if settings.mechanism.units_are_invariant:
        meaning = (
            "the numbers of housing units and of facilities by type in every block are kept as "
            "they are in the run's public files"
        )
        if settings.mechanism.coterminous:
            meaning += "; which blocks have any decides which regions are the same"
        exact.append(ExactFact("addresses", meaning))
    return tuple(exact)
