"""The independent checks that a topdown run kept what it promises."""

from __future__ import annotations

from ....validation.outcome import Outcome
from ....validation.topdown.margins import check_margins
from ...runs.directory import RunDirectory
from ..release.margins import written_margins
from ..settings import TopdownSettings
from .pieces import outcomes_of_pieces


def outcomes_of_run(run: RunDirectory, settings: TopdownSettings) -> list[Outcome]:
    """The outcomes of all checks of a finished, still unpublished run.

    What pieces of the checks have found is used where no file has changed since.
    """
    margins = [check_margins(run.unchecked_release)] if written_margins(run, settings) else []
    return [*outcomes_of_pieces(run, settings), *margins]
