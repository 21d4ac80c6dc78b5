"""Checks of a group-sizes run: of its plan before noise is drawn, of its release afterwards."""

from __future__ import annotations

from tasks.checks.group_sizes.promise import promise_of
from tasks.errors import CheckFailed
from tasks.files import NOT_PRIVATE
from tasks.run_directory import RunDirectory
from tasks.settings.group_sizes import GroupSizesSettings
from validation.group_sizes.run_checks import run_checks
from validation.outcome import Outcome, write_outcomes


def check_run(run: RunDirectory, settings: GroupSizesSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    outcomes = run_checks(
        run.root, promise_of(settings), run.unchecked_release, is_private=settings.is_private
    )
    stamp = None if settings.is_private else NOT_PRIVATE
    write_outcomes(outcomes, run.checks, stamp=stamp)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        raise CheckFailed(
            f"The check of {failed[0].name.replace('_', ' ')} failed ({len(failed)} of "
            f"{len(outcomes)} checks did) and the release is withheld: {failed[0].detail}; see "
            f"{run.checks.name}/checks.json in the run directory."
        )
    return outcomes
