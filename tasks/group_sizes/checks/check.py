"""Checks of a group-sizes run: of its plan before noise is drawn, of its release afterwards."""

from __future__ import annotations

from ....validation.group_sizes.run_checks import run_checks
from ....validation.outcome import Outcome
from ...ledger.charging import refuse_unlike_ledger
from ...products.gate import accept
from ...runs.directory import RunDirectory
from ..settings import GroupSizesSettings
from ..workload.promise import promise_of


def check_run(run: RunDirectory, settings: GroupSizesSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unreleased run and write the public outcomes.

    Raises CheckFailed, naming the first check that failed; the release is then withheld.
    """
    refuse_unlike_ledger(run, settings)
    outcomes = run_checks(
        run.root, promise_of(settings), run.unchecked_release, is_private=settings.is_private
    )
    return accept(run, settings, outcomes)
