"""Checks of a group-sizes run: of its plan before noise is drawn, of its release afterwards."""

from __future__ import annotations

from tasks.checks.gate import accept
from tasks.checks.group_sizes.promise import promise_of
from tasks.run_directory import RunDirectory
from tasks.settings.group_sizes import GroupSizesSettings
from validation.group_sizes.run_checks import run_checks
from validation.outcome import Outcome


def check_run(run: RunDirectory, settings: GroupSizesSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    outcomes = run_checks(
        run.root, promise_of(settings), run.unchecked_release, is_private=settings.is_private
    )
    return accept(run, settings, outcomes)
