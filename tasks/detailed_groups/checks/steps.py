"""The steps that check a detailed-groups run, let its release through and report on it."""

from __future__ import annotations

from ...products.gate import checked, compared, released
from ...runs.directory import RunDirectory
from ...runs.handles import Made, made
from ...runs.steps import step
from ..release.certificate import write_certificate
from ..release.report import write_report
from ..settings import DetailedGroupsSettings
from .accuracy import has_truth, read_accuracy, write_accuracy
from .check import check_run


@step("check groups", DetailedGroupsSettings, run_name="check")
def check_release(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Check measurements and release by code independent of what made them."""
    return checked(run, settings, check_run)


@step("release groups", DetailedGroupsSettings, run_name="release")
def release_run(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Add the certificate, and move the checked release to where readers look for it."""
    return released(run, lambda: write_certificate(run, settings))


@step("report groups", DetailedGroupsSettings, run_name="report")
def report_run(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Compare the release with the truth, in confidence, and write the public report."""
    if has_truth(run, settings):
        compared(run, settings, lambda: write_accuracy(run, settings))
    accuracy = None if settings.input.confidential else read_accuracy(run)
    return made(write_report(run, settings, accuracy))
