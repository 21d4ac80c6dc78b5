"""What is expected of a run by its settings, in the words of the independent checks."""

from __future__ import annotations

from ....validation.trips.privacy_loss import ExpectedTrips
from ..settings import TripsSettings
from .plan import Plan


def expected_of(settings: TripsSettings, plan: Plan) -> ExpectedTrips:
    """What the independent checks may take for granted about a run."""
    contribution = settings.contribution
    return ExpectedTrips(
        loss=None if plan.guarantee is None else plan.guarantee.parameter,
        threshold=None if plan.histogram is None else plan.histogram.threshold,
        levels=plan.levels,
        top_down=plan.is_top_down,
        children_measured=plan.is_top_down and not plan.measures_all and not plan.is_selected,
        every_node=plan.budget is not None and (plan.measures_all or not plan.is_top_down),
        bounded=contribution.is_bounded,
        trips_per_person=contribution.trips,
        distinct=contribution.are_distinct,
        exact=contribution.is_exact,
    )
