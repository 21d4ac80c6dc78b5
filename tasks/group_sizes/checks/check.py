"""Checks of a group-sizes run: of its plan before noise is drawn, of its release afterwards."""

from __future__ import annotations

from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.group_sizes.workload.promise import promise_of
from spineflow.tasks.ledger.charging import refuse_unlike_ledger
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.gate import accept
from spineflow.validation.group_sizes.run_checks import run_checks
from spineflow.validation.outcome import Outcome


def check_run(run: RunDirectory, settings: GroupSizesSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unreleased run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    refuse_unlike_ledger(run, settings)
    outcomes = run_checks(
        run.root, promise_of(settings), run.unchecked_release, is_private=settings.is_private
    )
    return accept(run, settings, outcomes)
