"""Checks of a finished trips run."""

from __future__ import annotations

from ....validation.outcome import Outcome
from ....validation.trips.run_checks import run_checks
from ...ledger.charging import refuse_unlike_ledger
from ...products.gate import accept
from ...runs.directory import RunDirectory
from ..ingest.files import plan_of
from ..settings import TripsSettings
from ..workload.promise import expected_of


def check_run(run: RunDirectory, settings: TripsSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    refuse_unlike_ledger(run, settings)
    outcomes = run_checks(
        run.root,
        expected_of(settings, plan_of(run, settings)),
        release_directory=run.unchecked_release,
        is_private=settings.is_private,
    )
    return accept(run, settings, outcomes)
