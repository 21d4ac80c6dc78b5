"""Checks of a finished trips run."""

from __future__ import annotations

from tasks.checks.gate import accept
from tasks.checks.trips.promise import expected_of
from tasks.measurement.trips.run import plan_of
from tasks.run_directory import RunDirectory
from tasks.settings.trips import TripsSettings
from validation.outcome import Outcome
from validation.trips.run_checks import run_checks


def check_run(run: RunDirectory, settings: TripsSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    outcomes = run_checks(
        run.root,
        expected_of(settings, plan_of(run, settings)),
        release_directory=run.unchecked_release,
        is_private=settings.is_private,
    )
    return accept(run, settings, outcomes)
