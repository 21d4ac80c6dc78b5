"""State totals: whether settings declare the population of every state exact, and can hold it.

Exact are the totals that a census declares with a name for their sums `above`: they are held where
the spine has their geolevel, and are none where the areas are estimated alone.
"""

from __future__ import annotations

from ...runs.errors import InputRefused
from ..settings import TopdownSettings


def declares_state_totals(settings: TopdownSettings) -> bool:
    """Whether such totals are exact by declaration."""
    return bool(_declared(settings))


def refuse_unheld_state_totals(settings: TopdownSettings) -> None:
    """Raise InputRefused for settings whose spine has no states to hold their totals at."""
    for universe, geolevel in _declared(settings):
        if geolevel not in settings.budget[universe].geolevels:
            raise InputRefused(
                f"budget.{universe}.geolevels has no {geolevel}, where the population of every "
                f"state is held exact; give {geolevel} a share, or set run.estimator = "
                "'block_by_block', which declares no totals."
            )


def _declared(settings: TopdownSettings) -> list[tuple[str, str]]:
    """The universes with such totals, and their geolevels."""
    universes = settings.compiled_census.universes
    return [
        (name, invariant.geolevel)
        for name in settings.run.universes
        for invariant in universes[name].invariants
        if invariant.above is not None and not settings.blocks_only
    ]
