"""The steps that check a finished run, let its release through and report on it."""

from __future__ import annotations

from ....validation.outcome import CHECKS_FILE
from ...products.gate import checked, released
from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..release.certificate import write_certificate
from ..release.report import write_report
from ..settings import TopdownSettings
from .accuracy.queries import read_accuracy, records_by_block
from .check import check_run
from .pieces import (
    Piece,
    findings_file,
    read_findings,
    state_of_files,
    write_findings,
)


@step("check piece", TopdownSettings, run_name="check {subject} {kind} {number}")
def check_piece(
    run: RunDirectory, settings: TopdownSettings, kind: str, subject: str, number: int, of: int
) -> Made:
    """Check a piece of a large run, by code independent of the estimator, for `check_release`."""
    piece = Piece(kind, subject, number, of)
    if run.release.exists():
        return found(run.checks / CHECKS_FILE)
    if read_findings(run, piece, state_of_files(run)) is not None:
        return found(findings_file(run, piece))
    return made(write_findings(run, settings, piece))


@step("check", TopdownSettings, run_name="check")
def check_release(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Check estimates, constraints, shares and microdata by code independent of the estimator."""
    return checked(run, settings, check_run)


@step("release", TopdownSettings, run_name="release")
def release_run(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Add the certificate, and move the checked release to where readers look for it."""
    return released(run, lambda: write_certificate(run, settings))


@step("report", TopdownSettings, run_name="report")
def report_run(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write the public report."""
    is_public = not settings.input.confidential
    accuracy = read_accuracy(run) if is_public else None
    truth = records_by_block(run, settings) if is_public else None
    return made(write_report(run, settings, accuracy, truth))
