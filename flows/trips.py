"""The trips flow: from a table of origins and destinations, or any tree, to a released table."""

from __future__ import annotations

from ..tasks.trips.product import TRIPS
from .entry import CHARGED_FIRST, flows_of

trips, trips_stages = flows_of(
    TRIPS,
    "Releases origin/destination tables, or any table that forms a tree, by InfTDA. "
    + CHARGED_FIRST,
)
