"""What a trips run guarantees, and what it states exactly, in words."""

from __future__ import annotations

from ...ledger.accounting import BOUNDED, Guarantee
from ...products.plan import ExactFact
from ...products.statement import Statement
from ..settings import TripsSettings
from .costs import universe_plan
from .plan import Plan


def statement_of(settings: TripsSettings, plan: Plan) -> Statement:
    """The guarantee for one person with all trips."""
    if plan.guarantee is None or not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    is_stability = plan.budget is None
    change = [f"The guarantee compares two tables that differ by {change_text(plan.guarantee)}."]
    if is_stability:
        change.append(
            "Which cells have no trips is not hidden behind noise: a cell is published only if its "
            "noisy count passes a threshold, and delta is the chance that a cell of one person "
            "alone is."
        )
    return Statement(
        None,
        (f"Protected is every person with all trips. {contribution_text(settings)}",),
        tuple(change),
        (universe_plan(plan, settings.report_delta),),
    )


def exact_of(plan: Plan, total: int | None) -> tuple[ExactFact, ...]:
    """The declared facts: the areas, and the number of trips where neighbours have the same."""
    exact = [ExactFact("areas", "which areas, or values of the levels, there are")]
    if total is not None:
        where = "released" if plan.is_top_down else "told by the run's public files"
        exact.append(
            ExactFact("number of trips", f"there are {total:,} in all, {where} without noise")
        )
    return tuple(exact)


def change_text(guarantee: Guarantee) -> str:
    """What two neighbouring tables differ by."""
    if guarantee.neighbors == BOUNDED:
        return "one person's trips, which go elsewhere in the other"
    return "one person, who is in one of them alone with all trips"


def contribution_text(settings: TripsSettings) -> str:
    """How many trips a person makes, as the settings say."""
    privacy = settings.privacy
    m = privacy.trips_per_person
    exactly = "exactly" if settings.contribution.has_invariant_total else "at most"
    trips = f"{exactly} {m:,} {'trip' if m == 1 else 'trips'}"
    if m > 1:
        trips += ", no two in one cell" if privacy.distinct_trips else ", wherever they go"
    return f"A person makes {trips}; who makes more is protected less."
