"""The trips flow: from a table of origins and destinations, or any tree, to a released table."""

from __future__ import annotations

from ..tasks.trips.product import TRIPS
from .entry import settings_flow, stages_flow
from .form import TripsForm

trips = settings_flow(
    __name__,
    TRIPS,
    TripsForm(),
    (
        "Releases origin/destination tables, or any table that forms a tree, by "
        "InfTDA. Every draw of noise is charged to the dataset's ledger first; the "
        "release appears once every check has passed."
    ),
)
trips_stages = stages_flow(__name__, TRIPS)
