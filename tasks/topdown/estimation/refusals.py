"""What settings are refused for before any input is read."""

from __future__ import annotations

from ...tables.geometry import refuse_unfit_geometry
from ..settings import TopdownSettings
from ..spine.rules import refuse_no_spine
from .largest_solve import refuse_large_solves


def refuse_settings(settings: TopdownSettings) -> None:
    """Refuse what makes no spine, what the estimator cannot estimate, solves that memory cannot
    hold, and unreadable geometry.

    Raises InputRefused.
    """
    refuse_no_spine(settings)
    if settings.run.estimator != "topdown":  # That estimates all, and to load others takes long.
        from .estimators import estimator_of

        estimator_of(settings).refuse(settings)
    refuse_large_solves(settings)
    refuse_unfit_geometry(settings.input.geometry)
