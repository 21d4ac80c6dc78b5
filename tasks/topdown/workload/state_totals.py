"""State totals: whether settings declare the population of every state exact, and can hold it."""

from __future__ import annotations

from ...runs.errors import InputRefused
from ..settings import TopdownSettings

PERSONS = "persons"
STATE = "State"


def declares_state_totals(settings: TopdownSettings) -> bool:
    """Whether the population of every state is exact by declaration.

    It is for the census of 2020, unless its blocks are estimated alone.
    """
    is_run = PERSONS in settings.run.universes and not settings.is_declared
    return is_run and not settings.blocks_only


def holds_state_totals(settings: TopdownSettings) -> bool:
    """Whether the release has those totals: they are held where the spine has states."""
    return declares_state_totals(settings) and STATE in settings.budget[PERSONS].geolevels


def refuse_unheld_state_totals(settings: TopdownSettings) -> None:
    """Raise InputRefused for settings whose spine has no states to hold their totals at."""
    if declares_state_totals(settings) and not holds_state_totals(settings):
        raise InputRefused(
            f"budget.{PERSONS}.geolevels has no {STATE}, where the population of every state is "
            f"held exact; give {STATE} a share, or set run.estimator = 'block_by_block', which "
            "declares no totals."
        )
