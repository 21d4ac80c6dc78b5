"""What a group-sizes run guarantees, and what it states exactly, in words."""

from __future__ import annotations

from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import GroupSizesSettings
from .costs import universe_plan
from .plan import Plan


def statement_of(settings: GroupSizesSettings, plan: Plan) -> Statement:
    """The guarantee for one person, who joins, leaves or moves between groups."""
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    by = "" if plan.quantity == 1 else f", whose size changes by up to {plan.quantity:,}"
    if plan.bounded:
        change = f"one person moves from a group to another{by} in each"
    else:
        change = f"one person joins or leaves a group{by}"
    if plan.quantity == 1:
        change = change.removesuffix(" in each")
    alone = (
        "Empty groups are counted, so that a person who is a group alone is protected too."
        if plan.smallest_size == 0
        else "Groups neither appear nor vanish: that a group exists is not protected, so that of a "
        "person who is a group alone it is not protected that there is such a person."
    )
    return Statement(
        None,
        ("Protected is every person: of which size the person's group is.",),
        (f"The guarantee compares two tables that differ in this: {change}. {alone}",),
        (universe_plan(plan),),
    )


def exact_of(plan: Plan) -> tuple[ExactFact, ...]:
    """The declared facts that the release rests on."""
    exact = [
        ExactFact("number of groups", f"there are {plan.groups:,} in all, released without noise")
    ]
    if plan.exact_level is not None:
        what = f"how many there are in every {plan.exact_level}, released without noise"
        exact.append(ExactFact("numbers of groups by region", what))
    return (*exact, ExactFact("regions", "which regions there are"))
