"""The independent checks that a topdown run kept what it promises."""

from __future__ import annotations

from ....validation.outcome import Outcome
from ....validation.topdown.margins import check_margins
from ...ledger.charging import refuse_unlike_ledger
from ...products.gate import accept
from ...runs.directory import RunDirectory
from ..release.margins import written_margins
from ..settings import TopdownSettings
from .declared import check_declared_run
from .pieces import outcomes_of_pieces


def check_run(run: RunDirectory, settings: TopdownSettings) -> tuple[Outcome, ...]:
    """Check the finished, still unpublished run and write the public outcomes.

    What pieces of the checks have found is used where no file has changed since. Raises
    CheckFailed, naming the first check that failed; the release is then withheld.
    """
    refuse_unlike_ledger(run, settings)
    margins = [check_margins(run.unchecked_release)] if written_margins(run, settings) else []
    if settings.is_declared:
        return accept(run, settings, [*check_declared_run(run, settings), *margins])
    return accept(run, settings, [*outcomes_of_pieces(run, settings), *margins])
