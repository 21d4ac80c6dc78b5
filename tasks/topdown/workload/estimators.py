"""Settings that only the estimator topdown can follow."""

from __future__ import annotations

from ...runs.settings import Refuse
from .sections import TopdownSections


def refuse_other_estimators(settings: TopdownSections, refuse: Refuse) -> None:
    """Refuse measurement on demand where it is not drawn or not enough, and passes that interleave
    beside an estimator that has passes of its own.
    """
    estimator = settings.run.estimator
    for universe in settings.run.universes:
        where = f"workload.{universe}"
        if settings.is_on_demand(universe) and settings.measured is not None:
            refuse(f"{where}.on_demand belongs to runs that draw noise; take it out")
        if settings.is_on_demand(universe) and estimator != "topdown":
            refuse(
                f"{where}.on_demand draws the answers that the estimator topdown reads; "
                f'run.estimator = "{estimator}" needs them all: take either out'
            )
        if settings.interleaves(universe) and estimator != "topdown":
            refuse(
                f"{where}.passes interleave, as those of the estimator topdown can; "
                f'run.estimator = "{estimator}" needs other passes'
            )
