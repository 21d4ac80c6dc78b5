"""A release of trips as the truth of a simulation: what errors it can be expected to have.

The mechanism is public. Run again on the released counts, with fresh noise, it is off by about as
much as the release itself is. Nothing confidential is read, and nothing spent.
"""

from __future__ import annotations

from pathlib import Path

from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ..settings import TripsSettings


def settings_of_release(run: RunDirectory, settings: TripsSettings, folder: Path) -> TripsSettings:
    """Settings of the same mechanism on a finished run's release.

    Raises InputRefused where the values in the input are the areas: a release lacks those without
    a count.
    """
    if settings.input.areas is None:
        raise InputRefused(
            f"{run.root}: its areas are the values in its input, which a release need not have; "
            "errors can be expected where input.areas lists them."
        )
    which = "trips" if settings.input.trips is not None else "table"
    own = {which: str(run.release / "trips.parquet"), "count": "count", "person": None}
    privacy = {"excess_trips": "refused"}
    return settings.model_copy(
        update={
            "input": settings.input.model_copy(update={**own, "confidential": False}),
            "privacy": settings.privacy.model_copy(update=privacy),
        }
    )
