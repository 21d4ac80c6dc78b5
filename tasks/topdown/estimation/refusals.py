"""What settings are refused for before any input is read."""

from __future__ import annotations

from ...runs.errors import refused
from ...tables.geometry import refuse_unfit_geometry
from ..settings import TopdownSettings
from ..spine.rules import refuse_no_spine
from ..workload.margins import refuse_wide_noise
from .largest_solve import refuse_large_solves


def refuse_settings(settings: TopdownSettings) -> None:
    """Refuse what makes no spine, what the estimator cannot estimate, noise too wide to compute
    with, solves that memory cannot hold, and unreadable geometry.

    Raises InputRefused.
    """
    refuse_no_spine(settings)
    if settings.run.estimator != "topdown":  # That estimates all, and to load others takes long.
        from .estimators import estimator_of

        estimator_of(settings).refuse(settings)
    for universe in settings.run.universes:
        with refused(f"budget.{universe}."):
            refuse_wide_noise(settings.budget_of(universe))
    refuse_large_solves(settings)
    refuse_unfit_geometry(settings.input.geometry)
