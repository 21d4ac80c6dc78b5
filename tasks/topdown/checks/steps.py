"""The step that checks a piece of a run."""

from __future__ import annotations

from ....validation.topdown.run_checks import Piece
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, reused
from ...runs.steps import step
from ..settings import TopdownSettings
from .pieces import findings_file, read_findings, state_of_files, write_findings


@step("check piece", TopdownSettings, run_name="check {subject} {kind} {number}")
def check_piece(
    run: RunDirectory, settings: TopdownSettings, kind: str, subject: str, number: int, of: int
) -> Made:
    """Check a piece of a large run, by code independent of the estimator, for `check_release`."""
    piece = Piece(kind, subject, number, of)
    if run.release.exists():
        return reused(run.outcomes)
    if read_findings(run, piece, state_of_files(run)) is not None:
        return reused(findings_file(run, piece))
    return created(write_findings(run, piece))
