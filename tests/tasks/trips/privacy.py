"""Neighbouring tables of trips, for tests."""

from __future__ import annotations

from typing import Any

from spineflow.tasks.trips.settings import TripsPrivacy


def privacy_of(
    is_bounded: bool = True,
    trips: int = 1,
    are_distinct: bool = False,
    is_exact: bool = True,
    **further: Any,
) -> TripsPrivacy:
    """Settings under which a person has up to `trips` trips, or exactly as many."""
    return TripsPrivacy(
        dataset="d",
        neighbors="bounded" if is_bounded else "unbounded",
        trips_per_person=trips,
        distinct_trips=are_distinct,
        total="invariant" if is_exact else "measured",
        **further,
    )
