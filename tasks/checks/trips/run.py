"""What the settings of a trips run promise, held against its files."""

from __future__ import annotations

from tasks.errors import CheckFailed
from tasks.files import NOT_PRIVATE
from tasks.measurement.trips.plan import Plan
from tasks.measurement.trips.run import plan_of
from tasks.run_directory import RunDirectory
from tasks.settings.trips import TripsSettings
from validation.outcome import Outcome, write_outcomes
from validation.trips.privacy_loss import ExpectedTrips
from validation.trips.run_checks import run_checks


def expected_of(settings: TripsSettings, plan: Plan) -> ExpectedTrips:
    """What the independent checks may take for granted about a run."""
    contribution = settings.contribution
    is_histogram = plan.histogram is not None
    return ExpectedTrips(
        loss=None if plan.guarantee is None else plan.guarantee.parameter,
        threshold=plan.histogram.threshold if is_histogram else None,
        levels=plan.levels,
        top_down=plan.is_top_down,
        children_measured=plan.is_top_down and not plan.measures_all and not plan.is_selected,
        every_node=plan.budget is not None and (plan.measures_all or not plan.is_top_down),
        bounded=contribution.is_bounded,
        trips_per_person=contribution.trips,
        distinct=contribution.are_distinct,
        exact=contribution.is_exact,
    )


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
    stamp = None if settings.is_private else NOT_PRIVATE
    write_outcomes(outcomes, run.checks, stamp=stamp)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        raise CheckFailed(
            f"The check {failed[0].name} failed ({len(failed)} of {len(outcomes)} did) and the "
            f"release is withheld: {failed[0].detail}; see {run.checks.name}/checks.json in the "
            "run directory."
        )
    return outcomes
