"""What a run of the supplemental tables guarantees, in words."""

from __future__ import annotations

from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import SupplementalDhcSettings
from .costs import universe_plan
from .plan import Plan


def statement_of(settings: SupplementalDhcSettings, plan: Plan) -> Statement:
    """The guarantee for one person, who is counted or not."""
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    return Statement(
        None,
        ("Protected is every person: whether there is one, and who lives with whom.",),
        (
            "The guarantee compares two censuses that differ in this: one record of a person is "
            "there or not, and with it up to two records of housing units come or go, a record "
            "that changes being one that goes and one that comes. A person who moves or is changed "
            "is one who goes and one who comes.",
        ),
        (universe_plan(plan),),
    )


EXACT = (ExactFact("areas", "which areas there are"),)
"""The declared facts that the release rests on."""
